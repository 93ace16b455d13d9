// A GPU, or the emulated one, as a device of kernels/device.h: the same code over CUDA's runtime
// and over the emulator's.
//
// Thread rule and ownership as in kernels/device.h. An error that CUDA calls sticky (an illegal
// address, a kernel that trapped), and work that does not end, lose the device: from then on its
// streams and allocations return the reason, and only a new process has the GPU again. Every wait
// is bounded, but for that of a stream's end for its host work.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/cuda/driver/blas_table.h"
#include "kernels/cuda/driver/nccl_table.h"
#include "kernels/device.h"
#include "kernels/tuning_table.h"

namespace tessera::kernels::cuda {

struct CudaDeviceOptions {
  int index = 0;             // among those that the runtime shows; the emulator has one
  int64_t memory_bytes = 0;  // 0: all that the device has
  // The longest that the GPU may take for what a stream was given; then the device is lost, since
  // nothing ends a kernel but the end of its process.
  double max_wait_seconds = 60;
  // cuBLASLt for dense products, copied; null: they are computed by kernels of our own.
  const BlasTable* blas = nullptr;
  // Bytes of 16-bit weights that codes become at a time, for products of many rows by cuBLASLt.
  int64_t widened_bytes = int64_t{32} << 20;
  // NCCL for groups with other GPUs, copied, and its version; null: none are made.
  const NcclTable* nccl = nullptr;
  std::string nccl_version = {};
  // Whether small sums of ranks on one machine are made in memory that their devices map.
  bool maps_sums = true;
  // Names the GPU among all processes; empty: this process alone has it.
  std::string uuid = {};
  // Which of several equal ways of a product is fastest is measured when weights are loaded, and
  // kept here; null: it is not measured.
  std::shared_ptr<TuningTable> tuning = nullptr;
};

// NotFound where there is no such device, InvalidArgument for more memory than it has.
namespace emulated {
absl::StatusOr<std::unique_ptr<Device>> CreateCudaDevice(const CudaDeviceOptions& options);
}
namespace gpu {
absl::StatusOr<std::unique_ptr<Device>> CreateCudaDevice(const CudaDeviceOptions& options);
}

}  // namespace tessera::kernels::cuda
