// Sixteen bytes of weights or inputs as floats, and codes as pairs of 16-bit numbers. For .cu
// files.
#pragma once

#include <type_traits>

#include "kernels/cuda/nibbles.h"
#include "kernels/cuda/platform.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {

// An int8 code, exactly. `byte` is its two's complement in the lowest 8 bits of any number.
__device__ __forceinline__ float CodeAsFloat(uint32_t byte) {
  // 2^23 + 0..255 has the byte as its lowest bits.
  return __uint_as_float(0x4b000000u | ((byte & 0xffu) ^ 0x80u)) - 8388736.0f;
}

// Two numbers of at most 8 bits as a register of two T: exact in either type.
template <typename T>
__device__ __forceinline__ uint32_t AsPair(float low, float high) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return __float_as_uint(low) >> 16 | (__float_as_uint(high) & 0xffff0000u);
  } else {
    return RoundTo<T>(low).bits | static_cast<uint32_t>(RoundTo<T>(high).bits) << 16;
  }
}

// Two int8 codes, the lower byte first.
template <typename T>
__device__ __forceinline__ uint32_t CodesAsPair(uint32_t codes) {
  return AsPair<T>(CodeAsFloat(codes), CodeAsFloat(codes >> 8));
}

// The two int4 codes of a byte less their zero; `base` of NibbleBase.
template <typename T>
__device__ __forceinline__ uint32_t NibblesAsPair(uint32_t codes, float base) {
  return AsPair<T>(NibbleAsFloat(codes, base), NibbleAsFloat(codes >> 4, base));
}

// The 16 / sizeof(T) elements of `four` as floats.
template <typename T>
__device__ __forceinline__ void Unpack(const uint4& four, float* out) {
  const uint32_t words[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (sizeof(T) == 4) {
      out[i] = __uint_as_float(words[i]);
    } else if constexpr (sizeof(T) == 2) {
      out[2 * i] = AsFloat(T{static_cast<uint16_t>(words[i] & 0xffffu)});
      out[2 * i + 1] = AsFloat(T{static_cast<uint16_t>(words[i] >> 16)});
    } else {
#pragma unroll
      for (int byte = 0; byte < 4; ++byte) out[4 * i + byte] = CodeAsFloat(words[i] >> (8 * byte));
    }
  }
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
