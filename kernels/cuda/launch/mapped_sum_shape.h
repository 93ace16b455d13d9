// Launch shape of a sum of ranks in memory that their devices map (kernels/cuda/sums): a pure
// function. Thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/launch/launch_shape.h"

namespace tessera::kernels::cuda {

// All sums have as many blocks, so that each of them knows its turn from one counter; few, since
// each waits for a flag of its own over the bus.
inline constexpr int kMappedSumBlocks = 16;
inline constexpr int kMaxMappedSumThreads = 256;

// Groups of four values that one block adds, of `count` values in all.
constexpr int64_t MappedSumFours(int64_t count) {
  constexpr int64_t kBlockValues = 4 * kMappedSumBlocks;
  return (count + kBlockValues - 1) / kBlockValues;
}

// A thread per four values, as far as a block goes; a warp at least, which waits for the ranks.
constexpr LaunchShape MappedSumShape(int64_t count) {
  const int64_t warps = (MappedSumFours(count) + kWarpThreads - 1) / kWarpThreads;
  return {
      .blocks = {kMappedSumBlocks},
      .threads = {std::clamp<int64_t>(warps * kWarpThreads, kWarpThreads, kMaxMappedSumThreads)}};
}

}  // namespace tessera::kernels::cuda
