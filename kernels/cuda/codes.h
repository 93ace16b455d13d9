// float8, int8, e2m1 and int4 weights in kernels. A weight is scale * code, scale * (code - zero),
// or scale * code + offset; how rows of them stand in memory says device/weight_rows.h, and what a
// group's word, pair and steps of int4 hold kernels/int4_rows.h. For .cu files.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/platform.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {

// Where the code of input `i` stands in a row of int8: of 32 inputs 8c + 2t + e, the places of t
// follow each other, and within them those of c.
__device__ __forceinline__ constexpr int64_t CodePlace(int64_t i) {
  return i / 32 * 32 + i % 8 / 2 * 8 + i % 32 / 8 * 2 + i % 2;
}

struct Float8 {  // e4m3, see kernels/byte_rows.h
  uint8_t bits;
};

struct E2m1 {};  // LinearSpec::e2m1: sign, 2 bits of exponent, 1 of mantissa, in places of int4

// What a scale is multiplied by where codes are taken as f16: its exponent has a bias that is 8
// higher than Float8's, and 14 higher than that of E2m1, whose scales are halves; the rest stands
// alike.
template <typename W>
constexpr float kCodeUnit = std::is_same_v<W, Float8> ? 256.0f
                            : std::is_same_v<W, E2m1> ? 32768.0f
                                                      : 1.0f;

// The number of a code, the lowest four bits.
__device__ __forceinline__ Float16 E2m1AsHalf(uint32_t code) {
  return {static_cast<uint16_t>((code & 8u) << 12 | (code & 7u) << 9)};
}

__device__ __forceinline__ Float16 CodeAsHalf(uint32_t code) {
  return {static_cast<uint16_t>((code & 0x80u) << 8 | (code & 0x7fu) << 7)};
}

__device__ __forceinline__ float CodeValue(int8_t code) { return static_cast<float>(code); }
__device__ __forceinline__ float CodeValue(Float8 code) {
  return AsFloat(CodeAsHalf(code.bits)) * kCodeUnit<Float8>;
}

// Weight `i` of a row of `W`, int8_t or Float8; the places of both are the same.
template <typename W>
__device__ __forceinline__ float CodeWeight(const char* row, int64_t i, int64_t scales_offset_bytes,
                                            int64_t group_size) {
  const auto* scales = reinterpret_cast<const float*>(row + scales_offset_bytes);
  return CodeValue(reinterpret_cast<const W*>(row)[CodePlace(i)]) * scales[i / group_size];
}

// The types of such weights in templates: with zeros, and with offsets.
struct Nibbles {};
struct OffsetNibbles {};

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

// The word in which code `i` of a row is, which is moved to its lowest bits. The places of int4 are
// those of int8, but that of each 8, a 32-bit word, the even ones stand in the lower half.
__device__ __forceinline__ uint32_t NibbleAt(const char* row, int64_t i) {
  const int64_t place = CodePlace(i);
  const uint32_t codes = reinterpret_cast<const uint32_t*>(row)[place / 8];
  return codes >> static_cast<int>(4 * (place % 8 / 2 + place % 2 * 4));
}

// Weight `i` of a row whose words are behind `words_offset_bytes`.
__device__ __forceinline__ float NibbleWeight(const char* row, int64_t i,
                                              int64_t words_offset_bytes, int64_t group_size) {
  const auto* words = reinterpret_cast<const uint32_t*>(row + words_offset_bytes);
  const uint32_t word = words[i / group_size];
  return NibbleAsFloat(NibbleAt(row, i), NibbleBase(word)) * NibbleScale(word);
}

// Weight `i` of a row of E2m1.
__device__ __forceinline__ float E2m1Weight(const char* row, int64_t i, int64_t scales_offset_bytes,
                                            int64_t group_size) {
  const auto* scales = reinterpret_cast<const float*>(row + scales_offset_bytes);
  return AsFloat(E2m1AsHalf(NibbleAt(row, i))) * kCodeUnit<E2m1> * scales[i / group_size];
}

// Scale and offset of one group.
struct ScaleOffset {
  float scale, offset;
};

inline constexpr uint32_t kOneStep = 0x0101;  // steps of a block that is one group

__device__ __forceinline__ ScaleOffset MultiplyPair(uint32_t pair, uint32_t steps) {
  const Float16 scale = {static_cast<uint16_t>(pair & 0xffffu)};
  const Float16 offset = {static_cast<uint16_t>(pair >> 16)};
  return {AsFloat(scale) * static_cast<float>(static_cast<int8_t>(steps & 0xffu)),
          AsFloat(offset) * static_cast<float>(static_cast<int8_t>(steps >> 8))};
}

// Where steps are, those of a group; kOneStep otherwise.
__device__ __forceinline__ uint32_t StepsAt(const char* row, int64_t steps_offset_bytes,
                                            int64_t group) {
  if (steps_offset_bytes == 0) return kOneStep;
  return reinterpret_cast<const uint16_t*>(row + steps_offset_bytes)[group];
}

// Weight `i` of a row with offsets. `p`: the parameters of a launch.
template <typename Params>
__device__ __forceinline__ float OffsetNibbleWeight(const Params& p, const char* row, int64_t i) {
  const auto* pairs = reinterpret_cast<const uint32_t*>(row + p.scales_offset_bytes);
  const ScaleOffset group = MultiplyPair(pairs[(p.blocks.skipped + i) / p.blocks.size],
                                         StepsAt(row, p.steps_offset_bytes, i / p.group_size));
  return group.scale * NibbleAsFloat(NibbleAt(row, i), 8388608.0f) + group.offset;
}

// Weight `i` of a row of W: elements, or codes. `p`: the parameters of a launch.
template <typename W, typename Params>
__device__ __forceinline__ float WeightOf(const Params& p, const char* row, int64_t i) {
  if constexpr (std::is_same_v<W, int8_t> || std::is_same_v<W, Float8>) {
    return CodeWeight<W>(row, i, p.scales_offset_bytes, p.group_size);
  } else if constexpr (std::is_same_v<W, Nibbles>) {
    return NibbleWeight(row, i, p.scales_offset_bytes, p.group_size);
  } else if constexpr (std::is_same_v<W, E2m1>) {
    return E2m1Weight(row, i, p.scales_offset_bytes, p.group_size);
  } else if constexpr (std::is_same_v<W, OffsetNibbles>) {
    return OffsetNibbleWeight(p, row, i);
  } else {
    return AsFloat(reinterpret_cast<const W*>(row)[i]);
  }
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
