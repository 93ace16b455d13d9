// Whether a CUDA device still works, shared by the device and its streams; and errors of the
// runtime as statuses. Thread-safe.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "kernels/cuda/runtime.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {

class CudaHealth {
 public:
  // `device` stands for it in errors: "cuda:0".
  CudaHealth(std::string device, double max_wait_seconds)
      : device_(std::move(device)), max_wait_seconds_(max_wait_seconds) {}

  const std::string& device() const { return device_; }
  // As in CudaDeviceOptions.
  double max_wait_seconds() const { return max_wait_seconds_; }
  // Ok, or why the device is lost: the first sticky error, or wait that was too long.
  absl::Status lost() const;
  // Loses the device, because the GPU did not finish `what` in time. Returns lost().
  absl::Status LoseAfterWait(std::string_view what);
  // Loses the device for a reason of its caller's. Returns lost().
  absl::Status Lose(const std::string& reason);
  // The status of what the runtime returned of `what` ("Rope"); a sticky error loses the device.
  // `stream`, if any, is asked for details: the emulator knows them.
  absl::Status Check(cudaError_t error, std::string_view what, cudaStream_t stream = nullptr);

 private:
  const std::string device_;
  const double max_wait_seconds_;
  std::atomic<bool> is_lost_{false};  // set behind lost_
  mutable std::mutex mutex_;
  absl::Status lost_;
};

// Called from time to time in a wait that is not short, with the seconds that it took so far.
using WhileWaiting = std::function<void(double seconds)>;

// Waits until the GPU has done what the stream was given, for as long as the device's health
// allows; then, or where an error is sticky, the device is lost.
absl::Status WaitIdle(cudaStream_t stream, CudaHealth& health, const char* what,
                      const WhileWaiting& meanwhile = nullptr);
// The same until the event, which was recorded on the stream, has happened.
absl::Status WaitEvent(cudaEvent_t event, cudaStream_t stream, CudaHealth& health, const char* what,
                       const WhileWaiting& meanwhile = nullptr);

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
