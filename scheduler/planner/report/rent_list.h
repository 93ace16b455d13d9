// What somebody who rents has to order for a plan: machines with a price as a whole, devices of the
// others one by one, by their names in the description.
//
// Thread rule: pure function. Units: USD per hour.
#pragma once

#include <string>

#include "proto/cluster.pb.h"
#include "proto/plan.pb.h"

namespace tessera::scheduler {

// "rent 2 of the 4 h100x2, w, 3 A6000 of v one by one: 13.00 USD/h; 1 of the 9 devices of whole
// machines is not used". `usd_per_hour`: of all that; 0: not known.
std::string RentLine(const v1::Cluster& cluster, const v1::DeploymentPlan& plan,
                     double usd_per_hour);

// Whether the description offers a machine several times.
bool IsMarket(const v1::Cluster& cluster);

}  // namespace tessera::scheduler
