#include "kernels/cuda/device/cuda_health.h"

#include <chrono>
#include <thread>

#include "third_party/absl/str_cat.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

using Clock = std::chrono::steady_clock;

// Most waits of a step end sooner, and a sleeper wakes up late.
constexpr std::chrono::milliseconds kSpin{2};
constexpr std::chrono::microseconds kPause{50};

// What fails alone and leaves the device as it was; any other error may be sticky.
bool LeavesDevice(cudaError_t error) {
  return error == cudaErrorInvalidValue || error == cudaErrorMemoryAllocation ||
         error == cudaErrorInvalidConfiguration || error == cudaErrorLaunchOutOfResources ||
         (error >= cudaErrorStreamCaptureUnsupported && error <= cudaErrorStreamCaptureWrongThread);
}

std::string Details([[maybe_unused]] cudaStream_t stream) {
#ifdef TESSERA_CUDA_EMULATED
  if (stream != nullptr && !stream->failure().ok())
    return StrCat(": ", stream->failure().message());
#endif
  return "";
}

// Until query() is no longer NotReady.
template <typename Query>
absl::Status Wait(const Query& query, cudaStream_t stream, CudaHealth& health, const char* what,
                  const WhileWaiting& meanwhile) {
  if (absl::Status lost = health.lost(); !lost.ok()) return lost;
  const Clock::time_point begin = Clock::now();
  while (true) {
    const cudaError_t error = query();
    if (error != cudaErrorNotReady) return health.Check(error, what, stream);
    const std::chrono::duration<double> waited = Clock::now() - begin;
    if (waited.count() > health.max_wait_seconds()) return health.LoseAfterWait(what);
    if (waited <= kSpin) continue;
    if (meanwhile) meanwhile(waited.count());
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace

absl::Status CudaHealth::lost() const {
  if (!is_lost_.load(std::memory_order_acquire)) return absl::OkStatus();
  const std::lock_guard<std::mutex> lock(mutex_);
  return lost_;
}

absl::Status CudaHealth::Lose(const std::string& reason) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (lost_.ok()) {
    lost_ = absl::InternalError(
        StrCat(reason, "; the device is lost to this process, start the worker again"));
  }
  is_lost_.store(true, std::memory_order_release);
  return lost_;
}

absl::Status CudaHealth::LoseAfterWait(std::string_view what) {
  return Lose(
      StrCat(device_, ": ", what, ": the GPU did not finish within ", max_wait_seconds_, " s"));
}

absl::Status CudaHealth::Check(cudaError_t error, std::string_view what, cudaStream_t stream) {
  if (error == cudaSuccess) return absl::OkStatus();
  const std::string reason = StrCat(device_, ": ", what, ": ", cudaGetErrorString(error),
                                    " (CUDA error ", static_cast<int>(error), ")");
  if (LeavesDevice(error)) return absl::InternalError(StrCat(reason, Details(stream)));
  return Lose(StrCat(reason, Details(stream)));
}

absl::Status WaitIdle(cudaStream_t stream, CudaHealth& health, const char* what,
                      const WhileWaiting& meanwhile) {
  return Wait([stream] { return cudaStreamQuery(stream); }, stream, health, what, meanwhile);
}

absl::Status WaitEvent(cudaEvent_t event, cudaStream_t stream, CudaHealth& health, const char* what,
                       const WhileWaiting& meanwhile) {
  return Wait([event] { return cudaEventQuery(event); }, stream, health, what, meanwhile);
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
