// What workers measured of themselves, beside what the plan counts on, as GetCluster shows it.
// Thread rule: pure function.
#pragma once

#include <map>
#include <string>

#include "coordinator/deployment/worker_pool.h"
#include "proto/coordinator.pb.h"
#include "proto/plan.pb.h"

namespace tessera::coordinator {

// Fills counters, shares of time busy and links of the reply's workers, which have their names
// and places. Planned rates of links are those between machines that the plan names.
void ShowFigures(const std::map<std::string, WorkerRecord>& workers, const v1::DeploymentPlan& plan,
                 v1::GetClusterReply* reply);

}  // namespace tessera::coordinator
