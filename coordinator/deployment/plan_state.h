// How far a plan is carried out, in words: for logs, /ready and `tessera status`. Thread rule: pure
// functions.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "coordinator/deployment/worker_pool.h"
#include "proto/plan.pb.h"

namespace tessera::coordinator {

// Devices that the plan uses and no live worker stands for, in the plan's order.
std::vector<std::string> MissingDevices(const v1::DeploymentPlan& plan,
                                        const std::map<std::string, WorkerRecord>& workers);

// What a replica that takes no requests waits for: the first of its devices that is not ready, and
// why. Never empty.
std::string WhyNotServing(const v1::Replica& replica,
                          const std::map<std::string, WorkerRecord>& workers);

}  // namespace tessera::coordinator
