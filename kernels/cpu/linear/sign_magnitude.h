// How int8 weights stand in the 64 bytes of a pair of inputs (panel_kernel.h) where they are
// widened to bf16 through byte tables (dot_avx512.cc): a byte is sign and magnitude, so that seven
// bits index a table of 128 and the sign is copied; and the order is the one that interleaving the
// high and low bytes of 64 results within 128-bit lanes undoes into two vectors of 16 columns x 2
// inputs.
#pragma once

#include <cstdint>

namespace tessera::kernels::cpu::linear {

// Without a branch, so that loops over it become vectors. `value` is not -128.
constexpr uint8_t ToSignMagnitude(int8_t value) {
  const int sign = value >> 7;  // 0 or -1
  return static_cast<uint8_t>(((value ^ sign) - sign) | (sign & 0x80));
}

constexpr int8_t FromSignMagnitude(uint8_t code) {
  const int magnitude = code & 0x7f;
  return static_cast<int8_t>((code & 0x80) != 0 ? -magnitude : magnitude);
}

// Where input `parity` (0 or 1) of column `column` (0..31) stands. Always inlined, for files with
// -m flags of their own.
[[gnu::always_inline]] constexpr int64_t SignMagnitudeByte(int64_t column, int64_t parity) {
  const int64_t vector = column / 16, lane = column % 16 / 4, pair = column % 4;
  return lane * 16 + vector * 8 + pair * 2 + parity;
}

}  // namespace tessera::kernels::cpu::linear
