// Launch shape of the gated delta rule (kernels/cuda/plain/delta_net.cu): a pure function. How a
// sum runs depends on the width of keys alone. Thread-safe.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch/launch_shape.h"

namespace tessera::kernels::cuda {

inline constexpr int kDeltaColumns = 64;  // of a state, that a block has
inline constexpr int kDeltaParts = 4;     // threads of a column, each with a part of its elements
inline constexpr int kDeltaThreads = kDeltaColumns * kDeltaParts;
inline constexpr int kDeltaRows = 16;      // that pass through shared memory together
inline constexpr int kMaxDeltaKeys = 256;  // elements of a key

// Blocks (heads, groups of columns of the state).
constexpr LaunchShape DeltaShape(int64_t heads, int64_t value_dim) {
  return {.blocks = {heads, (value_dim + kDeltaColumns - 1) / kDeltaColumns},
          .threads = {kDeltaThreads}};
}

}  // namespace tessera::kernels::cuda
