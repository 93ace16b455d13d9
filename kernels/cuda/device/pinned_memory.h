// Host memory that a GPU copies from and to by itself.
//
// Thread-safe. A HostBuffer may outlive its device.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/cuda/device/cuda_health.h"
#include "kernels/device.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {

// Pins memory for the device that the calling thread has chosen (cudaSetDevice). ResourceExhausted,
// naming `what` and the size, where the system pins no more; errors of CUDA as CudaHealth has them.
absl::StatusOr<HostBuffer> PinMemory(int64_t size_bytes, CudaHealth& health, const char* what);

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
