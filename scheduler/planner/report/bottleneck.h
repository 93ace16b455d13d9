// What keeps a plan from serving more: a stage, a link that a pipeline waits for, a full link or
// uplink, and the limit that ends the growth of its batches.
//
// Thread rule: pure functions. Source: the parts of the cost model's period (cost/replica_cost.h)
// and the loads of links (link_load.h).
#pragma once

#include <vector>

#include "proto/plan.pb.h"
#include "scheduler/search/layout/problem.h"

namespace tessera::scheduler {

// One per replica. `plan` is the written placement, with routing, basis and prediction.
std::vector<v1::Pace> PacesOf(const PlacementProblem& problem, const Placement& placement,
                              const v1::DeploymentPlan& plan);

// Fills Stage.busy_share of the plan's replicas, which are the placement's: a stage's time in a
// steady step over the step's period.
void WriteBusyShares(const PlacementProblem& problem, const Placement& placement,
                     v1::DeploymentPlan* plan);

// What ends the growth of a replica's rate. The kind is that of the scarcest stage for KV, else
// of the slowest.
v1::LimitedBy LimitOf(const PlacementProblem& problem, const PlacedReplica& placed);

}  // namespace tessera::scheduler
