// Random rows of int4 weights in the layout of kernels/int4_rows.h, for tests of what packs them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/int4_rows.h"
#include "kernels/tensor.h"

namespace tessera::kernels {

// `rows` rows of Int4RowBytes(in_features, group_size). Any code and zero; scales that f16 holds,
// so that weights are in [-1, 1].
inline std::vector<std::byte> RandomInt4(int64_t rows, int64_t in_features, int64_t group_size,
                                         uint64_t seed) {
  std::mt19937_64 random(seed);
  const int64_t row_bytes = Int4RowBytes(in_features, group_size);
  std::vector<std::byte> all(rows * row_bytes);
  for (int64_t row = 0; row < rows; ++row) {
    std::byte* codes = all.data() + row * row_bytes;
    for (int64_t i = 0; i < in_features; ++i) {
      codes[i / 2] |= static_cast<std::byte>((random() & 0xf) << (i % 2 * 4));
    }
    std::byte* words = codes + Int4CodeBytes(in_features);
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
                           int64_t in_features, int64_t group_size) {
  const int64_t row_bytes = Int4RowBytes(in_features, group_size);
  return {const_cast<std::byte*>(all.data()) + first * row_bytes, DType::kI8, {count, row_bytes}};
}

}  // namespace tessera::kernels
