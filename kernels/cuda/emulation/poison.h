// What emulated memory holds before a kernel writes it, and what lies around it.
//
// Any two bytes are a NaN as bf16 and as f16, any four a NaN as f32; as an int they are neither
// zero nor the -1 of padding. Guards are signalling NaNs, which no arithmetic makes, and differ
// from allocation to allocation, so that what was read beyond one array and written beyond another
// shows. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tessera::kernels::cuda::emulated {

inline constexpr uint16_t kPoison = 0xffc1;
inline constexpr int64_t kGuardBytes = 256;

// The guard pattern of the allocation with this number.
constexpr uint16_t GuardPattern(int64_t number) {
  return static_cast<uint16_t>(0xff81 + number % 62);
}

// The lower byte of a pattern lies at even addresses.
inline std::byte PatternAt(const std::byte* address, uint16_t pattern) {
  const bool low = reinterpret_cast<uintptr_t>(address) % 2 == 0;
  return static_cast<std::byte>(low ? pattern & 0xff : pattern >> 8);
}

inline void Fill(std::byte* begin, int64_t size_bytes, uint16_t pattern) {
  for (int64_t i = 0; i < size_bytes; ++i) begin[i] = PatternAt(begin + i, pattern);
}

// The offset of the first byte that is not of the pattern; -1: all are.
inline int64_t FirstOther(const std::byte* begin, int64_t size_bytes, uint16_t pattern) {
  // What begins with the pattern and equals itself two bytes on has it all over.
  if (size_bytes > 2 && begin[0] == PatternAt(begin, pattern) &&
      begin[1] == PatternAt(begin + 1, pattern) &&
      std::memcmp(begin, begin + 2, size_bytes - 2) == 0) {
    return -1;
  }
  for (int64_t i = 0; i < size_bytes; ++i) {
    if (begin[i] != PatternAt(begin + i, pattern)) return i;
  }
  return -1;
}

// An element of any type that was never written.
template <typename T>
T PoisonValue() {
  alignas(2) std::byte bytes[sizeof(T)];
  Fill(bytes, sizeof(T), kPoison);
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

}  // namespace tessera::kernels::cuda::emulated
