// What a leader keeps for the next one: the plans in force, and which workers there are.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "coordinator/deployment/plan_set.h"
#include "coordinator/deployment/worker_pool.h"
#include "proto/coordinator.pb.h"
#include "proto/plan.pb.h"

namespace tessera::coordinator {

struct KeptCluster {
  // In force, by model; none where each worker is a replica.
  std::vector<v1::DeploymentPlan> plans;
  // What its flags said of plans when they came in force. A leader whose flags say something else
  // begins with its own.
  std::string flags;
  std::vector<v1::RegisterRequest> workers;  // live ones, with the epochs that they serve
};

// By key. Values that mean the same are equal.
std::map<std::string, std::string> KeptValues(const PlanSet& plans, const std::string& flags,
                                              const std::map<std::string, WorkerRecord>& workers);
// What cannot be read is left out.
KeptCluster ReadKeptValues(const std::map<std::string, std::string>& values);

}  // namespace tessera::coordinator
