// What is different between two plans, for people: figures, replicas, devices, what would have to
// be loaded to go from the first to the second. Thread rule: pure functions.
#pragma once

#include <map>
#include <string>

#include "proto/plan.pb.h"

namespace tessera::scheduler {

// Bytes of weights by device that `to` wants there and `from` has not: the shards that would have
// to be loaded. Ranges of layers, heads, columns, rows and experts that a device holds already
// stay. Devices with nothing to load are left out; everything is loaded where the models differ.
std::map<std::string, double> BytesToLoad(const v1::DeploymentPlan& from,
                                          const v1::DeploymentPlan& to);

// `from_name` and `to_name` head the columns of figures.
std::string PlanDiff(const v1::DeploymentPlan& from, const v1::DeploymentPlan& to,
                     const std::string& from_name, const std::string& to_name);

}  // namespace tessera::scheduler
