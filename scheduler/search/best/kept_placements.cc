#include "scheduler/search/best/kept_placements.h"

#include <algorithm>
#include <utility>

namespace tessera::scheduler {
namespace {

constexpr size_t kMaxKept = 3;
constexpr double kNear = 0.8;  // what the prediction puts below that, a simulation does not turn

bool SameReplicas(const Placement& a, const Placement& b) {
  const auto same_stage = [](const LayoutStage& s, const LayoutStage& t) {
    return s.pool == t.pool && s.width == t.width && s.layers == t.layers;
  };
  const auto same = [&](const PlacedReplica& x, const PlacedReplica& y) {
    return x.role == y.role && x.device_index == y.device_index &&
           std::equal(x.stages.begin(), x.stages.end(), y.stages.begin(), y.stages.end(),
                      same_stage);
  };
  return std::equal(a.replicas.begin(), a.replicas.end(), b.replicas.begin(), b.replicas.end(),
                    same);
}

}  // namespace

bool KeptPlacements::Better(const Placement& a, const Placement& b) const {
  return problem_.goal == Goal::kPrice ? a.usd_per_hour < b.usd_per_hour
                                       : a.requests_per_second > b.requests_per_second;
}

void KeptPlacements::Keep(Placement placement) {
  constexpr double kRounding = 1 - 1e-6;
  if (!(placement.requests_per_second > 0)) return;
  if (problem_.goal == Goal::kPrice &&
      placement.requests_per_second < problem_.required_requests_per_second * kRounding) {
    return;
  }
  for (const Placement& kept : kept_) {
    if (SameReplicas(kept, placement)) return;
  }
  const auto at = std::find_if(kept_.begin(), kept_.end(),
                               [&](const Placement& kept) { return Better(placement, kept); });
  kept_.insert(at, std::move(placement));
  if (kept_.size() > kMaxKept) kept_.pop_back();
}

std::vector<Placement> KeptPlacements::Near(const Placement& best) {
  std::vector<Placement> near;
  for (Placement& kept : kept_) {
    const bool is_near = problem_.goal == Goal::kPrice
                             ? kept.usd_per_hour * kNear <= best.usd_per_hour
                             : kept.requests_per_second >= kNear * best.requests_per_second;
    if (is_near && !SameReplicas(kept, best)) near.push_back(std::move(kept));
  }
  kept_.clear();
  return near;
}

}  // namespace tessera::scheduler
