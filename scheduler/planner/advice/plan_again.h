// Planning again with one thing changed, to say what the change brings: with other devices, links
// or assumptions, as what-if, sensitivity and prices do it. Thread rule: pure functions.
#pragma once

#include "proto/plan.pb.h"
#include "scheduler/planner/planner_input.h"

namespace tessera::scheduler {

// The options that a plan was made with, to search once more under its own limit of TPOT and no
// other: rates under different ones say nothing about each other. No rate is simulated.
PlannerOptions AgainAt(const v1::DeploymentPlan& plan, const PlannerOptions& options);

}  // namespace tessera::scheduler
