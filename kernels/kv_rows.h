// Keys and values in 8 bits: how a token's key, or value, of one head stands in the cache.
//
// A row is bytes: a code for each element, zeros up to a multiple of 4 bytes, then an f32 scale. An
// element is scale * code. The scale is that of this row alone, so the bits of a token's KV depend
// on nothing beside it: neither on tokens behind it nor on how a prompt was cut into steps. (With a
// scale for several tokens, one that is larger than those before it would change what they were.)
// Next to one scale for a block of 64 tokens it costs 4 bytes of 132 for heads of 128.
//
//   int8   scale = max|x| / 127, code = round(x * (127 / max|x|)), -127 to 127
//   float8 e4m3 (kernels/byte_rows.h): scale = max|x| / 448, code = x * (448 / max|x|), rounded
// Rounding is to nearest, ties to even; every operation is one of f32, so all devices make the same
// bytes. Where max|x| is below kMinKvMagnitude the row is zeros; where an element is not finite the
// scale is NaN and the codes are zeros.
//
// int8 is the nearer one: an element is at most 0.4 % of the row's largest off. float8 keeps small
// elements beside large ones to 6 % of themselves.
//
// Pure functions, thread-safe; sizes in bytes unless they say otherwise. Always inlined, but for
// KvRowBytes: files compiled for a wider instruction set include this header too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/dtype.h"
#include "kernels/half_floats.h"

namespace tessera::kernels {

// Whether a cache of this type has codes and scales.
[[gnu::always_inline]] inline constexpr bool HasKvScales(DType dtype) {
  return dtype == DType::kI8 || dtype == DType::kF8;
}

inline constexpr int64_t kKvScaleBytes = 4;
[[gnu::always_inline]] inline constexpr int64_t KvScaleOffset(int64_t head_dim) {
  return (head_dim + 3) / 4 * 4;
}

// Elements of the cache's type that a row has.
[[gnu::always_inline]] inline constexpr int64_t KvRowElements(DType dtype, int64_t head_dim) {
  return HasKvScales(dtype) ? KvScaleOffset(head_dim) + kKvScaleBytes : head_dim;
}
constexpr int64_t KvRowBytes(DType dtype, int64_t head_dim) {
  return KvRowElements(dtype, head_dim) * SizeInBytes(dtype);
}

inline constexpr float kMaxI8Code = 127.0f;
inline constexpr float kMaxF8Code = 448.0f;
[[gnu::always_inline]] inline constexpr float MaxKvCode(DType dtype) {
  return dtype == DType::kI8 ? kMaxI8Code : kMaxF8Code;
}
inline constexpr float kMinKvMagnitude = 0x1p-100f;

// What a row is multiplied by, and its elements are multiples of.
struct KvScale {
  float inverse, scale;
};

// `largest_bits`: the largest of the bits of the row's elements without their signs, which for
// numbers are in the order of their magnitudes.
[[gnu::always_inline]] inline KvScale KvScaleOf(uint32_t largest_bits, float max_code) {
  if (largest_bits >= 0x7f800000u) return {0.0f, FloatFromBits(0x7fc00000u)};
  const float largest = FloatFromBits(largest_bits);
  if (largest < kMinKvMagnitude) return {0.0f, 0.0f};
  return {max_code / largest, largest / max_code};
}

// The code of x; |x| is up to 127 and what rounding adds to it.
[[gnu::always_inline]] inline int8_t I8Code(float x) {
  return static_cast<int8_t>(__builtin_lrintf(x));
}

// e4m3 of |x| up to 448 and what rounding adds to it.
[[gnu::always_inline]] inline uint8_t F8Code(float x) {
  const uint32_t bits = BitsFromFloat(x), sign = bits >> 24 & 0x80u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude < 0x3c800000u) {  // below 2^-6: in steps of 2^-9
    const long steps = __builtin_lrintf(FloatFromBits(magnitude) * 512.0f);
    return static_cast<uint8_t>(sign | static_cast<uint32_t>(steps));
  }
  const uint32_t code = ((magnitude + 0x7ffffu + (magnitude >> 20 & 1u)) >> 20) - (120u << 3);
  return static_cast<uint8_t>(sign | (code > 0x7eu ? 0x7eu : code));
}

// Exact. The magnitude 0x7f, which no row has, is taken for 480.
[[gnu::always_inline]] inline float F8CodeValue(uint8_t code) {
  const uint16_t half = static_cast<uint16_t>((code & 0x80u) << 8 | (code & 0x7fu) << 7);
  return ToFloat(Float16{half}) * 256.0f;
}

[[gnu::always_inline]] inline float KvScaleAt(const std::byte* row, int64_t head_dim) {
  float scale;
  std::memcpy(&scale, row + KvScaleOffset(head_dim), sizeof(scale));
  return scale;
}

// Writes a row from elements of T: float, Float16 or BFloat16. `dtype` has scales.
template <typename T>
[[gnu::always_inline]] inline void WriteKvRow(const T* in, int64_t head_dim, DType dtype,
                                              std::byte* row) {
  uint32_t largest = 0;
  for (int64_t d = 0; d < head_dim; ++d) {
    const uint32_t bits = BitsFromFloat(ToFloat(in[d])) & 0x7fffffffu;
    largest = bits > largest ? bits : largest;
  }
  const KvScale scale = KvScaleOf(largest, MaxKvCode(dtype));
  const int64_t end = KvScaleOffset(head_dim);
  for (int64_t d = 0; d < end; ++d) {
    // A row without a number must not multiply what it has.
    const bool none = d >= head_dim || scale.inverse == 0.0f;
    const float x = none ? 0.0f : ToFloat(in[d]) * scale.inverse;
    row[d] =
        dtype == DType::kI8 ? static_cast<std::byte>(I8Code(x)) : static_cast<std::byte>(F8Code(x));
  }
  std::memcpy(row + end, &scale.scale, sizeof(scale.scale));
}

// Element `d` of a row.
[[gnu::always_inline]] inline float KvRowValue(const std::byte* row, int64_t d, int64_t head_dim,
                                               DType dtype) {
  const auto code = static_cast<uint8_t>(row[d]);
  const float value =
      dtype == DType::kI8 ? static_cast<float>(static_cast<int8_t>(code)) : F8CodeValue(code);
  return value * KvScaleAt(row, head_dim);
}

}  // namespace tessera::kernels
