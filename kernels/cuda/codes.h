// int8 and int4 weights in kernels. A weight is scale * code, or scale * (code - zero); how rows of
// them stand in memory says device/weight_rows.h, and what a group's word of int4 holds
// kernels/int4_rows.h. For .cu files.
#pragma once

#include <cstdint>

#include "kernels/cuda/platform.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {

// Where the code of input `i` stands in a row of int8: of 32 inputs 8c + 2t + e, the places of t
// follow each other, and within them those of c.
__device__ __forceinline__ constexpr int64_t CodePlace(int64_t i) {
  return i / 32 * 32 + i % 8 / 2 * 8 + i % 32 / 8 * 2 + i % 2;
}

__device__ __forceinline__ float CodeWeight(const char* row, int64_t i, int64_t scales_offset_bytes,
                                            int64_t group_size) {
  const auto* scales = reinterpret_cast<const float*>(row + scales_offset_bytes);
  const int8_t code = reinterpret_cast<const int8_t*>(row)[CodePlace(i)];
  return static_cast<float>(code) * scales[i / group_size];
}

struct Nibbles {};  // the type of such weights in templates

inline constexpr uint32_t kNibbleZeroBits = 0xf;  // of a word

__device__ __forceinline__ float NibbleScale(uint32_t word) {
  return __uint_as_float(word & ~kNibbleZeroBits);
}

// What NibbleAsFloat takes off: 2^23 and the zero.
__device__ __forceinline__ float NibbleBase(uint32_t word) {
  return 8388608.0f + static_cast<float>(word & kNibbleZeroBits);
}

// Code less zero, exactly. The code is the lowest 4 bits of `bits`: 2^23 + 0..15 has it there too.
__device__ __forceinline__ float NibbleAsFloat(uint32_t bits, float base) {
  return __uint_as_float(0x4b000000u | (bits & 0xfu)) - base;
}

// Weight `i` of a row whose words are behind `words_offset_bytes`. The places of int4 are those of
// int8, but that of each 8, a 32-bit word, the even ones stand in the lower half.
__device__ __forceinline__ float NibbleWeight(const char* row, int64_t i,
                                              int64_t words_offset_bytes, int64_t group_size) {
  const auto* words = reinterpret_cast<const uint32_t*>(row + words_offset_bytes);
  const uint32_t word = words[i / group_size];
  const int64_t place = CodePlace(i);
  const uint32_t codes = reinterpret_cast<const uint32_t*>(row)[place / 8];
  const auto shift = static_cast<int>(4 * (place % 8 / 2 + place % 2 * 4));
  return NibbleAsFloat(codes >> shift, NibbleBase(word)) * NibbleScale(word);
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
