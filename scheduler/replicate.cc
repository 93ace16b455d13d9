#include "scheduler/replicate.h"

#include "absl/strings/str_cat.h"
#include "proto/layers/layers.h"
#include "scheduler/batcher.h"

namespace tessera::scheduler {
namespace {

// A GPU with memory for them gets the limits that are usual: such steps take some hundred MB. Those
// of others, and of a CPU, are left to whoever carries the plan out.
constexpr BatchLimits kGpuLimits = {};
constexpr int64_t kLargeGpuBytes = int64_t{12} << 30;

}  // namespace

v1::DeploymentPlan OneReplicaPerDevice(const v1::Model& model,
                                       std::span<const DeviceOffer> devices) {
  v1::DeploymentPlan plan;
  *plan.mutable_model() = model;
  for (const DeviceOffer& device : devices) {
    // Named after the device, not its index: a device that joins or leaves renames no other
    // replica.
    v1::Replica* replica = plan.add_replicas();
    replica->set_name(absl::StrCat("r-", device.name));
    replica->set_role(v1::REPLICA_ROLE_BOTH);
    if (device.gpu && device.memory_bytes >= kLargeGpuBytes) {
      replica->set_max_batched_tokens(kGpuLimits.max_batched_tokens);
      replica->set_max_sequences(kGpuLimits.max_sequences);
    }
    v1::PlannedWorker* worker = replica->add_stages()->add_workers();
    worker->set_device(device.name);
    worker->set_available_bytes(device.memory_bytes);
    *worker->mutable_share() = WholeModelShare(model);
    v1::RoutingShare* share = plan.add_routing();
    share->set_prefill_replica(replica->name());
    share->set_decode_replica(replica->name());
    share->set_share(1.0 / static_cast<double>(devices.size()));
  }
  plan.add_notes()->set_every_device_alone(true);
  return plan;
}

}  // namespace tessera::scheduler
