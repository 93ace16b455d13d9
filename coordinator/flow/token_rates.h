// Tokens per second of each replica over the last ten seconds, from counters that only grow.
// Thread rule: one thread at a time. Time is an argument (monotonic seconds).
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "coordinator/flow/request_flow.h"

namespace tessera::coordinator {

struct TokenRate {
  double prompt_tokens_per_second = 0;
  double generation_tokens_per_second = 0;
};

class TokenRates {
 public:
  // Call about once a second.
  void Sample(const std::vector<ReplicaActivity>& activity, double now_seconds);
  TokenRate Of(const std::string& replica) const;

 private:
  struct Point {
    double seconds = 0;
    int64_t prompt_tokens = 0;
    int64_t generation_tokens = 0;
  };
  std::map<std::string, std::deque<Point>> points_;
};

}  // namespace tessera::coordinator
