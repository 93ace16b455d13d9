// NVIDIA's GPUs as workers' devices. A build without a CUDA toolkit lists them too, but cannot use
// one. Thread rule: see DeviceType; AppendGpus reads sysfs.
#pragma once

#include <string>

#include "kernels/cuda/driver/gpu_list.h"
#include "worker/devices/device_type.h"

namespace tessera::worker {

// The kernel path is that of dense products: "cublaslt" or, by our GEMM, "mma".
extern const DeviceType kCudaDevices;

// `build_problem`: why this build cannot use GPUs at all; empty: it can. `root` is "/" but in
// tests.
void AppendGpus(const kernels::cuda::GpuList& gpus, const std::string& build_problem,
                v1::DeviceList* list, const std::string& root = "/");

}  // namespace tessera::worker
