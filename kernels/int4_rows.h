// Rows of int4 weights, in one layout whatever the checkpoint's was: what Ops::PackWeightRows takes
// of weights that are quantised already.
//
// A weight is scale * (code - zero): a code and a zero of 0 to 15, scale and zero shared by
// `group_size` inputs of an output row. A row is bytes: codes, the even input in the lower half of
// a byte, up to a multiple of 4 bytes; then a word of 4 bytes for each group. The word is the scale
// as an f32 whose 4 lowest bits are the zero instead: an f16 or bf16 scale has none there, so both
// are kept exactly. What fills the last byte of codes is 0. Pure functions, thread-safe; sizes in
// bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/half_floats.h"

namespace tessera::kernels {

inline constexpr uint32_t kInt4ZeroBits = 0xf;  // of a word

constexpr int64_t Int4Groups(int64_t in_features, int64_t group_size) {
  return (in_features + group_size - 1) / group_size;
}
constexpr int64_t Int4CodeBytes(int64_t in_features) { return (in_features + 7) / 8 * 4; }
constexpr int64_t Int4RowBytes(int64_t in_features, int64_t group_size) {
  return Int4CodeBytes(in_features) + Int4Groups(in_features, group_size) * 4;
}

// The code of an input in a row.
inline uint32_t Int4Code(const std::byte* row, int64_t input) {
  return std::to_integer<uint32_t>(row[input / 2]) >> (input % 2 * 4) & 0xfu;
}

// Requires a zero of 0 to 15, and a scale that f16 or bf16 holds.
inline uint32_t Int4Word(float scale, uint32_t zero) {
  return (BitsFromFloat(scale) & ~kInt4ZeroBits) | zero;
}
inline float Int4Scale(uint32_t word) { return FloatFromBits(word & ~kInt4ZeroBits); }
inline uint32_t Int4Zero(uint32_t word) { return word & kInt4ZeroBits; }

// The word of a group; `words` is the first group's.
inline uint32_t Int4WordAt(const std::byte* words, int64_t group) {
  uint32_t word;
  std::memcpy(&word, words + group * 4, sizeof(word));
  return word;
}

// Exact: the product has fewer bits than an f32.
inline float Int4Weight(uint32_t code, uint32_t word) {
  return Int4Scale(word) *
         static_cast<float>(static_cast<int32_t>(code) - static_cast<int32_t>(Int4Zero(word)));
}

}  // namespace tessera::kernels
