// What somebody who rents has to order for a plan: whole machines, by their name in the
// description.
//
// Thread rule: pure function. Units: USD per hour.
#pragma once

#include <string>
#include <vector>

#include "proto/cluster.pb.h"
#include "proto/plan.pb.h"

namespace tessera::scheduler {

// "rent 2 of the 4 h100x2, 1 of the 6 a6000x4: 12.00 USD/h for whole machines"; says so where parts
// of them stay unused (the objectives count devices, each for its part of its machine's price), and
// bewares where whole ones cost more than the description's budget. Without USD where a machine has
// no price of its own; no line where the description offers no machine several times.
std::vector<std::string> RentLines(const v1::Cluster& cluster, const v1::DeploymentPlan& plan);

}  // namespace tessera::scheduler
