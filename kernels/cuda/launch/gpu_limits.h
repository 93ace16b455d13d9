// Shared memory of GPUs by their capability: the one place that knows it. Source: CUDA C++
// Programming Guide, "Technical specifications per compute capability". Compiled for every
// platform; constexpr. A capability of 90 is 9.0; bytes.
#pragma once

#include <array>
#include <cstdint>

namespace tessera::kernels::cuda {

// Capabilities that the emulator can stand for.
inline constexpr std::array<int, 6> kEmulatedCapabilities = {75, 80, 86, 89, 90, 120};

// The first with asynchronous copies, products of bf16 and of depth 16.
inline constexpr int kAmpere = 80;

// Bytes of a multiprocessor, for all its blocks.
constexpr int64_t MultiprocessorSharedBytes(int capability) {
  if (capability < kAmpere) return 64 << 10;
  if (capability == 80 || capability == 87) return 164 << 10;
  return capability >= 90 && capability < 120 ? 228 << 10 : 100 << 10;
}

// Bytes of each block that the driver takes.
constexpr int64_t ReservedSharedBytes(int capability) { return capability < kAmpere ? 0 : 1 << 10; }

// What each of so many blocks of a multiprocessor may have, all of them alike.
constexpr int64_t BlockSharedBytes(int capability, int64_t blocks = 1) {
  return MultiprocessorSharedBytes(capability) / blocks - ReservedSharedBytes(capability);
}

}  // namespace tessera::kernels::cuda
