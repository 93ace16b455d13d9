// A share of this machine's processor as a device: named cores and bytes of memory.
//
// Thread rule and ownership as in kernels/device.h. One pool of threads per device, pinned inside
// its cores; large buffers ask for huge pages and are touched (so placed) by whoever writes them
// first.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/cpu/isa.h"
#include "kernels/device.h"

namespace tessera::kernels {

struct CpuDeviceOptions {
  std::vector<int> cores = {};  // empty: all that the affinity mask and the control group allow
  int64_t memory_bytes = 0;     // 0: what the control group and the machine allow
  Isa isa = Isa::kReference;    // kernel path: see ParseIsa
  bool cores_shared = false;    // others use these cores too: see thread_pool.h
};

// FailedPrecondition if the processor lacks `isa`, InvalidArgument for cores that cannot be used.
absl::StatusOr<std::unique_ptr<Device>> CreateCpuDevice(const CpuDeviceOptions& options);

}  // namespace tessera::kernels
