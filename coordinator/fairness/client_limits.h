// How much one API key may ask for: requests and tokens a minute, and requests at a time.
//
// Each minute's worth is there at the start and comes back evenly. Tokens are paid when they are
// known: a key that has overdrawn waits until what came back covers it.
//
// Thread rule: one thread. Times are monotonic seconds.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace tessera::coordinator {

// 0: no limit.
struct ClientLimits {
  double requests_per_minute = 0;
  double tokens_per_minute = 0;  // of prompts, what the prefix cache holds left out, and answers
  int64_t concurrent_requests = 0;
};

class ClientBudget {
 public:
  ClientBudget(const ClientLimits& limits, double now_seconds);

  // RESOURCE_EXHAUSTED names the limit, and has when to try again (retry_after.h).
  absl::Status Enter(double now_seconds);
  void Leave(double tokens, double now_seconds);
  // OpenAI's headers of what is left: x-ratelimit-limit-requests, -remaining-requests,
  // -reset-requests (until all of them are back, as "1s" or "6m0s"), and the same of tokens. None
  // for what is not limited.
  std::vector<std::pair<std::string, std::string>> Headers(double now_seconds);

 private:
  struct Purse {
    double per_minute = 0;  // 0: it is never empty
    double left = 0;
    double at_seconds = 0;
    void Refill(double now_seconds);
    // Until it holds more than `amount`.
    double SecondsUntil(double amount) const;
  };

  const ClientLimits limits_;
  Purse requests_, tokens_;
  int64_t open_ = 0;
};

}  // namespace tessera::coordinator
