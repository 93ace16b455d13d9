// A plan for people. Thread rule: pure function.
#pragma once

#include <string>

#include "proto/plan.pb.h"

namespace tessera::scheduler {

// Replicas with stages, memory and predictions, routing, bottleneck, explanation, assumptions.
std::string PlanTable(const v1::DeploymentPlan& plan);

}  // namespace tessera::scheduler
