// Conversions with the bits that kvcache/kv_row_floats.h has, NaNs included: hardware turns those
// of float16 into others. For .cu files.
#pragma once

#include "kernels/cuda/platform.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {

template <typename T>
__device__ __forceinline__ float ExactFloat(T value) {
  return AsFloat(value);
}
template <>
__device__ __forceinline__ float ExactFloat<Float16>(Float16 value) {
  const uint32_t bits = value.bits;
  if ((bits & 0x7c00u) != 0x7c00u) return AsFloat(value);
  return __uint_as_float((bits & 0x8000u) << 16 | 0x7f800000u | (bits & 0x3ffu) << 13);
}

template <typename T>
__device__ __forceinline__ T ExactRound(float value) {
  return RoundTo<T>(value);
}
template <>
__device__ __forceinline__ Float16 ExactRound<Float16>(float value) {
  const uint32_t bits = __float_as_uint(value);
  if ((bits & 0x7fffffffu) <= 0x7f800000u) return RoundTo<Float16>(value);
  return {static_cast<uint16_t>((bits >> 16 & 0x8000u) | 0x7e00u)};
}

__device__ __forceinline__ bool IsFinite(float value) {
  return (__float_as_uint(value) & 0x7f800000u) != 0x7f800000u;
}

// The NaN of groups that hold an element that is not finite.
__device__ __forceinline__ float QuietNan() { return __uint_as_float(0x7fc00000u); }

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
