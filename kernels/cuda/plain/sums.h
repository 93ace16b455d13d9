// Sums and largest values over the lanes of a warp and over the warps of a block, in a fixed order.
// For .cu files.
#pragma once

#include "kernels/cuda/platform.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {

// Every lane has the sum, made in the same order.
template <typename T>
__device__ __forceinline__ T SumOfWarp(T value) {
  for (int mask = kWarpThreads / 2; mask > 0; mask /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, mask);
  }
  return value;
}

// Over threads of the same threadIdx.y: those of one warp, or, where blockDim.x is more, those of
// the whole block. `sums` is shared, an element per warp. All threads of the block must call.
template <typename T>
__device__ __forceinline__ T SumOfRow(T value, T* sums) {
  value = SumOfWarp(value);
  if (blockDim.x <= kWarpThreads) return value;
  const int warps = static_cast<int>(blockDim.x) / kWarpThreads;
  if (threadIdx.x % kWarpThreads == 0) sums[threadIdx.x / kWarpThreads] = value;
  __syncthreads();
  T sum = 0;
  for (int warp = 0; warp < warps; ++warp) sum += sums[warp];
  __syncthreads();  // before `sums` is used again
  return sum;
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
