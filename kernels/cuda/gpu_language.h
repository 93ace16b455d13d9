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

// The value, or float16's largest number where it is beyond that. NaN stays NaN.
__device__ __forceinline__ float WithinFloat16(float value) {
  constexpr float kLargest = 65504.0f;
  return value > kLargest ? kLargest : value < -kLargest ? -kLargest : value;
}

// The value rounded to nearest even; beyond float16 its largest number. NaN stays NaN.
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
  return {__half_as_ushort(__float2half_rn(WithinFloat16(value)))};
}

inline dim3 ToDim3(const LaunchShape::Extent& extent) {
  return dim3(static_cast<unsigned>(extent.x), static_cast<unsigned>(extent.y),
              static_cast<unsigned>(extent.z));
}

// Whether the thread's GPU lets a launch begin while the one before it runs. Code that it runs then
// waits: it is made from PTX of 9.0 or later (third_party/cuda/defs.bzl adds no older).
inline bool HasEarlyLaunches() {
  int device = 0, major = 0;
  return cudaGetDevice(&device) == cudaSuccess &&
         cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
         major >= 9;
}

template <typename Params>
cudaError_t LaunchWith(void (*kernel)(Params), const LaunchShape& shape, cudaStream_t stream,
                       const Params& params, bool early) {
  if (!shape.IsLegal()) return cudaErrorInvalidConfiguration;
  const auto shared_bytes = static_cast<size_t>(shape.shared_bytes);
  if (shape.shared_bytes > kPlainSharedBytes) {
    const cudaError_t error = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
    if (error != cudaSuccess) return error;
  }
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = ToDim3(shape.blocks);
  config.blockDim = ToDim3(shape.threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = early ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, params);
}

// A kernel takes one trivially copyable struct. Asynchronous on the stream.
template <typename Params>
cudaError_t Launch(void (*kernel)(Params), const LaunchShape& shape, cudaStream_t stream,
                   const Params& params) {
  return LaunchWith(kernel, shape, stream, params, false);
}

template <typename Params>
cudaError_t LaunchEarly(void (*kernel)(Params), const LaunchShape& shape, cudaStream_t stream,
                        const Params& params) {
  return LaunchWith(kernel, shape, stream, params, HasEarlyLaunches());
}

__device__ __forceinline__ void WaitForEarlierLaunches() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ __forceinline__ void LetNextLaunchBegin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

}  // namespace tessera::kernels::cuda::gpu
