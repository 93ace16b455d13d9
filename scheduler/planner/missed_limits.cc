#include "scheduler/planner/missed_limits.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tessera::scheduler {

void MissedLimits::Add(v1::LatencyLimit limit, double limit_seconds, double seconds) {
  if (!(limit_seconds > 0) || std::isinf(limit_seconds) || seconds <= limit_seconds) return;
  v1::MissedLimit one;
  one.set_limit(limit);
  one.set_limit_seconds(limit_seconds);
  one.set_seconds(std::isfinite(seconds) ? seconds : 0);
  const auto same = std::find_if(missed_.begin(), missed_.end(),
                                 [&](const auto& other) { return other.limit() == limit; });
  if (same == missed_.end()) {
    missed_.push_back(one);
  } else if (MissedBy(one) > MissedBy(*same)) {
    *same = one;
  }
}

std::vector<v1::MissedLimit> MissedLimits::all() const {
  std::vector<v1::MissedLimit> sorted = missed_;
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.limit() < b.limit(); });
  return sorted;
}

double MissedBy(const v1::MissedLimit& missed) {
  return missed.seconds() > 0 ? missed.seconds() / missed.limit_seconds()
                              : std::numeric_limits<double>::infinity();
}

}  // namespace tessera::scheduler
