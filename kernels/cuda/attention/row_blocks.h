// Which rows and keys a block has, where a block takes a tile of a sequence's rows and a split of
// their contexts. For .cu files.
#pragma once

#include "kernels/cuda/attention/warp_rows.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {

// The tiles of a sequence begin with this one: there are as many as its rows need, and at times one
// more. So a block finds its sequence by the starts alone.
template <int kBlockRows>
__device__ __forceinline__ int FirstTileOf(int sequence, const TiledParams& p) {
  return p.attention.query_starts[sequence] * p.group.number / kBlockRows + sequence;
}

// The last sequence whose tiles begin at or before this one.
template <int kBlockRows>
__device__ __forceinline__ int SequenceOfTile(int tile, const TiledParams& p) {
  int low = 0, high = static_cast<int>(p.attention.sequences);
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (FirstTileOf<kBlockRows>(middle, p) <= tile ? low : high) = middle;
  }
  return low;
}

template <int kBlockRows>
struct RowBlock {
  SequenceRows rows;
  int first, split;
  int begin, end;  // keys of the split that a row of the block sees; none: it has nothing to do

  // A sequence with more than `few` rows. What does not change from launch to launch is read
  // before the wait for those in front: which rows there are, and the block table. Of all heads the
  // rows with the longest contexts begin first, those that end last.
  template <int kSplit, bool kGeneral>
  __device__ __forceinline__ static RowBlock Of(const TiledParams& p, int few) {
    const AttentionParams& a = p.attention;
    const int kv_heads = static_cast<int>(a.kv_heads);
    const int from_end = static_cast<int>(blockIdx.x) / kv_heads;
    const int kv_head = static_cast<int>(blockIdx.x) % kv_heads;
    const int first_tile_of_wave = p.first * p.group.number / kBlockRows;
    const int tile = first_tile_of_wave + static_cast<int>(gridDim.x) / kv_heads - 1 - from_end;
    const int sequence = SequenceOfTile<kBlockRows>(tile, p);
    const int first_row = a.query_starts[sequence], end_row = a.query_starts[sequence + 1];
    const SequenceRows rows = {sequence, kv_head, first_row, (end_row - first_row) * p.group.number,
                               a.context_lengths[sequence] - (end_row - first_row)};
    const int first = (tile - FirstTileOf<kBlockRows>(sequence, p)) * kBlockRows;
    const int split = static_cast<int>(blockIdx.y);
    if (end_row - first_row <= few || first >= rows.count) return {rows, first, split, 0, 0};
    const int last = min(first + kBlockRows, rows.count) - 1;
    const bool in_wave = first_row + p.group.Of(last) >= p.first &&
                         first_row + p.group.Of(first) < p.first + p.count;
    if (!in_wave) return {rows, first, split, 0, 0};
    return {rows, first, split,
            max(split * kSplit, FirstKey<kGeneral>(rows.PositionOf(first, p) + 1, a)),
            min((split + 1) * kSplit, rows.PositionOf(last, p) + 1)};
  }
  // The place of a row among those of the wave; none: not in it.
  __device__ __forceinline__ int WaveRow(int row, const TiledParams& p) const {
    const int of_wave = rows.first_row + p.group.Of(row) - p.first;
    return row < rows.count && of_wave >= 0 && of_wave < p.count ? of_wave : kNoRow;
  }
  static constexpr int kNoRow = -1;
};

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
