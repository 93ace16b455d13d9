// Whether a CUDA device still works, shared by the device and its streams; and errors of the
// runtime as statuses. Thread-safe.
#pragma once

#include <mutex>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "kernels/cuda/runtime.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {

class CudaHealth {
 public:
  // `device` stands for it in errors: "cuda:0".
  explicit CudaHealth(std::string device) : device_(std::move(device)) {}

  const std::string& device() const { return device_; }
  // Ok, or why the device is lost: the first sticky error.
  absl::Status lost() const;
  // The status of what the runtime returned of `what` ("Rope"); a sticky error loses the device.
  // `stream`, if any, is asked for details: the emulator knows them.
  absl::Status Check(cudaError_t error, std::string_view what, cudaStream_t stream = nullptr);

 private:
  const std::string device_;
  mutable std::mutex mutex_;
  absl::Status lost_;
};

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
