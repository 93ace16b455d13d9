// Sixteen bytes of weights or inputs as floats, and codes as pairs of 16-bit numbers. For .cu
// files.
#pragma once

#include <type_traits>

#include "kernels/cuda/codes.h"
#include "kernels/cuda/platform.h"
#include "kernels/cuda/warp_ops.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {

// The int8 code at byte `index` of four that have 128 added, exactly.
__device__ __forceinline__ float BiasedAsFloat(uint32_t biased, int index) {
  // 2^23 + 0..255 has the byte as its lowest bits.
  const uint32_t bits = __byte_perm(biased, 0x4b000000u, 0x7650u + static_cast<unsigned>(index));
  return __uint_as_float(bits) - 8388736.0f;
}

// 2^10 of f16, 2^7 of bf16: a number of fewer bits or-ed into it is added to it.
template <typename T>
constexpr uint32_t kPairBase = std::is_same_v<T, BFloat16> ? 0x4300u : 0x6400u;

// What CodesAsPairs takes: the upper bytes of the numbers that it adds. From a register, since an
// instruction has one constant, and chosen bytes are one.
template <typename T>
__device__ __forceinline__ uint32_t CodePairBase() {
  return static_cast<uint32_t>(ComputedHere(std::is_same_v<T, BFloat16> ? 0xc343 : 0x64));
}

// Four int8 codes as two registers of two T, the lowest byte first.
template <typename T>
__device__ __forceinline__ void CodesAsPairs(uint32_t codes, uint32_t base, uint32_t* pairs) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    // 2^7 holds 7 bits more: without the sign. With it -2^7 becomes -2^8.
    const uint32_t low = codes & 0x7f7f7f7fu, sign = codes & 0x80808080u;
    pairs[0] = AddPairs<T>(__byte_perm(low, base, 0x4140), __byte_perm(sign, base, 0x5150));
    pairs[1] = AddPairs<T>(__byte_perm(low, base, 0x4342), __byte_perm(sign, base, 0x5352));
  } else {
    const uint32_t biased = codes ^ 0x80808080u;  // plus 128
    constexpr uint32_t kOff = 0xe480e480u;        // -2^10 - 128
    pairs[0] = AddPairs<T>(__byte_perm(biased, base, 0x4140), kOff);
    pairs[1] = AddPairs<T>(__byte_perm(biased, base, 0x4342), kOff);
  }
}

// Four codes of Float8 as two registers of two T, the lowest byte first, over kCodeUnit.
template <typename T>
__device__ __forceinline__ void Float8sAsPairs(uint32_t codes, uint32_t* pairs) {
  const uint32_t both[2] = {__byte_perm(codes, 0, 0x4140), __byte_perm(codes, 0, 0x4342)};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t sign = (both[i] & 0x00800080u) << 8, rest = both[i] & 0x007f007fu;
    if constexpr (std::is_same_v<T, BFloat16>) {
      pairs[i] = MultiplyPairs<T>(sign | rest << 4, 0x77807780u);  // by 2^112, exactly
    } else {
      pairs[i] = sign | rest << 7;
    }
  }
}

// Eight codes of E2m1 as four registers of two T, in the order of the weights, over kCodeUnit.
template <typename T>
__device__ __forceinline__ void E2m1sAsPairs(uint32_t codes, uint32_t* pairs) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t both = codes >> 4 * i, sign = (both & 0x00080008u) << 12;
    if constexpr (std::is_same_v<T, BFloat16>) {
      pairs[i] = MultiplyPairs<T>(sign | (both & 0x00070007u) << 6, 0x77807780u);  // by 2^112
    } else {
      pairs[i] = sign | (both & 0x00070007u) << 9;
    }
  }
}

// What NibblesAsPairs takes off a group's codes, from the group's word.
template <typename T>
__device__ __forceinline__ uint32_t NibblePairBase(uint32_t word) {
  return (0x8000u | kPairBase<T> | (word & kNibbleZeroBits)) * 0x10001u;
}

// Eight int4 codes less their zero as four registers of two T, in the order of the weights.
template <typename T>
__device__ __forceinline__ void NibblesAsPairs(uint32_t codes, uint32_t base, uint32_t* pairs) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    pairs[i] = AddPairs<T>(MaskAndOr(codes >> 4 * i, 0x000f000fu, kPairBase<T> * 0x10001u), base);
  }
}

// The 16 / sizeof(T) elements of `four` as floats.
template <typename T>
__device__ __forceinline__ void Unpack(const uint4& four, float* out) {
  const uint32_t words[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (sizeof(T) == 4) {
      out[i] = __uint_as_float(words[i]);
    } else {
      out[2 * i] = AsFloat(T{static_cast<uint16_t>(words[i] & 0xffffu)});
      out[2 * i + 1] = AsFloat(T{static_cast<uint16_t>(words[i] >> 16)});
    }
  }
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
