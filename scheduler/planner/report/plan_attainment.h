// How long the requests of a plan take and which part of them meets their objectives, by class, as
// the plan says it and as people read it.
//
// Thread rule: pure functions. Source of the figures: cost/attainment. Nothing is said of classes
// where the workload asks nothing of latencies.
#pragma once

#include <optional>
#include <string>

#include "proto/plan.pb.h"
#include "scheduler/search/layout/problem.h"

namespace tessera::scheduler {

struct ServedPlacement {
  const PlacementProblem* problem = nullptr;
  const Placement* placement = nullptr;
  double load = 1;  // part of the shares' rates that is sent
};

// Sets mean latencies, of each replica and of the plan; prediction.attainment and .classes. False:
// requests wait without end somewhere, and 0 stands for how long.
bool PredictLatencies(const ServedPlacement& served, v1::DeploymentPlan* plan);

// Which kind of limit keeps most requests out, by what part would be within their limits without
// it; none where there are not two kinds.
std::optional<v1::HardestLimit> HardestLimitOf(const ServedPlacement& served,
                                               const v1::DeploymentPlan& plan);

// A line for all and one for each class, each with its newline; empty: nothing was predicted.
std::string AttainmentTable(const v1::DeploymentPlan& plan);

v1::ServiceObjectives ObjectivesOf(const RequestClass& one);

}  // namespace tessera::scheduler
