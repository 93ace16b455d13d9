// The cores and the memory of this worker's CPU device: what --cpus and --memory ask for, held
// against what the affinity mask and the control groups allow.
//
// Thread rule: pure functions of their arguments.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "third_party/linux/cpu_share.h"

namespace tessera::worker {

// Less does not hold a worker's buffers, whatever its part of a model.
inline constexpr int64_t kMinMemoryBytes = 1 << 20;

struct DeviceShare {
  std::vector<int> cores;    // ascending
  int64_t memory_bytes = 0;  // in all: weights, KV pool, activations
  // Others compute on these cores too, so waits spin with care: cores that were not named may be
  // anybody's, and a single one is shared by this worker's compute, engine and gRPC threads.
  bool cores_shared = false;
  std::string warning;  // for the log; empty: none
};

// `cpus` as --cpus ("0-3,8"; empty: all of available.cores), `memory_bytes` as --memory (0: all of
// available.memory_bytes). `affinity`: the cores that the scheduler may run this process on;
// `available`: those that the CPU quota pays for, and the memory that limits leave.
// InvalidArgument names the flag, what it asks for and what there is.
absl::StatusOr<DeviceShare> ChooseDeviceShare(std::string_view cpus, int64_t memory_bytes,
                                              const std::vector<int>& affinity,
                                              const CpuShare& available);

// Those of `cores` that are near the device, or all where none is: a worker stays on its GPU's NUMA
// node. Both ascending.
std::vector<int> NearCores(const std::vector<int>& cores, const std::vector<int>& near);

}  // namespace tessera::worker
