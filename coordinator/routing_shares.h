// Keeps the traffic of replicas at the shares that a plan gives them (plan.proto, RoutingShare),
// while the router decides by load among those that are within their share.
//
// Idea: count what each got of the last kWindow requests or so; the next one may go where one more
// stays within the share plus kSlack requests. Somebody always is: shares sum to one, and so do the
// counts. Shares are taken among the replicas that are ready. A replica without a share gets
// something only where nobody else is ready. The part that a plan sheds is not kept: queues' limits
// do that.
//
// Thread rule: none of its own; guard it. Deterministic.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "proto/plan.pb.h"
#include "scheduler/router.h"

namespace tessera::coordinator {

class RoutingShares {
 public:
  static constexpr double kWindow = 200;
  static constexpr double kSlack = 2;

  // Empty: every replica is allowed always.
  using Shares = std::map<std::string, double>;
  explicit RoutingShares(Shares shares = {}) : shares_(std::move(shares)) {}
  // Counts anew where they differ from those that hold.
  void Set(Shares shares);

  // Takes those out of the snapshot (`loads`, of `replicas`) that have had their share.
  void Restrict(const std::vector<std::string>& replicas,
                std::vector<scheduler::ReplicaLoad>& loads) const;
  // Which of `ready` the next request may go to; the same size, at least one is true unless `ready`
  // is empty.
  std::vector<bool> Allowed(const std::vector<std::string>& ready) const;
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
