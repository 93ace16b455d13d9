// Elements of a row in the order of their value, ties to the lower index, as one number each. For
// .cu files.
#pragma once

#include "kernels/cuda/platform.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {

// Above 0 and in the order of the numbers, which are not NaN; -0 is 0.
__device__ __forceinline__ uint32_t OrderOf(float value) {
  const uint32_t bits = __float_as_uint(value + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// The inverse.
__device__ __forceinline__ float ValueOf(uint32_t order) {
  return __uint_as_float((order & 0x80000000u) != 0 ? order & 0x7fffffffu : ~order);
}

// The order below this one that numbers have: none has that of -0.
__device__ __forceinline__ uint32_t OrderBelow(uint32_t order) {
  return order == 0x80000000u ? order - 2 : order - 1;
}

// Above 0, the higher the better: no two elements of a row have the same. NaN is the worst.
__device__ __forceinline__ uint64_t RankOf(float value, int64_t index) {
  const uint64_t high = value != value ? 0 : OrderOf(value);
  return high << 32 | static_cast<uint32_t>(~static_cast<uint32_t>(index));
}

__device__ __forceinline__ int64_t IndexOf(uint64_t rank) {
  return static_cast<int64_t>(~static_cast<uint32_t>(rank));
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
