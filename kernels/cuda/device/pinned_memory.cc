#include "kernels/cuda/device/pinned_memory.h"

#include <algorithm>

#include "third_party/absl/str_cat.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {

absl::StatusOr<HostBuffer> PinMemory(int64_t size_bytes, CudaHealth& health, const char* what) {
  void* memory = nullptr;
  // CUDA gives no address for no bytes.
  const cudaError_t error =
      cudaMallocHost(&memory, static_cast<size_t>(std::max<int64_t>(size_bytes, 1)));
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // or the next launch of this thread would return it
    return absl::ResourceExhaustedError(StrCat(
        health.device(), ": ", what, ": the system pins no ", size_bytes,
        " bytes of host memory; raise the limit of locked memory (ulimit -l), or free some"));
  }
  if (absl::Status status = health.Check(error, what); !status.ok()) return status;
  return HostBuffer(static_cast<std::byte*>(memory), size_bytes,
                    [](std::byte* data) { cudaFreeHost(data); });
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
