// The simplest plan there is: every device holds the whole model, as a replica of one stage of one
// worker. What a coordinator carries out when no plan is given. Thread rule: pure function.
// Deterministic: devices keep their order.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "proto/model.pb.h"
#include "proto/plan.pb.h"

namespace tessera::scheduler {

struct DeviceOffer {
  std::string name;
  int64_t memory_bytes = 0;
  bool gpu = false;  // has steps of more rows and sequences, which its rates need
};

v1::DeploymentPlan OneReplicaPerDevice(const v1::Model& model,
                                       std::span<const DeviceOffer> devices);

}  // namespace tessera::scheduler
