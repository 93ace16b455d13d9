#include "scheduler/plan_change.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "google/protobuf/util/message_differencer.h"

namespace tessera::scheduler {
namespace {

bool SameTypes(const v1::DeploymentPlan& a, const v1::DeploymentPlan& b) {
  return a.weight_dtype() == b.weight_dtype() && a.kv_dtype() == b.kv_dtype();
}

bool SameStage(const v1::Stage& a, const v1::Stage& b) {
  return std::equal(a.workers().begin(), a.workers().end(), b.workers().begin(), b.workers().end(),
                    [](const v1::PlannedWorker& x, const v1::PlannedWorker& y) {
                      return x.device() == y.device() && x.kv_bytes() == y.kv_bytes() &&
                             google::protobuf::util::MessageDifferencer::Equals(x.share(),
                                                                                y.share());
                    });
}

// What the workers have loaded for `a` serves `b` too.
bool SameLoaded(const v1::Replica& a, const v1::Replica& b) {
  return a.max_sequences() == b.max_sequences() &&
         a.max_batched_tokens() == b.max_batched_tokens() &&
         std::equal(a.stages().begin(), a.stages().end(), b.stages().begin(), b.stages().end(),
                    SameStage);
}

bool SameRoutes(const v1::DeploymentPlan& a, const v1::DeploymentPlan& b) {
  const auto routes = [](const v1::DeploymentPlan& plan) {
    std::map<std::tuple<std::string, std::string, std::string>, double> shares;
    for (const v1::RoutingShare& r : plan.routing())
      shares[{r.prefill_replica(), r.decode_replica(), r.kv_codec()}] += r.share();
    return shares;
  };
  return routes(a) == routes(b);
}

}  // namespace

bool PlanChange::empty() const {
  return !routes && std::all_of(replicas.begin(), replicas.end(), [](const ReplicaChange& r) {
    return r.kind == ReplicaChange::Kind::kKeep;
  });
}

PlanChange ChangeOf(const v1::DeploymentPlan& from, const v1::DeploymentPlan& to) {
  PlanChange change;
  const bool same_types = SameTypes(from, to);
  std::set<std::string> accounted;  // of `from`
  for (const v1::Replica& replica : to.replicas()) {
    ReplicaChange one = {ReplicaChange::Kind::kRebuild, "", replica.name()};
    for (const v1::Replica& before : from.replicas()) {
      if (before.name() == replica.name()) one.from = before.name();
    }
    for (const v1::Replica& before : from.replicas()) {
      if (!same_types || !SameLoaded(before, replica)) continue;
      const bool same = before.name() == replica.name() && before.role() == replica.role() &&
                        before.micro_batches() == replica.micro_batches();
      one.kind = same ? ReplicaChange::Kind::kKeep : ReplicaChange::Kind::kFlip;
      one.from = before.name();
      break;  // no two replicas have the same devices
    }
    accounted.insert(one.from);
    change.replicas.push_back(std::move(one));
  }
  for (const v1::Replica& before : from.replicas()) {
    if (!accounted.contains(before.name()))
      change.replicas.push_back({ReplicaChange::Kind::kDrop, before.name(), ""});
  }
  change.routes = !SameRoutes(from, to);
  return change;
}

std::vector<std::string> GoingReplicas(const PlanChange& change) {
  std::set<std::string> going;
  for (const ReplicaChange& replica : change.replicas) {
    if (replica.kind != ReplicaChange::Kind::kKeep && !replica.from.empty())
      going.insert(replica.from);
  }
  return {going.begin(), going.end()};
}

}  // namespace tessera::scheduler
