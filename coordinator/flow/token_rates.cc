#include "coordinator/flow/token_rates.h"

#include <set>

namespace tessera::coordinator {
namespace {
constexpr double kWindowSeconds = 10.0;
}

void TokenRates::Sample(const std::vector<ReplicaActivity>& activity, double now_seconds) {
  std::set<std::string> present;
  for (const ReplicaActivity& replica : activity) {
    present.insert(replica.replica);
    std::deque<Point>& points = points_[replica.replica];
    // A worker that started over counts from zero.
    if (!points.empty() && replica.prompt_tokens + replica.generation_tokens <
                               points.back().prompt_tokens + points.back().generation_tokens) {
      points.clear();
    }
    points.push_back({now_seconds, replica.prompt_tokens, replica.generation_tokens});
    while (points.size() > 2 && points[1].seconds <= now_seconds - kWindowSeconds)
      points.pop_front();
  }
  std::erase_if(points_, [&](const auto& entry) { return !present.contains(entry.first); });
}

TokenRate TokenRates::Of(const std::string& replica) const {
  auto it = points_.find(replica);
  if (it == points_.end() || it->second.size() < 2) return {};
  const Point& first = it->second.front();
  const Point& last = it->second.back();
  const double seconds = last.seconds - first.seconds;
  if (seconds <= 0) return {};
  return {static_cast<double>(last.prompt_tokens - first.prompt_tokens) / seconds,
          static_cast<double>(last.generation_tokens - first.generation_tokens) / seconds};
}

}  // namespace tessera::coordinator
