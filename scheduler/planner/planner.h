// Decision 1 of 3: (cluster, model, workload, goal) -> a deployment plan and why.
//
// The plan that comes out has passed plan_check and names every assumption. Thread rule: pure
// function, deterministic: the same input gives the same bytes. Errors: InvalidArgument for a
// description that cannot be, ResourceExhausted saying what is missing where nothing fits, NotFound
// for an unknown search.
#pragma once

#include "absl/status/statusor.h"
#include "proto/plan.pb.h"
#include "scheduler/planner/planner_input.h"

namespace tessera::scheduler {

absl::StatusOr<v1::DeploymentPlan> MakePlan(const PlannerInput& input,
                                            const PlannerOptions& options);

}  // namespace tessera::scheduler
