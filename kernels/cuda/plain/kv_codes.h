// Rows of keys and values in 8 bits (kernels/kv_rows.h), written by a warp and read element by
// element: the same bytes as on the host. For .cu files.
#pragma once

#include <type_traits>

#include "kernels/cuda/codes.h"
#include "kernels/cuda/plain/float_types.h"
#include "kernels/cuda/platform.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {

// Whether a cache of C has codes and scales: int8_t and Float8.
template <typename C>
inline constexpr bool kHasScales = std::is_same_v<C, int8_t> || std::is_same_v<C, Float8>;

// launch(C{}) with the type of a cache; InvalidValue for what is none.
template <typename LaunchAs>
cudaError_t WithCacheType(DType dtype, LaunchAs launch) {
  switch (dtype) {
    case DType::kI8: return launch(int8_t{});
    case DType::kF8: return launch(Float8{});
    default: return WithFloatType(dtype, launch);
  }
}

__device__ __forceinline__ constexpr int64_t KvScaleOffset(int64_t head_dim) {
  return (head_dim + 3) / 4 * 4;
}
// Elements of C in a row.
template <typename C>
__device__ __forceinline__ constexpr int64_t KvRowElements(int64_t head_dim) {
  return kHasScales<C> ? KvScaleOffset(head_dim) + 4 : head_dim;
}

// A key or value of one head.
template <typename C>
struct CachedRow {
  const C* at;
  float scale;

  // Row `slot` of a head.
  __device__ __forceinline__ static CachedRow Of(const C* head, int64_t slot, int64_t head_dim) {
    const C* at = head + slot * KvRowElements<C>(head_dim);
    if constexpr (kHasScales<C>) {
      return {at, *reinterpret_cast<const float*>(at + KvScaleOffset(head_dim))};
    } else {
      return {at, 1.0f};
    }
  }
  __device__ __forceinline__ float operator[](int64_t d) const {
    if constexpr (kHasScales<C>) {
      return CodeValue(at[d]) * scale;
    } else {
      return AsFloat(at[d]);
    }
  }
};

__device__ __forceinline__ uint32_t LargestOfWarp(uint32_t value) {
  for (int mask = kWarpThreads / 2; mask > 0; mask /= 2) {
    value = max(value, __shfl_xor_sync(kAllLanes, value, mask));
  }
  return value;
}

// The code of x, which was multiplied with the inverse of the scale. Nothing is added to a product
// here, so that no compiler makes one operation of two.
template <typename C>
__device__ __forceinline__ uint8_t KvCode(float x) {
  if constexpr (std::is_same_v<C, int8_t>) {
    return static_cast<uint8_t>(static_cast<int8_t>(lrintf(x)));
  } else {
    const uint32_t bits = __float_as_uint(x), sign = bits >> 24 & 0x80u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude < 0x3c800000u) {  // below 2^-6: in steps of 2^-9
      const auto steps = static_cast<uint32_t>(lrintf(__uint_as_float(magnitude) * 512.0f));
      return static_cast<uint8_t>(sign | steps);
    }
    const uint32_t code = ((magnitude + 0x7ffffu + (magnitude >> 20 & 1u)) >> 20) - (120u << 3);
    return static_cast<uint8_t>(sign | min(code, 0x7eu));
  }
}

// Writes the row of `head_dim` elements of T; all lanes of a warp call together. C has scales.
template <typename C, typename T>
__device__ __forceinline__ void WriteKvRow(const T* in, int64_t head_dim, C* row) {
  const auto lane = static_cast<int64_t>(threadIdx.x % kWarpThreads);
  uint32_t bits = 0;
  for (int64_t d = lane; d < head_dim; d += kWarpThreads) {
    bits = max(bits, __float_as_uint(AsFloat(in[d])) & 0x7fffffffu);
  }
  bits = LargestOfWarp(bits);
  const float largest = __uint_as_float(bits);
  const float max_code = std::is_same_v<C, int8_t> ? 127.0f : 448.0f;
  float inverse = max_code / largest, scale = largest / max_code;
  const bool is_number = bits < 0x7f800000u, none = !is_number || largest < 0x1p-100f;
  if (none) {
    inverse = 0.0f;
    scale = is_number ? 0.0f : __uint_as_float(0x7fc00000u);
  }
  auto* const codes = reinterpret_cast<uint8_t*>(row);
  const int64_t end = KvScaleOffset(head_dim);
  for (int64_t d = lane; d < end; d += kWarpThreads) {
    const float x = d < head_dim && !none ? AsFloat(in[d]) * inverse : 0.0f;
    codes[d] = KvCode<C>(x);
  }
  if (lane == 0) *reinterpret_cast<float*>(codes + end) = scale;
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
