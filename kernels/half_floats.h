// The two 16-bit floating-point formats as storage types, and their conversion to and from float.
//
// BFloat16 is the upper half of an IEEE 754 binary32, Float16 is binary16; both round to nearest
// even and keep NaN a NaN. Everything here is always inlined: files compiled for a wider
// instruction set include this header too and must not leave a copy that the linker could give to
// everybody.
#pragma once

#include <cstdint>
#include <cstring>

namespace tessera::kernels {

struct BFloat16 {
  uint16_t bits;
};

struct Float16 {
  uint16_t bits;
};

[[gnu::always_inline]] inline float FloatFromBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

[[gnu::always_inline]] inline uint32_t BitsFromFloat(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

[[gnu::always_inline]] inline float ToFloat(float value) { return value; }

[[gnu::always_inline]] inline float ToFloat(BFloat16 value) {
  return FloatFromBits(static_cast<uint32_t>(value.bits) << 16);
}

[[gnu::always_inline]] inline float ToFloat(Float16 value) {
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000u) << 16;
  const uint32_t exponent = (value.bits >> 10) & 0x1fu;
  const uint32_t mantissa = value.bits & 0x3ffu;
  if (exponent == 0) {  // zero and subnormals: mantissa * 2^-24, exact in binary32
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  if (exponent == 0x1f) return FloatFromBits(sign | 0x7f800000u | (mantissa << 13));
  return FloatFromBits(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

// FromFloat<T>(value): T is float, BFloat16 or Float16.
template <typename T>
T FromFloat(float value) = delete;

template <>
[[gnu::always_inline]] inline float FromFloat<float>(float value) {
  return value;
}

template <>
[[gnu::always_inline]] inline BFloat16 FromFloat<BFloat16>(float value) {
  const uint32_t bits = BitsFromFloat(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    return {static_cast<uint16_t>((bits >> 16) | 0x40u)};  // quiet NaN, payload cut
  }
  return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

template <>
[[gnu::always_inline]] inline Float16 FromFloat<Float16>(float value) {
  const uint32_t bits = BitsFromFloat(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return {static_cast<uint16_t>(sign | 0x7e00u)};
  if (magnitude >= 0x477ff000u)
    return {static_cast<uint16_t>(sign | 0x7c00u)};  // rounds to infinity
  if (magnitude < 0x38800000u) {
    // Subnormal: adding 0.5 leaves the value in units of 2^-24 in the low bits, rounded by the
    // adder.
    const float shifted = FloatFromBits(magnitude) + 0.5f;
    return {static_cast<uint16_t>(sign | (BitsFromFloat(shifted) - 0x3f000000u))};
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return {static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13))};
}

}  // namespace tessera::kernels
