// Replicas that serve next to nothing for the devices they take: most requests per second, taken
// literally, uses them too, and whoever reads a plan should know.
//
// Thread rule: pure function of a plan with its routing.
#pragma once

#include <string>

#include "proto/plan.pb.h"

namespace tessera::scheduler {

// "r4 serves 0.026 % of the requests with 8 of the 16 devices in use: leaving it out loses no
// more";
// "" where every replica does a tenth or more of what a device of the plan does on average.
std::string WeakReplicasLine(const v1::DeploymentPlan& plan);

}  // namespace tessera::scheduler
