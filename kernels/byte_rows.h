// Rows of weights of one byte that are quantised already, int8 or FP8: what Ops::PackWeightRows
// takes of them.
//
// A weight is scale * code, the scale shared by `group_size` inputs of an output row. A row is
// bytes: codes, up to a multiple of 4 bytes; then an f32 scale for each group. What fills the last
// bytes of codes is 0. An int8 code is -127 to 127. FP8 is e4m3: sign, 4 bits of exponent with bias
// 7, 3 bits of mantissa, subnormals, no infinity; magnitude 0x7f is not a number, and no weight.
//
// Pure functions, thread-safe; sizes in bytes. Source of e4m3: Micikevicius et al., FP8 Formats for
// Deep Learning (arXiv:2209.05433).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/half_floats.h"

namespace tessera::kernels {

constexpr int64_t ByteCodeBytes(int64_t in_features) { return (in_features + 3) / 4 * 4; }
constexpr int64_t ByteRowBytes(int64_t in_features, int64_t group_size) {
  return ByteCodeBytes(in_features) + (in_features + group_size - 1) / group_size * 4;
}

// Scale of a group; `scales`: what stands behind the codes of a row.
inline float ByteScaleAt(const std::byte* scales, int64_t group) {
  float scale;
  std::memcpy(&scale, scales + group * 4, sizeof(scale));
  return scale;
}

inline constexpr uint8_t kF8NotANumber = 0x7f;  // of the magnitude

// Exact.
inline float F8ToFloat(uint8_t code) {
  const uint32_t exponent = code >> 3 & 0xfu, mantissa = code & 7u;
  const float magnitude = exponent == 0 ? static_cast<float>(mantissa) * 0x1p-9f
                                        : FloatFromBits((exponent + 120) << 23 | mantissa << 20);
  return (code & 0x80u) != 0 ? -magnitude : magnitude;
}

}  // namespace tessera::kernels
