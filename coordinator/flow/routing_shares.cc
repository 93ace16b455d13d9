#include "coordinator/flow/routing_shares.h"

namespace tessera::coordinator {

void RoutingShares::Set(Shares shares) {
  if (shares == shares_) return;
  shares_ = std::move(shares);
  Restart();
}

void RoutingShares::Restrict(const std::vector<std::string>& replicas,
                             std::vector<scheduler::ReplicaLoad>& loads) const {
  if (shares_.empty()) return;
  const auto values = [&](const std::map<std::string, double>& by_name) {
    std::vector<double> out;
    for (const std::string& name : replicas) {
      const auto found = by_name.find(name);
      out.push_back(found == by_name.end() ? 0.0 : found->second);
    }
    return out;
  };
  RestrictToShares(scheduler::ShareSide::kPrefill, values(shares_), values(counts_), loads);
}

void RoutingShares::Note(const std::string& replica) {
  if (shares_.empty()) return;
  for (auto& [name, count] : counts_) count *= scheduler::kShareDecay;
  counts_[replica] += 1;
}

RoutingShares::Shares SharesOf(const v1::DeploymentPlan& plan) {
  RoutingShares::Shares shares;
  for (const v1::RoutingShare& route : plan.routing())
    shares[route.prefill_replica()] += route.share();
  return shares;
}

}  // namespace tessera::coordinator
