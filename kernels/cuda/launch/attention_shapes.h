// How attention on tensor cores (kernels/cuda/attention) is launched: which head sizes it takes,
// how large its tiles are, how a context is split, and how much shared memory each architecture
// gives.
//
// What decides the bits of a row (the width of a tile, where a context is split) depends on the
// head size and on positions alone; the architecture chooses only how many rows a block has, and
// how many tiles are on their way to it, the batch only how many splits a block has, and how many
// launches there are. Pure functions, compiled for every platform. Extents are 1 or more.
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
// A sequence with so many rows in a call, or fewer, is decode's; one with more is prefill's.
inline constexpr int kFewRows = 8;
// Decode splits a context every kSplitKeys keys, and from kLongContext keys on every
// kLongSplitKeys; prefill splits it every kPrefillSplitKeys, of wide heads kWideSplitKeys.
inline constexpr int kSplitKeys = 256;
inline constexpr int kLongContext = 8192;
inline constexpr int kLongSplitKeys = 1024;
inline constexpr int kPrefillSplitKeys = 4096;
// Splits of a sequence that have blocks of their own, however many blocks there are.
inline constexpr int kMinSplitBlocks = 32;
// So many blocks of decode fill every GPU: beyond them a block computes several splits.
inline constexpr int64_t kManyBlocks = 4096;
// What splits leave behind takes no more memory, if that is enough for one sequence (decode) or one
// row (prefill): there are as many launches as it takes.
inline constexpr int64_t kMaxPartialBytes = int64_t{144} << 20;
// Blocks that registers of a multiprocessor have room for.
inline constexpr int kDecodeBlocks = 4;
// Warps that add up the splits of a row's head, by turns.
inline constexpr int kCombineWarps = 4;
inline constexpr int kMinTileSlots = 2;
inline constexpr int kMaxTileSlots = 4;

// A row of keys is read in pieces of 16 bytes.
inline constexpr int kMaxTiledHead = 256;
constexpr bool HasTensorAttention(int64_t head_dim) {
  return head_dim % 8 == 0 && head_dim >= 64 && head_dim <= kMaxTiledHead;
}

// Wide heads: those of layers that see everything in Gemma 4, and of latents (DeepSeek's, Kimi's).
// A block's warps share the rows of one product, and each sums a part of a head's elements. Many
// rows and few are alike.
inline constexpr int kWideWarps = 8;
inline constexpr int kWideTileKeys = 32;
inline constexpr int kWideSplitKeys = 1024;
constexpr bool IsWideHead(int64_t head_dim) { return head_dim == 512 || head_dim == 576; }
// Whether a block fits in the GPU's shared memory.
bool HasWideAttention(int64_t head_dim, int capability);

// The head size that kernels are compiled for: of others rows end in zeros in shared memory. The
// functions below take this one.
// `general`: as in TensorAttentionExtents.
constexpr int64_t PaddedHead(int64_t head_dim, bool general = false) {
  const bool exact = !general && (head_dim == 64 || head_dim == 80 || head_dim == 96);
  if (exact || IsWideHead(head_dim)) return head_dim;
  return head_dim <= 128 ? 128 : 256;
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

// The decode split that a key is in, and the first key of a split.
constexpr int SplitOf(int key) {
  constexpr int kShort = kLongContext / kSplitKeys;
  return key < kLongContext ? key / kSplitKeys : kShort + (key - kLongContext) / kLongSplitKeys;
}
constexpr int FirstKeyOfSplit(int split) {
  constexpr int kShort = kLongContext / kSplitKeys;
  return split < kShort ? split * kSplitKeys : kLongContext + (split - kShort) * kLongSplitKeys;
}

// The most splits that a context of up to so many keys may have.
constexpr int MaxSplits(int64_t max_context) {
  return max_context < 1 ? 1 : SplitOf(static_cast<int>(max_context - 1)) + 1;
}
constexpr int MaxPrefillSplits(int64_t max_context, int split_keys = kPrefillSplitKeys) {
  const int64_t splits = (max_context + split_keys - 1) / split_keys;
  return static_cast<int>(splits < 1 ? 1 : splits);
}

// What a launch depends on. `rows` and `max_context` are bounds: which sequence has how many of
// them is known to the device alone.
struct TensorAttentionExtents {
  int64_t rows = 0, sequences = 0, heads = 0, kv_heads = 0, head_dim = 0, max_context = 0;
  bool general = false;  // scores have a soft cap, or contexts several chunks
};

// How many sequences (decode) or rows of the call (prefill, and wide heads) a launch takes, each of
// which has so many rows and splits, and room for what all of it leaves behind: of each split of
// each row and head head_dim sums of values, the largest score, the sum of weights: no less than
// for a call that is smaller in any way. Where no context has two splits: nothing, and all in one
// launch.
struct Wave {
  int64_t count = 0;
  int rows_each = 1, splits = 1;
  int64_t bytes = 0;
};
// `one_row`: no sequence has two to kFewRows rows. `most_bytes`: of a wave, unless one sequence or
// one row takes more.
Wave DecodeWave(const TensorAttentionExtents& extents, bool one_row,
                int64_t most_bytes = kMaxPartialBytes);
Wave PrefillWave(const TensorAttentionExtents& extents, int64_t most_bytes = kMaxPartialBytes);
// Enough for all waves of both.
int64_t PartialBytes(const TensorAttentionExtents& extents);

// A launch, and how many tiles its blocks (prefill) or warps (decode) have room for: in shared
// memory behind the queries, which a prefill block has of each warp and a decode block once.
struct TiledShape {
  LaunchShape shape;
  int slots = kMinTileSlots;
};

// Blocks (kv heads x tiles of a sequence's rows, as many as all warps have, splits), of a wave of
// `count` rows. `capability` is 90 for 9.0.
TiledShape PrefillShape(const TensorAttentionExtents& extents, int64_t count, int capability);
// Blocks (splits by turns, kv heads x tiles of kWarpRows of the heads of a sequence's rows,
// sequences), of a wave.
TiledShape DecodeShape(const TensorAttentionExtents& extents, const Wave& wave, int capability);
// Wide heads: blocks (kv heads x tiles of kWarpRows of the heads of a sequence's rows, splits),
// of a wave of `count` rows. Shared memory: the queries, two sums of each score, tiles of keys or
// values.
TiledShape WideShape(const TensorAttentionExtents& extents, int64_t count, int capability);
// Elements between the rows of scores there.
inline constexpr int kWideScoreStride = kWideTileKeys + 8;
constexpr int WideScoreBytes() { return 2 * kWarpRows * kWideScoreStride * 4; }
// Blocks (heads, rows), kCombineWarps each.
LaunchShape CombineShape(int64_t heads, int64_t rows);

}  // namespace tessera::kernels::cuda
