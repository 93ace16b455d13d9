// Rows of int4 weights, in one layout whatever the checkpoint's was: what Ops::PackWeightRows takes
// of weights that are quantised already.
//
// A weight is scale * (code - zero): a code and a zero of 0 to 15, scale and zero shared by
// `group_size` inputs of an output row. A row is bytes: codes, the even input in the lower half of
// a byte, up to a multiple of 4 bytes; then a word of 4 bytes for each group. The word is the scale
// as an f32 whose 4 lowest bits are the zero instead: an f16 or bf16 scale has none there, so both
// are kept exactly. What fills the last byte of codes is 0.
//
// With an offset (offset_blocks.h) a weight is scale * code + offset, and behind the codes stand:
// for each block a pair, 4 bytes, f16 scale and f16 offset; then, where blocks have several groups,
// for each group its steps, 2 bytes, i8 factors of the pair's scale and offset, up to a multiple of
// 4 bytes. All numbers are finite.
//
// Pure functions, thread-safe; sizes in bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/half_floats.h"
#include "kernels/offset_blocks.h"

namespace tessera::kernels {

inline constexpr uint32_t kInt4ZeroBits = 0xf;  // of a word

constexpr int64_t Int4Groups(int64_t in_features, int64_t group_size) {
  return (in_features + group_size - 1) / group_size;
}
constexpr int64_t Int4CodeBytes(int64_t in_features) { return (in_features + 7) / 8 * 4; }
// Words of a row: one a group, or, with an offset, a pair a block.
constexpr int64_t Int4Words(int64_t in_features, int64_t group_size, const OffsetBlocks& blocks) {
  return blocks.size == 0 ? Int4Groups(in_features, group_size)
                          : Int4Groups(blocks.skipped + in_features, blocks.size);
}
constexpr bool HasSteps(int64_t group_size, const OffsetBlocks& blocks) {
  return blocks.size > group_size;
}
// All that stands behind the codes.
constexpr int64_t Int4ScaleBytes(int64_t in_features, int64_t group_size,
                                 const OffsetBlocks& blocks) {
  const int64_t steps = HasSteps(group_size, blocks) ? Int4Groups(in_features, group_size) : 0;
  return Int4Words(in_features, group_size, blocks) * 4 + (steps + 1) / 2 * 4;
}
constexpr int64_t Int4RowBytes(int64_t in_features, int64_t group_size,
                               const OffsetBlocks& blocks = {}) {
  return Int4CodeBytes(in_features) + Int4ScaleBytes(in_features, group_size, blocks);
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

struct Int4Pair {
  Float16 scale, offset;
};
struct Int4Steps {
  int8_t scale = 1, offset = 1;
};
static_assert(sizeof(Int4Pair) == 4 && sizeof(Int4Steps) == 2);

// Pair and steps of a group.
struct Int4Place {
  Int4Pair pair;
  Int4Steps steps;
  // Rounded once: both products are exact.
  float Weight(uint32_t code) const {
    const float scale = ToFloat(pair.scale) * static_cast<float>(steps.scale);
    const float offset = ToFloat(pair.offset) * static_cast<float>(steps.offset);
    return scale * static_cast<float>(code) + offset;
  }
};

// The place of the group that holds an input; `pairs`: what stands behind the codes of a row.
inline Int4Place Int4PlaceOf(const std::byte* pairs, int64_t in_features, int64_t group_size,
                             const OffsetBlocks& blocks, int64_t input) {
  Int4Place place;
  std::memcpy(&place.pair, pairs + (blocks.skipped + input) / blocks.size * 4, sizeof(place.pair));
  if (HasSteps(group_size, blocks)) {
    const std::byte* first = pairs + Int4Words(in_features, group_size, blocks) * 4;
    std::memcpy(&place.steps, first + input / group_size * 2, sizeof(place.steps));
  }
  return place;
}

// Exact: the product has fewer bits than an f32.
inline float Int4Weight(uint32_t code, uint32_t word) {
  return Int4Scale(word) *
         static_cast<float>(static_cast<int32_t>(code) - static_cast<int32_t>(Int4Zero(word)));
}

// The weight of an input with this code; `words`: what stands behind the codes of a row.
inline float Int4WeightAt(const std::byte* words, uint32_t code, int64_t in_features,
                          int64_t group_size, const OffsetBlocks& blocks, int64_t input) {
  if (blocks.size == 0) return Int4Weight(code, Int4WordAt(words, input / group_size));
  return Int4PlaceOf(words, in_features, group_size, blocks, input).Weight(code);
}

}  // namespace tessera::kernels
