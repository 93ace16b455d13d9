// How attention on tensor cores (kernels/cuda/attention) is launched: which head sizes it takes,
// how large its tiles are, how a context is split, and how much shared memory each architecture
// gives.
//
// What decides the bits of a row (the width of a tile, where a context is split) depends on the
// head size and on the row's own context alone; the architecture chooses only how many rows a block
// has, and how many tiles are on their way to it. Pure functions, compiled for every platform.
// Extents are 1 or more.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch/launch_shape.h"

namespace tessera::kernels::cuda {

// Rows of a matrix product. A row is one query head at one position: the heads of a group, which
// share keys, stand behind each other.
inline constexpr int kWarpRows = 16;
inline constexpr int kPrefillWarps = 4;
// Keys that a warp of a decode block takes at a time.
inline constexpr int kDecodeTileKeys = 16;
// A decode context is split every kSplitKeys keys; one of more than kMaxSplits of those has splits
// of twice as many, and so on.
inline constexpr int kSplitKeys = 256;
inline constexpr int kMaxSplits = 32;
// Blocks that registers of a multiprocessor have room for.
inline constexpr int kDecodeBlocks = 4;
// Heads of a sequence whose splits a block adds up.
inline constexpr int kCombineWarps = 4;
inline constexpr int kMinTileSlots = 2;
inline constexpr int kMaxTileSlots = 4;

constexpr bool HasTensorAttention(int64_t head_dim) {
  return head_dim == 64 || head_dim == 80 || head_dim == 96 || head_dim == 128 || head_dim == 256;
}

// Warps of a decode block, which all have the same rows and take turns at tiles.
constexpr int DecodeWarps(int64_t head_dim) { return head_dim > 128 ? 2 : 4; }

// Queries that a warp of one or two products' rows keeps in shared memory, for want of registers.
constexpr int QueryBytes(int64_t head_dim, int row_tiles) {
  const bool in_registers = head_dim < 128 && row_tiles * head_dim < 160;
  return in_registers ? 0 : 2 * row_tiles * kWarpRows * static_cast<int>(head_dim);
}

// The rows of how many products a warp of a prefill block may have: two, if its registers hold the
// sums. Then what it reads of keys and values serves both.
constexpr int MaxPrefillRowTiles(int64_t head_dim) { return head_dim > 128 ? 1 : 2; }
// How many it has: two where shared memory has room for the queries of two blocks.
int PrefillRowTiles(int64_t head_dim, int capability);

// Keys of a tile that the warps of a prefill block share.
constexpr int PrefillTileKeys(int64_t head_dim) { return head_dim > 128 ? 32 : 64; }

// Bytes between two rows of a tile: so that eight rows behind each other, of which 16 bytes are
// read at once, lie in unlike banks. Where a row is a multiple of 128 bytes its chunks of 16 bytes
// change places instead (attention/key_tiles.h).
constexpr int TileRowBytes(int64_t head_dim) {
  const int chunks = static_cast<int>(head_dim) / 8;
  return 16 * (chunks % 8 == 0 ? chunks : chunks | 1);
}

// Keys of each split of a decode context but the last one.
constexpr int SplitKeys(int context) {
  int keys = kSplitKeys;
  while (context > keys * kMaxSplits) keys *= 2;
  return keys;
}

// The most splits that a context of up to so many keys may have.
constexpr int MaxSplits(int64_t max_context) {
  const int64_t splits = (max_context + kSplitKeys - 1) / kSplitKeys;
  return static_cast<int>(splits < 1 ? 1 : splits > kMaxSplits ? kMaxSplits : splits);
}

// Of each split of each decode row: head_dim sums of values, the largest score, the sum of weights.
constexpr int64_t PartialBytes(int64_t sequences, int64_t heads, int64_t head_dim,
                               int64_t max_context) {
  return sequences * heads * MaxSplits(max_context) * (head_dim + 2) * int64_t{sizeof(float)};
}

// What a launch depends on. `rows` and `max_context` are bounds: which sequence has how many of
// them is known to the device alone.
struct TensorAttentionExtents {
  int64_t rows = 0, sequences = 0, heads = 0, kv_heads = 0, head_dim = 0, max_context = 0;
};

// A launch, and how many tiles its blocks (prefill) or warps (decode) have room for: in shared
// memory behind the queries, which a prefill block has of each warp and a decode block once.
struct TiledShape {
  LaunchShape shape;
  int slots = kMinTileSlots;
};

// Blocks (kv heads x tiles of a sequence's rows, as many as all warps have). `capability` is 90 for
// 9.0.
TiledShape PrefillShape(const TensorAttentionExtents& extents, int capability);
// Blocks (splits, kv heads x tiles of kWarpRows of a group's heads, sequences).
TiledShape DecodeShape(const TensorAttentionExtents& extents, int capability);
// Blocks (heads by kCombineWarps, sequences), a warp per head.
LaunchShape CombineShape(const TensorAttentionExtents& extents);

}  // namespace tessera::kernels::cuda
