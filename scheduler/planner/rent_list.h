// What somebody who rents has to order for a plan: whole machines, by their name in the
// description.
//
// Thread rule: pure function. Units: USD per hour.
#pragma once

#include <string>

#include "proto/cluster.pb.h"
#include "proto/plan.pb.h"

namespace tessera::scheduler {

// "rent 2 of the 4 h100x2, 1 of the 6 a6000x4: 12.00 USD/h for whole machines"; without USD where a
// machine has no price of its own, "" where the description offers no machine several times.
std::string RentLine(const v1::Cluster& cluster, const v1::DeploymentPlan& plan);

}  // namespace tessera::scheduler
