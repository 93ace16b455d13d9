#include "kernels/cuda/emulation/host_memory.h"

#include <limits>
#include <map>
#include <mutex>

namespace tessera::kernels::cuda::emulated {
namespace {

constexpr uintptr_t kPageBytes = 4096;

struct Registered {
  std::mutex mutex;
  std::map<void*, int64_t> sizes;
  int64_t bytes = 0;
  int64_t limit = std::numeric_limits<int64_t>::max();
};

Registered& All() {
  static auto& registered = *new Registered;
  return registered;
}

}  // namespace

cudaError_t cudaHostRegister(void* data, std::size_t size_bytes, unsigned) {
  const auto bytes = static_cast<int64_t>(size_bytes);
  const std::lock_guard<std::mutex> lock(All().mutex);
  const bool whole = reinterpret_cast<uintptr_t>(data) % kPageBytes == 0 && bytes > 0;
  if (!whole || All().sizes.contains(data)) return cudaErrorInvalidValue;
  if (All().bytes + bytes > All().limit) return cudaErrorMemoryAllocation;
  All().sizes[data] = bytes;
  All().bytes += bytes;
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* data) {
  const std::lock_guard<std::mutex> lock(All().mutex);
  const auto found = All().sizes.find(data);
  if (found == All().sizes.end()) return cudaErrorInvalidValue;
  All().bytes -= found->second;
  All().sizes.erase(found);
  return cudaSuccess;
}

cudaError_t cudaHostGetDevicePointer(void** on_device, void* data, unsigned) {
  const std::lock_guard<std::mutex> lock(All().mutex);
  if (!All().sizes.contains(data)) return cudaErrorInvalidValue;
  *on_device = data;
  return cudaSuccess;
}

int64_t RegisteredBytes() {
  const std::lock_guard<std::mutex> lock(All().mutex);
  return All().bytes;
}

void LimitRegistered(int64_t bytes) {
  const std::lock_guard<std::mutex> lock(All().mutex);
  All().limit = bytes;
}

}  // namespace tessera::kernels::cuda::emulated
