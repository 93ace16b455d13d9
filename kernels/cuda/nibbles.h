// int4 weights in kernels. A weight is scale * (code - zero); how rows of them stand in memory says
// device/weight_rows.h, and what a group's word holds kernels/int4_rows.h. For .cu files.
#pragma once

#include <cstdint>

#include "kernels/cuda/platform.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {

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

// Weight `i` of a row whose words are behind `words_offset_bytes`.
__device__ __forceinline__ float NibbleWeight(const char* row, int64_t i,
                                              int64_t words_offset_bytes, int64_t group_size) {
  const auto* words = reinterpret_cast<const uint32_t*>(row + words_offset_bytes);
  const uint32_t word = words[i / group_size];
  const uint32_t both = reinterpret_cast<const uint8_t*>(row)[i / 2];
  return NibbleAsFloat(both >> (i % 2 * 4), NibbleBase(word)) * NibbleScale(word);
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
