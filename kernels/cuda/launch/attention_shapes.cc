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

// Blocks of all kv heads for the tiles of `count` rows.
int64_t BlocksOfRows(const TensorAttentionExtents& extents, int64_t count, int64_t block_rows) {
  const int64_t group = extents.heads / extents.kv_heads;
  // The tiles of sequence s begin with number query_starts[s] * group / block_rows + s. Those of a
  // part of the rows may begin and end within a tile.
  const int64_t further = count < extents.rows ? 1 : 0;
  return (count * group / block_rows + extents.sequences + further) * extents.kv_heads;
}

int64_t WideSlotBytes(int64_t head_dim) { return int64_t{kWideTileKeys} * TileRowBytes(head_dim); }

// Bytes for all heads of a row.
int64_t RowPartialBytes(const TensorAttentionExtents& extents, int splits) {
  return extents.heads * splits * (extents.head_dim + 2) * int64_t{sizeof(float)};
}

}  // namespace

int PrefillRowTiles(int64_t head_dim, int capability) {
  if (MaxPrefillRowTiles(head_dim) == 1 || capability < kAmpere) return 1;
  const int64_t room = TileBytes(capability, kPrefillBlocks, PrefillQueryBytes(head_dim, 2));
  return room >= kMinTileSlots * PrefillSlotBytes(head_dim) ? 2 : 1;
}

Wave DecodeWave(const TensorAttentionExtents& extents, bool one_row, int64_t most_bytes) {
  Wave wave = {extents.sequences};
  wave.rows_each = one_row ? 1 : static_cast<int>(std::min<int64_t>(kFewRows, extents.rows));
  wave.splits = MaxSplits(extents.max_context);
  if (wave.splits == 1) return wave;
  const int64_t each = wave.rows_each * RowPartialBytes(extents, wave.splits);
  const int64_t most = std::min(extents.sequences, kMaxGridYZ / wave.rows_each);  // as below
  wave.count = std::clamp<int64_t>(most_bytes / each, 1, most);
  wave.bytes = std::max(each, std::min(extents.sequences * each, most_bytes));
  return wave;
}

Wave PrefillWave(const TensorAttentionExtents& extents, int64_t most_bytes) {
  Wave wave = {extents.rows};
  const bool wide = IsWideHead(extents.head_dim);
  wave.splits = MaxPrefillSplits(extents.max_context, wide ? kWideSplitKeys : kPrefillSplitKeys);
  if (wave.splits == 1) return wave;
  const int64_t each = RowPartialBytes(extents, wave.splits);
  const int64_t most = std::min(extents.rows, kMaxGridYZ);  // rows of the sums of splits
  wave.count = std::clamp<int64_t>(most_bytes / each, 1, most);
  wave.bytes = std::max(each, std::min(extents.rows * each, most_bytes));
  return wave;
}

int64_t PartialBytes(const TensorAttentionExtents& extents) {
  if (IsWideHead(extents.head_dim)) return PrefillWave(extents).bytes;
  return std::max({DecodeWave(extents, false).bytes, DecodeWave(extents, true).bytes,
                   PrefillWave(extents).bytes});
}

TiledShape PrefillShape(const TensorAttentionExtents& extents, int64_t count, int capability) {
  const int64_t head = PaddedHead(extents.head_dim, extents.general);
  const int row_tiles = PrefillRowTiles(head, capability);
  const LaunchShape shape = {
      .blocks = {BlocksOfRows(extents, count, kPrefillWarps * row_tiles * kWarpRows),
                 MaxPrefillSplits(extents.max_context)}};
  return WithSlots(shape, kPrefillWarps, PrefillQueryBytes(head, row_tiles), PrefillSlotBytes(head),
                   capability, kPrefillBlocks);
}

TiledShape DecodeShape(const TensorAttentionExtents& extents, const Wave& wave, int capability) {
  const int64_t group = extents.heads / extents.kv_heads,
                head = PaddedHead(extents.head_dim, extents.general);
  const int64_t tiles = (group * wave.rows_each + kWarpRows - 1) / kWarpRows;
  const int warps = DecodeWarps(head);
  const int64_t slot_bytes = warps * kDecodeTileKeys * TileRowBytes(head);
  const int64_t each = extents.kv_heads * tiles * wave.count;  // blocks of each split
  const int64_t splits =
      std::min<int64_t>(wave.splits, std::max<int64_t>(kMinSplitBlocks, kManyBlocks / each));
  const LaunchShape shape = {.blocks = {splits, extents.kv_heads * tiles, wave.count}};
  return WithSlots(shape, warps, QueryBytes(head, 1), slot_bytes, capability, kDecodeBlocks);
}

bool HasWideAttention(int64_t head_dim, int capability) {
  if (!IsWideHead(head_dim) || capability < kAmpere) return false;
  const int64_t room = TileBytes(capability, 1, QueryBytes(head_dim, 1) + WideScoreBytes());
  return room >= kMinTileSlots * WideSlotBytes(head_dim);
}

TiledShape WideShape(const TensorAttentionExtents& extents, int64_t count, int capability) {
  const LaunchShape shape = {.blocks = {BlocksOfRows(extents, count, kWarpRows),
                                        MaxPrefillSplits(extents.max_context, kWideSplitKeys)}};
  return WithSlots(shape, kWideWarps, QueryBytes(extents.head_dim, 1) + WideScoreBytes(),
                   WideSlotBytes(extents.head_dim), capability, 1);
}

LaunchShape CombineShape(int64_t heads, int64_t rows) {
  return {.blocks = {heads, rows}, .threads = {int64_t{kCombineWarps} * kWarpThreads}};
}

}  // namespace tessera::kernels::cuda
