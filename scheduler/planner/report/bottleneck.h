// What keeps a plan from serving more, in words: a stage, a link that a pipeline waits for, a full
// link or uplink, and the limit that ends the growth of its batches.
//
// Thread rule: pure function. Source: the parts of the cost model's period (cost/replica_cost.h)
// and the loads of links (link_load.h).
#pragma once

#include <string>

#include "proto/plan.pb.h"
#include "scheduler/search/layout/problem.h"

namespace tessera::scheduler {

// One entry per replica, "r0: ...", joined by "; ", which no entry holds. `plan` is the written
// placement, with routing, basis and prediction.
std::string BottleneckText(const PlacementProblem& problem, const Placement& placement,
                           const v1::DeploymentPlan& plan);

// Fills Stage.busy_share of the plan's replicas, which are the placement's: a stage's time in a
// steady step over the step's period.
void WriteBusyShares(const PlacementProblem& problem, const Placement& placement,
                     v1::DeploymentPlan* plan);

// What ends the growth of a replica's rate, with the option that sets it where there is one.
std::string LimitName(const PlacementProblem& problem, const PlacedReplica& placed);

}  // namespace tessera::scheduler
