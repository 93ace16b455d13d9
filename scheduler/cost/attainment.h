// Which part of the requests meets their latency objectives.
//
// Thread rule: plain values. Units: seconds, requests per second.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "scheduler/cost/lengths.h"

namespace tessera::scheduler {

// Infinite: no limit.
struct LatencyLimits {
  double ttft_seconds = std::numeric_limits<double>::infinity();  // from arrival
  double tpot_seconds = std::numeric_limits<double>::infinity();  // mean, after the first token
  double end_to_end_seconds = std::numeric_limits<double>::infinity();

  bool any() const;
};

// Requests that have their lengths and objectives in common.
struct RequestClass {
  std::string name;
  double share = 1;                     // of the arrival rate; those of all classes sum to 1
  std::vector<RequestLengths> samples;  // weights sum to 1
  LatencyLimits limits;
  double required_attainment = 0.99;  // part of the requests that must meet all limits
  int judged_with = 0;                // classes of the same number must reach it together
};

}  // namespace tessera::scheduler
