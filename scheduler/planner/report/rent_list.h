// What somebody who rents has to order for a plan: machines with a price as a whole, devices of the
// others one by one, by their names in the description.
//
// Thread rule: pure function. Units: USD per hour.
#pragma once

#include <string>

#include "proto/cluster.pb.h"
#include "proto/plan.pb.h"

namespace tessera::scheduler {

// `usd_per_hour`: of all that; 0: not known.
v1::RentOrders RentOrdersOf(const v1::Cluster& cluster, const v1::DeploymentPlan& plan,
                            double usd_per_hour);

// Whether the description offers a machine several times.
bool IsMarket(const v1::Cluster& cluster);

}  // namespace tessera::scheduler
