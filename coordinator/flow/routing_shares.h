// The shares of a plan's traffic by the names of replicas that come and go; what is within its
// share is scheduler/routing_shares' to say.
//
// Thread rule: none of its own; guard it. Deterministic.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "proto/plan.pb.h"
#include "scheduler/routing_shares.h"

namespace tessera::coordinator {

class RoutingShares {
 public:
  // Empty: every replica is allowed always.
  using Shares = std::map<std::string, double>;
  explicit RoutingShares(Shares shares = {}) : shares_(std::move(shares)) {}
  // Counts anew where they differ from those that hold.
  void Set(Shares shares);

  // Takes those out of the snapshot (`loads`, of `replicas`) that have had their share.
  void Restrict(const std::vector<std::string>& replicas,
                std::vector<scheduler::ReplicaLoad>& loads) const;
  // A request went there.
  void Note(const std::string& replica);
  // Counts anew: a replica has come that the others are not to be held back for.
  void Restart() { counts_.clear(); }

 private:
  Shares shares_;
  std::map<std::string, double> counts_;  // decayed
};

// By replica; of a plan whose pairs are replicas with themselves.
RoutingShares::Shares SharesOf(const v1::DeploymentPlan& plan);

}  // namespace tessera::coordinator
