#include "kernels/cuda/emulation/runtime.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "kernels/cuda/emulation/block.h"
#include "kernels/cuda/emulation/device_memory.h"
#include "kernels/cuda/emulation/device_variables.h"
#include "kernels/cuda/emulation/fibers.h"
#include "kernels/cuda/emulation/shared_memory.h"

namespace tessera::kernels::cuda::emulated {
namespace {

dim3 ToDim3(const LaunchShape::Extent& extent) {
  return {static_cast<unsigned>(extent.x), static_cast<unsigned>(extent.y),
          static_cast<unsigned>(extent.z)};
}

// The i-th block in the schedule's order is order[i] of all; empty stands for ascending.
std::vector<int64_t> BlockOrder(int64_t count, Order order, ScheduleRandom& random) {
  std::vector<int64_t> blocks;
  if (order == Order::kAscending) return blocks;
  blocks.resize(count);
  for (int64_t i = 0; i < count; ++i) blocks[i] = count - 1 - i;
  if (order == Order::kDescending) return blocks;
  for (int64_t i = count - 1; i > 0; --i) {
    std::swap(blocks[i], blocks[random.Below(static_cast<uint32_t>(i) + 1)]);
  }
  return blocks;
}

struct GlobalMemory {
  std::mutex mutex;
  DeviceMemory memory;
};

GlobalMemory& Global() {
  static auto& memory = *new GlobalMemory;
  return memory;
}

// What the blocks that one host thread runs use in turn.
struct Multiprocessor {
  Fibers fibers;
  SharedMemory shared;
};

Multiprocessor& OfThisThread() {
  thread_local Multiprocessor multiprocessor;
  return multiprocessor;
}

}  // namespace

cudaError_t EmulatedStream::Launch(const std::string& name, const LaunchShape& shape,
                                   const std::function<void()>& thread) {
  if (!failure_.ok()) return cudaErrorLaunchFailure;
  if (!shape.IsLegal()) return cudaErrorInvalidConfiguration;
  ScheduleRandom random(schedule_.seed);
  const int64_t count = shape.blocks.count();
  const std::vector<int64_t> order = BlockOrder(count, schedule_.blocks, random);
  Multiprocessor& on = OfThisThread();
  Block block(name, shape, schedule_, on.fibers, on.shared, random);
  blockDim = ToDim3(shape.threads);
  gridDim = ToDim3(shape.blocks);
  for (int64_t i = 0; i < count && failure_.ok(); ++i) {
    const int64_t at = order.empty() ? i : order[i];
    const auto [x, y, z] = shape.blocks;
    failure_ = block.Run({at % x, at / x % y, at / (x * y)}, thread);
  }
  return failure_.ok() ? cudaSuccess : cudaErrorLaunchFailure;
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    case cudaErrorLaunchFailure: return "unspecified launch failure";
  }
  return "unrecognized error code";
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  *stream = new EmulatedStream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return stream->failure().ok() ? cudaSuccess : cudaErrorLaunchFailure;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** data, std::size_t size_bytes) {
  const std::lock_guard<std::mutex> lock(Global().mutex);
  *data = Global().memory.Allocate(static_cast<int64_t>(size_bytes));
  return cudaSuccess;
}

cudaError_t cudaFree(void* data) {
  const std::lock_guard<std::mutex> lock(Global().mutex);
  if (data == nullptr || Global().memory.Free(static_cast<std::byte*>(data))) return cudaSuccess;
  return cudaErrorInvalidValue;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t size_bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  if (!stream->failure().ok()) return cudaErrorLaunchFailure;
  if (size_bytes > 0) std::memcpy(to, from, size_bytes);
  return cudaSuccess;
}

absl::Status CheckMemoryGuards() {
  const std::lock_guard<std::mutex> lock(Global().mutex);
  return Global().memory.CheckGuards();
}

}  // namespace tessera::kernels::cuda::emulated
