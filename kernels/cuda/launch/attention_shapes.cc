#include "kernels/cuda/launch/attention_shapes.h"

#include <algorithm>

namespace tessera::kernels::cuda {
namespace {

// As many blocks as the registers of a multiprocessor have room for.
constexpr int kPrefillBlocks = 2;
constexpr int kDecodeBlocks = 3;
// What a block needs beyond what it asks for, from capability 8.0 on.
constexpr int64_t kReservedBytes = 1 << 10;

// Shared memory of a multiprocessor.
int64_t SharedBytesOf(int capability) {
  if (capability < 80) return 64 << 10;
  if (capability == 80 || capability == 87) return 164 << 10;
  if (capability < 90 || capability >= 120) return 100 << 10;
  return 228 << 10;
}

// With so many slots that `blocks` blocks fit, if possible.
TiledShape WithSlots(LaunchShape shape, int warps, int64_t head_dim, int64_t slot_bytes,
                     int capability, int blocks) {
  const int64_t reserved = capability < 80 ? 0 : kReservedBytes;
  const int64_t queries = int64_t{warps} * QueryBytes(head_dim);
  const int64_t slots = (SharedBytesOf(capability) / blocks - reserved - queries) / slot_bytes;
  TiledShape tiled = {shape};
  tiled.slots = static_cast<int>(std::clamp<int64_t>(slots, kMinTileSlots, kMaxTileSlots));
  tiled.shape.threads = {int64_t{warps} * kWarpThreads};
  tiled.shape.shared_bytes = queries + tiled.slots * slot_bytes;
  return tiled;
}

}  // namespace

TiledShape PrefillShape(const TensorAttentionExtents& extents, int capability) {
  const int64_t group = extents.heads / extents.kv_heads;
  const int64_t slot_bytes = PrefillTileKeys(extents.head_dim) * TileRowBytes(extents.head_dim);
  // The tiles of sequence s begin with number query_starts[s] * group / kPrefillRows + s.
  const LaunchShape shape = {
      .blocks = {extents.rows * group / kPrefillRows + extents.sequences, extents.kv_heads}};
  return WithSlots(shape, kPrefillWarps, extents.head_dim, slot_bytes, capability, kPrefillBlocks);
}

TiledShape DecodeShape(const TensorAttentionExtents& extents, int capability) {
  const int64_t group = extents.heads / extents.kv_heads;
  const int64_t group_tiles = (group + kWarpRows - 1) / kWarpRows;
  const int warps = DecodeWarps(extents.head_dim);
  const int64_t slot_bytes = warps * kDecodeTileKeys * TileRowBytes(extents.head_dim);
  const LaunchShape shape = {.blocks = {MaxSplits(extents.max_context),
                                        extents.kv_heads * group_tiles, extents.sequences}};
  return WithSlots(shape, warps, extents.head_dim, slot_bytes, capability, kDecodeBlocks);
}

LaunchShape CombineShape(const TensorAttentionExtents& extents) {
  const int64_t threads = (extents.head_dim + kWarpThreads - 1) / kWarpThreads * kWarpThreads;
  return {.blocks = {extents.heads, extents.sequences}, .threads = {threads}};
}

}  // namespace tessera::kernels::cuda
