// What devices would bring that a plan leaves out, because no worker runs on them: planned again
// with them, under the plan's own limit of TPOT. Thread rule: pure function.
#pragma once

#include "proto/plan.pb.h"
#include "scheduler/planner/planner_input.h"

namespace tessera::scheduler {

// Adds it to the plan's note on such devices, of up to 64 devices in all and where requests/s are
// what counts. `input` and `options` are what the plan was made of.
void AddLeftOutGain(const PlannerInput& input, const PlannerOptions& options,
                    v1::DeploymentPlan* plan);

}  // namespace tessera::scheduler
