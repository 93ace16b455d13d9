#include "kernels/cuda/launch/attention_shapes.h"

#include <algorithm>

#include "kernels/cuda/launch/gpu_limits.h"

namespace tessera::kernels::cuda {
namespace {

// Blocks that registers of a multiprocessor have room for.
constexpr int kPrefillBlocks = 2;

// What each of `blocks` blocks has for its tiles. Below zero: not even their queries fit.
int64_t TileBytes(int capability, int blocks, int64_t query_bytes) {
  return BlockSharedBytes(capability, blocks) - query_bytes;
}

// With so many slots that `blocks` blocks fit, if possible.
TiledShape WithSlots(LaunchShape shape, int warps, int64_t query_bytes, int64_t slot_bytes,
                     int capability, int blocks) {
  const int64_t slots = TileBytes(capability, blocks, query_bytes) / slot_bytes;
  TiledShape tiled = {shape};
  tiled.slots = static_cast<int>(std::clamp<int64_t>(slots, kMinTileSlots, kMaxTileSlots));
  tiled.shape.threads = {int64_t{warps} * kWarpThreads};
  tiled.shape.shared_bytes = query_bytes + tiled.slots * slot_bytes;
  return tiled;
}

int64_t PrefillSlotBytes(int64_t head_dim) {
  return int64_t{PrefillTileKeys(head_dim)} * TileRowBytes(head_dim);
}

int64_t PrefillQueryBytes(int64_t head_dim, int row_tiles) {
  return int64_t{kPrefillWarps} * QueryBytes(head_dim, row_tiles);
}

}  // namespace

int PrefillRowTiles(int64_t head_dim, int capability) {
  if (MaxPrefillRowTiles(head_dim) == 1 || capability < kAmpere) return 1;
  const int64_t room = TileBytes(capability, kPrefillBlocks, PrefillQueryBytes(head_dim, 2));
  return room >= kMinTileSlots * PrefillSlotBytes(head_dim) ? 2 : 1;
}

TiledShape PrefillShape(const TensorAttentionExtents& extents, int capability) {
  const int64_t group = extents.heads / extents.kv_heads;
  const int row_tiles = PrefillRowTiles(extents.head_dim, capability);
  const int64_t block_rows = kPrefillWarps * row_tiles * kWarpRows;
  // The tiles of sequence s begin with number query_starts[s] * group / block_rows + s.
  const int64_t tiles = extents.rows * group / block_rows + extents.sequences;
  return WithSlots({.blocks = {tiles * extents.kv_heads}}, kPrefillWarps,
                   PrefillQueryBytes(extents.head_dim, row_tiles),
                   PrefillSlotBytes(extents.head_dim), capability, kPrefillBlocks);
}

TiledShape DecodeShape(const TensorAttentionExtents& extents, int capability) {
  const int64_t group = extents.heads / extents.kv_heads;
  const int64_t group_tiles = (group + kWarpRows - 1) / kWarpRows;
  const int warps = DecodeWarps(extents.head_dim);
  const int64_t slot_bytes = warps * kDecodeTileKeys * TileRowBytes(extents.head_dim);
  const LaunchShape shape = {.blocks = {MaxSplits(extents.max_context),
                                        extents.kv_heads * group_tiles, extents.sequences}};
  return WithSlots(shape, warps, QueryBytes(extents.head_dim, 1), slot_bytes, capability,
                   kDecodeBlocks);
}

LaunchShape CombineShape(const TensorAttentionExtents& extents) {
  return {.blocks = {(extents.heads + kCombineWarps - 1) / kCombineWarps, extents.sequences},
          .threads = {int64_t{kCombineWarps} * kWarpThreads}};
}

}  // namespace tessera::kernels::cuda
