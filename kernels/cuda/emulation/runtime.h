// The part of the CUDA runtime that our host code uses, answered by the emulator.
//
// Kernels and copies run to their end inside the call that enqueues them. As on a GPU, a kernel's
// fault is sticky: once one failed, everything on the stream returns that error. Beyond the
// runtime's own interface, a stream takes the schedule of its next launches and says why a kernel
// failed.
//
// Thread rule: a stream from one host thread at a time; several streams may run at once. Memory is
// the process's, and may be allocated and freed from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "kernels/cuda/emulation/schedule.h"
#include "kernels/cuda/launch/launch_shape.h"

namespace tessera::kernels::cuda::emulated {

// The runtime's names and numbers.
enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorLaunchFailure = 719,
};

class EmulatedStream {
 public:
  void set_schedule(const Schedule& schedule) { schedule_ = schedule; }
  // Of the first kernel that failed: Internal, naming where it was launched, block, thread and
  // wait.
  const absl::Status& failure() const { return failure_; }

  // Runs thread() once for each thread of the shape, block after block. The name stands for the
  // kernel in errors. InvalidConfiguration where CUDA would refuse the shape, and nothing runs.
  cudaError_t Launch(const std::string& name, const LaunchShape& shape,
                     const std::function<void()>& thread);

 private:
  Schedule schedule_;
  absl::Status failure_;
};

using cudaStream_t = EmulatedStream*;

enum cudaMemcpyKind {
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice
};

const char* cudaGetErrorString(cudaError_t error);
// One.
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaStreamCreate(cudaStream_t* stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
// Poisoned and guarded, see device_memory.h.
cudaError_t cudaMalloc(void** data, std::size_t size_bytes);
cudaError_t cudaFree(void* data);
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t size_bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);

// Of all memory from cudaMalloc, see DeviceMemory::CheckGuards.
absl::Status CheckMemoryGuards();

}  // namespace tessera::kernels::cuda::emulated
