#include "worker/worker_device.h"

#include <sched.h>

#include <algorithm>
#include <utility>

#include "kernels/ops.h"
#include "third_party/linux/cpu_share.h"
#include "third_party/spdlog/log.h"
#include "worker/devices/device_share.h"
#include "worker/engine/state_cache_size.h"

namespace tessera::worker {
namespace {

// Threads of gRPC and the engine stay on the worker's cores too, so that neighbours keep theirs.
void StayOn(const std::vector<int>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(core, &set);
  if (sched_setaffinity(0, sizeof(set), &set) != 0) {
    Logger("worker").warn("cannot confine the process to its cores; only the compute threads are");
  }
}

// Where the type does not say what its devices compute in.
void AddDataTypes(kernels::Ops& ops, v1::DeviceInfo* info) {
  if (!info->data_types().empty()) return;
  info->add_data_types(v1::DATA_TYPE_FLOAT32);
  if (ops.ComputesIn(kernels::DType::kF16)) info->add_data_types(v1::DATA_TYPE_FLOAT16);
  if (ops.ComputesIn(kernels::DType::kBF16)) info->add_data_types(v1::DATA_TYPE_BFLOAT16);
  info->add_data_types(v1::DATA_TYPE_INT8);
}

}  // namespace

absl::StatusOr<WorkerDevice> MakeWorkerDevice(const DeviceFlags& flags, const DeviceType& type) {
  const std::vector<int> affinity = AffinityCores();
  // --memory of a card's worker is the card's.
  const bool card = type.has_own_memory;
  const auto share = ChooseDeviceShare(flags.cpus, card ? 0 : flags.memory_bytes, affinity,
                                       ReadCpuShare(affinity));
  if (!share.ok()) return share.status();
  if (!share->warning.empty()) Logger("worker").warn("{}", share->warning);
  auto opened = type.open(flags, *share);
  if (!opened.ok()) return opened.status();
  WorkerDevice made;
  made.device = std::move(opened->device);
  made.info = std::move(opened->info);
  made.look = opened->look;
  made.probe = opened->probe;
  made.tuning = std::move(opened->tuning);
  made.memory_is_ours = card;
  made.cores = flags.cpus.empty() ? NearCores(share->cores, opened->near_cores) : share->cores;
  StayOn(made.cores);
  if (!card && ReadCpuShare(made.cores).memory_bytes > 0) {  // else nothing says how much there is
    made.memory_left = [cores = made.cores] { return ReadCpuShare(cores).available_bytes; };
  }
  int64_t free_bytes = ReadCpuShare(made.cores).available_bytes;
  if (!card) free_bytes = std::min(free_bytes, made.device->memory_bytes());
  made.state_cache_bytes = StateCacheBytes(flags.state_cache_memory_bytes, free_bytes);
  made.info.set_description(made.device->Describe());
  made.info.set_memory_bytes(made.device->memory_bytes());
  AddDataTypes(made.device->ops(), &made.info);
  return made;
}

}  // namespace tessera::worker
