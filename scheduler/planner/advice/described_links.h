// Which links of a description a plan depends on, and how much.
//
// Thread rule: pure functions. The pointers live as long as the input is not changed otherwise.
#pragma once

#include <vector>

#include "proto/plan.pb.h"
#include "scheduler/planner/planner_input.h"
#include "scheduler/planner/report/cluster_links.h"

namespace tessera::scheduler {

// The links of the description and the peer links of kinds wherever replicas of the plan depend on
// them, the fullest first. Links inside machines have no load of their own in a plan: where devices
// of one replica meet there they count as half full. Where nothing leaves machines, only those
// inside.
std::vector<DescribedLink> LinksByLoad(const v1::DeploymentPlan& plan, PlannerInput* input);

}  // namespace tessera::scheduler
