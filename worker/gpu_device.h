// A GPU of this machine as a worker's device, and the list of GPUs. In a build without a CUDA
// toolkit there is a list too, but no GPU can be used.
//
// Thread rule: from the main thread, before others start: CUDA_VISIBLE_DEVICES may be set for this
// process. Units: bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "proto/coordinator.pb.h"

namespace tessera::worker {

v1::DeviceList ListDevices();

struct OpenedGpu {
  std::unique_ptr<kernels::Device> device;
  v1::DeviceInfo info;          // see DescribeGpu
  std::vector<int> near_cores;  // of its NUMA node; empty: not known
  std::string kernel_path;      // of dense products: "cublaslt" or, by our GEMM, "mma"
};

// `device`: "cuda:INDEX" or "cuda:UUID". It may use `memory_bytes`; 0: `utilization` of its memory,
// less what others use. Errors name the device and what to do: see FindGpu and TakeGpu of
// kernels/cuda/driver.
absl::StatusOr<OpenedGpu> OpenGpu(const std::string& device, int64_t memory_bytes,
                                  double utilization);

}  // namespace tessera::worker
