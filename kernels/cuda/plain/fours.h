// Four elements of a row at a time, as floats. For .cu files.
#pragma once

#include "kernels/cuda/platform.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {

inline constexpr int kFour = 4;

// Whether fours of elements of `bytes` can be read and written at once in rows of `width` that are
// `stride` elements apart.
inline bool HasFours(const void* rows, int64_t stride, int64_t width, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(rows) % (kFour * bytes) == 0 && stride % kFour == 0 &&
         width % kFour == 0;
}

// Those of `at`, which lies on a multiple of their size.
template <typename T>
__device__ __forceinline__ void LoadFour(const T* at, float (&out)[kFour]) {
  if constexpr (sizeof(T) == sizeof(float)) {
    const float4 four = *reinterpret_cast<const float4*>(at);
    out[0] = four.x;
    out[1] = four.y;
    out[2] = four.z;
    out[3] = four.w;
  } else {
    const uint2 pairs = *reinterpret_cast<const uint2*>(at);
    out[0] = AsFloat(T{static_cast<uint16_t>(pairs.x)});
    out[1] = AsFloat(T{static_cast<uint16_t>(pairs.x >> 16)});
    out[2] = AsFloat(T{static_cast<uint16_t>(pairs.y)});
    out[3] = AsFloat(T{static_cast<uint16_t>(pairs.y >> 16)});
  }
}

template <typename T>
__device__ __forceinline__ void StoreFour(T* at, const T (&values)[kFour]) {
  if constexpr (sizeof(T) == sizeof(float)) {
    *reinterpret_cast<float4*>(at) = {values[0], values[1], values[2], values[3]};
  } else {
    *reinterpret_cast<uint2*>(at) = {values[0].bits | static_cast<uint32_t>(values[1].bits) << 16,
                                     values[2].bits | static_cast<uint32_t>(values[3].bits) << 16};
  }
}

// The same for four elements, or for one alone, wherever it lies.
template <int count, typename T>
__device__ __forceinline__ void LoadElements(const T* at, float (&out)[count]) {
  static_assert(count == 1 || count == kFour);
  if constexpr (count == 1) {
    out[0] = AsFloat(at[0]);
  } else {
    LoadFour(at, out);
  }
}

template <int count, typename T>
__device__ __forceinline__ void StoreElements(T* at, const T (&values)[count]) {
  static_assert(count == 1 || count == kFour);
  if constexpr (count == 1) {
    at[0] = values[0];
  } else {
    StoreFour(at, values);
  }
}

// The first of a thread's elements (or fours) of a row in a launch of SpreadShape, and how far
// apart they are.
__device__ __forceinline__ int64_t FirstOfThread() {
  return static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ int64_t ThreadsOfRow() {
  return static_cast<int64_t>(gridDim.y) * blockDim.x;
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
