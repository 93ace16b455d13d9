// What platform.h adds to CUDA C++ where nvcc compiles for a GPU.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "kernels/cuda/launch/launch_shape.h"
#include "kernels/half_floats.h"

#define TESSERA_SHARED(type, name, count) __shared__ type name[count]
#define TESSERA_DYNAMIC_SHARED(name) extern __shared__ __align__(1024) unsigned char name[]

namespace tessera::kernels::cuda::gpu {

inline constexpr unsigned kAllLanes = 0xffffffffu;

__device__ __forceinline__ float AsFloat(float value) { return value; }
__device__ __forceinline__ float AsFloat(BFloat16 value) {
  return __uint_as_float(static_cast<unsigned>(value.bits) << 16);
}
__device__ __forceinline__ float AsFloat(Float16 value) {
  return __half2float(__ushort_as_half(value.bits));
}

// The value rounded to nearest even.
template <typename T>
__device__ __forceinline__ T RoundTo(float value);
template <>
__device__ __forceinline__ float RoundTo<float>(float value) {
  return value;
}
template <>
__device__ __forceinline__ BFloat16 RoundTo<BFloat16>(float value) {
  const unsigned bits = __float_as_uint(value);
  const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  const unsigned rounded = nan ? bits | 0x400000u : bits + 0x7fffu + ((bits >> 16) & 1u);
  return {static_cast<uint16_t>(rounded >> 16)};
}
template <>
__device__ __forceinline__ Float16 RoundTo<Float16>(float value) {
  return {__half_as_ushort(__float2half_rn(value))};
}

inline dim3 ToDim3(const LaunchShape::Extent& extent) {
  return dim3(static_cast<unsigned>(extent.x), static_cast<unsigned>(extent.y),
              static_cast<unsigned>(extent.z));
}

// A kernel takes one trivially copyable struct. Asynchronous on the stream.
template <typename Params>
cudaError_t Launch(void (*kernel)(Params), const LaunchShape& shape, cudaStream_t stream,
                   const Params& params) {
  if (!shape.IsLegal()) return cudaErrorInvalidConfiguration;
  const auto shared_bytes = static_cast<size_t>(shape.shared_bytes);
  if (shape.shared_bytes > kPlainSharedBytes) {
    const cudaError_t error = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
    if (error != cudaSuccess) return error;
  }
  kernel<<<ToDim3(shape.blocks), ToDim3(shape.threads), shared_bytes, stream>>>(params);
  return cudaGetLastError();
}

}  // namespace tessera::kernels::cuda::gpu
