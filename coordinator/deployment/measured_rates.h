// What the deployment does over the last ten seconds, in the words of a plan's prediction, from
// counters that only grow. Thread rule: thread-safe. Time is an argument (monotonic seconds).
#pragma once

#include <deque>
#include <mutex>
#include <vector>

#include "proto/plan.pb.h"

namespace prometheus {
struct MetricFamily;
}

namespace tessera::coordinator {

class MeasuredRates {
 public:
  // About once a second, with all families of the process's registry: request latencies are read
  // from vllm:time_to_first_token_seconds, vllm:inter_token_latency_seconds and
  // vllm:e2e_request_latency_seconds.
  void Sample(const std::vector<prometheus::MetricFamily>& families, double now_seconds);

  // Requests that ended and output tokens per second, means of TTFT and TPOT. Zero: nothing
  // happened.
  v1::Prediction Recent() const;

 private:
  struct Sums {
    double seconds = 0;  // when
    double first_token_seconds = 0, first_tokens = 0;
    double gap_seconds = 0, gaps = 0;
    double requests = 0;
  };
  mutable std::mutex mutex_;  // guards points_
  std::deque<Sums> points_;
};

}  // namespace tessera::coordinator
