// The emulated CUDA device as a worker's: it runs the GPU's kernels on one core, far slower than
// the CPU's own, for tests. Thread rule: see DeviceType.
#pragma once

#include <string_view>

#include "worker/devices/device_type.h"

namespace tessera::worker {

extern const DeviceType kEmulatedCudaDevices;

// The compute capability that "cuda-emulated" or "cuda-emulated-75" has, 90 for 9.0; 0: it is none.
int EmulatedCapability(std::string_view device);

}  // namespace tessera::worker
