#include "scheduler/cost/attainment.h"

#include <algorithm>
#include <cmath>

namespace tessera::scheduler {

bool LatencyLimits::any() const {
  return std::isfinite(std::min({ttft_seconds, tpot_seconds, end_to_end_seconds}));
}

}  // namespace tessera::scheduler
