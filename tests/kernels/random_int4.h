// Random rows of int4 weights in the layout of kernels/int4_rows.h, for tests of what packs them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/int4_rows.h"
#include "kernels/tensor.h"

namespace tessera::kernels {

// What stands behind the codes of a row of int4 with an offset. Where there are steps, the scales
// of pairs are mostly subnormal, as many of Q4_K are.
inline void RandomPairs(int64_t in_features, int64_t group_size, const OffsetBlocks& blocks,
                        std::mt19937_64& random, std::byte* out) {
  const bool has_steps = HasSteps(group_size, blocks);
  const float unit = has_steps ? 0x1p-16f : 0x1p-10f;
  for (int64_t i = 0; i < Int4Words(in_features, group_size, blocks); ++i) {
    const Int4Pair pair = {FromFloat<Float16>(static_cast<float>(1 + random() % 64) * unit),
                           FromFloat<Float16>(-8 * static_cast<float>(1 + random() % 64) * unit)};
    std::memcpy(out, &pair, sizeof(pair));
    out += sizeof(pair);
  }
  if (!has_steps) return;
  for (int64_t i = 0; i < Int4Groups(in_features, group_size); ++i) {
    const Int4Steps steps = {static_cast<int8_t>(random() % 96 - 32),
                             static_cast<int8_t>(random() % 96 - 32)};
    std::memcpy(out, &steps, sizeof(steps));
    out += sizeof(steps);
  }
}

// `rows` rows of Int4RowBytes(in_features, group_size, blocks). Any code and zero; scales that f16
// holds, so that weights are in [-1, 1].
inline std::vector<std::byte> RandomInt4(int64_t rows, int64_t in_features, int64_t group_size,
                                         uint64_t seed, const OffsetBlocks& blocks = {}) {
  std::mt19937_64 random(seed);
  const int64_t row_bytes = Int4RowBytes(in_features, group_size, blocks);
  std::vector<std::byte> all(rows * row_bytes);
  for (int64_t row = 0; row < rows; ++row) {
    std::byte* codes = all.data() + row * row_bytes;
    for (int64_t i = 0; i < in_features; ++i) {
      codes[i / 2] |= static_cast<std::byte>((random() & 0xf) << (i % 2 * 4));
    }
    std::byte* words = codes + Int4CodeBytes(in_features);
    if (blocks.size > 0) {
      RandomPairs(in_features, group_size, blocks, random, words);
      continue;
    }
    for (int64_t group = 0; group < Int4Groups(in_features, group_size); ++group) {
      const float scale = static_cast<float>(1 + random() % 64) / 1024;
      const uint32_t word = Int4Word(scale, random() & 0xf);
      std::memcpy(words + group * 4, &word, sizeof(word));
    }
  }
  return all;
}

// The same as a tensor that Ops::PackWeightRows takes, rows [first, first + count).
inline TensorView Int4Rows(const std::vector<std::byte>& all, int64_t first, int64_t count,
                           int64_t in_features, int64_t group_size,
                           const OffsetBlocks& blocks = {}) {
  const int64_t row_bytes = Int4RowBytes(in_features, group_size, blocks);
  return {const_cast<std::byte*>(all.data()) + first * row_bytes, DType::kI8, {count, row_bytes}};
}

// The same as floats.
inline std::vector<float> Int4Weights(const std::vector<std::byte>& all, int64_t in_features,
                                      int64_t group_size, const OffsetBlocks& blocks = {}) {
  const int64_t row_bytes = Int4RowBytes(in_features, group_size, blocks);
  std::vector<float> weights;
  for (size_t at = 0; at < all.size(); at += row_bytes) {
    const std::byte* row = all.data() + at;
    for (int64_t i = 0; i < in_features; ++i) {
      weights.push_back(Int4WeightAt(row + Int4CodeBytes(in_features), Int4Code(row, i),
                                     in_features, group_size, blocks, i));
    }
  }
  return weights;
}

// Blocks of a group, as Q4_1 has them, and of several, as Q4_K: from their first group on, and from
// a later one.
struct Int4Form {
  int64_t group_size;
  OffsetBlocks blocks;
};
inline constexpr std::array kInt4Offsets = {Int4Form{32, {.size = 32}}, Int4Form{32, {.size = 256}},
                                            Int4Form{32, {.size = 256, .skipped = 96}}};

}  // namespace tessera::kernels
