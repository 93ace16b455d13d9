// Random rows of int8 or FP8 weights in the layout of kernels/byte_rows.h, for tests of what packs
// them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/byte_rows.h"
#include "kernels/tensor.h"

namespace tessera::kernels {

// `rows` rows of ByteRowBytes(in_features, group_size). `type`: kI8, any code but -128; or kF8, any
// number. Scales are such that the largest weight is 1.
inline std::vector<std::byte> RandomBytes(DType type, int64_t rows, int64_t in_features,
                                          int64_t group_size, uint64_t seed) {
  std::mt19937_64 random(seed);
  const int64_t row_bytes = ByteRowBytes(in_features, group_size);
  std::vector<std::byte> all(rows * row_bytes);
  for (int64_t row = 0; row < rows; ++row) {
    std::byte* codes = all.data() + row * row_bytes;
    for (int64_t i = 0; i < in_features; ++i) {
      const auto code = static_cast<uint8_t>(random());
      const bool none = type == DType::kI8 ? code == 0x80 : (code & 0x7fu) == kF8NotANumber;
      codes[i] = static_cast<std::byte>(none ? 0 : code);
    }
    const float unit = type == DType::kI8 ? 1.0f / 127 : 1.0f / 448;
    for (int64_t at = ByteCodeBytes(in_features); at < row_bytes; at += 4) {
      const float scale = unit * static_cast<float>(1 + random() % 64) / 64;
      std::memcpy(codes + at, &scale, sizeof(scale));
    }
  }
  return all;
}

// Other codes for rows of int8: those of LinearSpec::e2m1.
inline void TakeE2m1(std::vector<std::byte>& all, int64_t rows, int64_t in_features,
                     int64_t group_size) {
  constexpr int8_t kDoubles[] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  for (int64_t row = 0; row < rows; ++row) {
    std::byte* codes = all.data() + row * ByteRowBytes(in_features, group_size);
    for (int64_t i = 0; i < in_features; ++i) {
      codes[i] = static_cast<std::byte>(kDoubles[std::to_integer<int>(codes[i]) & 15]);
    }
  }
}

// The same as a tensor that Ops::PackWeightRows takes, rows [first, first + count).
inline TensorView ByteRows(const std::vector<std::byte>& all, int64_t first, int64_t count,
                           int64_t in_features, int64_t group_size) {
  const int64_t row_bytes = ByteRowBytes(in_features, group_size);
  return {const_cast<std::byte*>(all.data()) + first * row_bytes, DType::kI8, {count, row_bytes}};
}

// The same as floats.
inline std::vector<float> ByteWeights(DType type, const std::vector<std::byte>& all,
                                      int64_t in_features, int64_t group_size) {
  const int64_t row_bytes = ByteRowBytes(in_features, group_size);
  std::vector<float> weights;
  for (size_t at = 0; at < all.size(); at += row_bytes) {
    const std::byte* row = all.data() + at;
    for (int64_t i = 0; i < in_features; ++i) {
      const auto code = std::to_integer<uint8_t>(row[i]);
      const float value =
          type == DType::kF8 ? F8ToFloat(code) : static_cast<float>(static_cast<int8_t>(code));
      weights.push_back(value * ByteScaleAt(row + ByteCodeBytes(in_features), i / group_size));
    }
  }
  return weights;
}

}  // namespace tessera::kernels
