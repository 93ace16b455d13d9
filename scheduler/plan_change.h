// From one plan to another of the same model as the smallest difference: what becomes of each
// replica, and whether requests go other ways.
//
// A replica is carried on where the same devices hold the same shares in the same types, with pools
// and steps of the same size. Then workers need not read weights again, whatever its role, its
// micro-batches and its name.
//
// Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

#include "proto/plan.pb.h"

namespace tessera::scheduler {

struct ReplicaChange {
  enum class Kind {
    kKeep,     // serves on as it is
    kFlip,     // configured again with what its workers have loaded
    kRebuild,  // comes with weights that its workers read
    kDrop,     // goes
  };
  Kind kind = Kind::kKeep;
  // Its name in the plan before: equal to `to` or, of a flip, maybe another one. Empty: a rebuilt
  // replica that no replica of that name goes for.
  std::string from;
  std::string to;  // its name in the plan after; empty: it is dropped
};

struct PlanChange {
  std::vector<ReplicaChange> replicas;  // those of the plan after in its order, then dropped ones
  bool routes = false;                  // the routing differs

  bool empty() const;  // nothing differs
};

// Requires plans of one model (whatever they call it), and names of replicas that are unique within
// each.
PlanChange ChangeOf(const v1::DeploymentPlan& from, const v1::DeploymentPlan& to);

// Replicas of the plan before that may serve no more when the change is carried out: flipped,
// rebuilt and dropped ones.
std::vector<std::string> GoingReplicas(const PlanChange& change);

}  // namespace tessera::scheduler
