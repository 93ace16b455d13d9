#include "coordinator/flow/hand_over_pairs.h"

#include <algorithm>

namespace tessera::coordinator {

HandOverPairs::HandOverPairs(const v1::DeploymentPlan& plan) {
  const auto& routes = plan.routing();
  const bool pairs = std::any_of(routes.begin(), routes.end(), [](const v1::RoutingShare& route) {
    return route.prefill_replica() != route.decode_replica();
  });
  if (!pairs) return;
  for (const v1::RoutingShare& route : routes) {
    shares_[route.prefill_replica()][route.decode_replica()] += route.share();
  }
}

bool HandOverPairs::Prefills(const std::string& replica) const {
  return shares_.empty() || shares_.contains(replica);
}

bool HandOverPairs::Decodes(const std::string& replica) const {
  return shares_.empty() || std::any_of(shares_.begin(), shares_.end(), [&](const auto& entry) {
           return entry.second.contains(replica);
         });
}

std::string HandOverPairs::Choose(const std::string& prefill, const std::set<std::string>& ready) {
  const auto pairs = shares_.find(prefill);
  if (pairs == shares_.end()) return prefill;
  std::map<std::string, double>& counts = counts_[prefill];
  const std::string* best = nullptr;
  double least = 0;
  for (const auto& [decode, share] : pairs->second) {
    if (share <= 0 || !ready.contains(decode)) continue;
    const double load = (counts[decode] + 1) / share;
    if (best != nullptr && load >= least) continue;
    best = &decode;
    least = load;
  }
  if (best == nullptr) return prefill;
  counts[*best] += 1;
  return *best;
}

}  // namespace tessera::coordinator
