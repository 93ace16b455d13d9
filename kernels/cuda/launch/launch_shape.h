// How many blocks of how many threads a kernel is launched with. Compiled for every platform.
#pragma once

#include <cstdint>

namespace tessera::kernels::cuda {

// CUDA's own limits, of every GPU from capability 7.5 on.
inline constexpr int kWarpThreads = 32;
inline constexpr int kMaxBlockThreads = 1024;
inline constexpr int64_t kMaxGridX = 0x7fffffff;
inline constexpr int64_t kMaxGridYZ = 65535;
// Above this a kernel must be allowed more shared memory before it is launched; Launch does so.
inline constexpr int64_t kPlainSharedBytes = 48 << 10;
// What one block may have on capability 9.0, the most of all that are known here.
inline constexpr int64_t kMaxSharedBytes = 227 << 10;

struct LaunchShape {
  struct Extent {
    int64_t x = 1, y = 1, z = 1;
    constexpr int64_t count() const { return x * y * z; }
  };
  Extent blocks = {};
  Extent threads = {};       // of one block
  int64_t shared_bytes = 0;  // dynamic shared memory of one block

  // Whether CUDA accepts it. A launch of zero blocks is refused, too: whoever launches skips it.
  constexpr bool IsLegal() const {
    return blocks.x >= 1 && blocks.y >= 1 && blocks.z >= 1 && blocks.x <= kMaxGridX &&
           blocks.y <= kMaxGridYZ && blocks.z <= kMaxGridYZ && threads.x >= 1 && threads.y >= 1 &&
           threads.z >= 1 && threads.z <= 64 && threads.count() <= kMaxBlockThreads &&
           shared_bytes >= 0 && shared_bytes <= kMaxSharedBytes;
  }
};

}  // namespace tessera::kernels::cuda
