// Quotients by a number that the host knows, without a division: a multiplication and shifts.
// Compiled for every platform; constexpr, so that device code may call it.
#pragma once

#include <cstdint>

namespace tessera::kernels::cuda {

// Exact for dividends from 0 to 2^31 - 1 (Granlund and Montgomery, "Division by Invariant Integers
// using Multiplication", 1994).
struct Divisor {
  uint32_t factor;  // 2^(31 + shift) by the number, rounded up
  int shift;        // logarithm of the number, rounded up
  int number;

  constexpr int Of(int dividend) const {
    const uint64_t product = uint64_t{static_cast<uint32_t>(dividend)} * factor;
    return static_cast<int>(static_cast<uint32_t>(product >> 31) >> shift);
  }
};

// `number`: 1 to 2^30.
constexpr Divisor DivisorOf(int64_t number) {
  int shift = 0;
  while ((int64_t{1} << shift) < number) ++shift;
  const int64_t power = int64_t{1} << (31 + shift);
  return {static_cast<uint32_t>((power + number - 1) / number), shift, static_cast<int>(number)};
}

}  // namespace tessera::kernels::cuda
