#include "coordinator/routing_shares.h"

namespace tessera::coordinator {

void RoutingShares::Set(Shares shares) {
  if (shares == shares_) return;
  shares_ = std::move(shares);
  Restart();
}

void RoutingShares::Restrict(const std::vector<std::string>& replicas,
                             std::vector<scheduler::ReplicaLoad>& loads) const {
  if (shares_.empty()) return;
  std::vector<std::string> ready;
  for (size_t i = 0; i < loads.size(); ++i) {
    if (loads[i].ready) ready.push_back(replicas[i]);
  }
  const std::vector<bool> allowed = Allowed(ready);
  size_t next = 0;
  for (scheduler::ReplicaLoad& load : loads) {
    if (load.ready) load.ready = allowed[next++];
  }
}

std::vector<bool> RoutingShares::Allowed(const std::vector<std::string>& ready) const {
  double shares = 0;
  double counted = 0;
  const auto value = [](const std::map<std::string, double>& values, const std::string& name) {
    const auto found = values.find(name);
    return found == values.end() ? 0.0 : found->second;
  };
  for (const std::string& name : ready) {
    shares += value(shares_, name);
    counted += value(counts_, name);
  }
  std::vector<bool> allowed(ready.size(), true);
  if (shares <= 0) return allowed;
  for (size_t i = 0; i < ready.size(); ++i) {
    const double share = value(shares_, ready[i]) / shares;
    allowed[i] = share > 0 && value(counts_, ready[i]) + 1 <= share * (counted + 1) + kSlack;
  }
  return allowed;
}

void RoutingShares::Note(const std::string& replica) {
  if (shares_.empty()) return;
  for (auto& [name, count] : counts_) count *= 1 - 1 / kWindow;
  counts_[replica] += 1;
}

RoutingShares::Shares SharesOf(const v1::DeploymentPlan& plan) {
  RoutingShares::Shares shares;
  for (const v1::RoutingShare& route : plan.routing())
    shares[route.prefill_replica()] += route.share();
  return shares;
}

}  // namespace tessera::coordinator
