// How attention over keys and values in 8 bits (kernels/cuda/attention/code_attention.h) is
// launched: which caches it takes, where a context is split, how many launches a call is.
//
// What decides the bits of a row (where a context is split, and that rows of few are split at all)
// depends on positions and on the rows of its own sequence alone. Pure functions, compiled for
// every platform; thread-safe.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch/launch_shape.h"

namespace tessera::kernels::cuda {

inline constexpr int kCodeWarps = 4;      // of a block
inline constexpr int kCodeWarpRows = 16;  // of a warp: of a product
inline constexpr int kCodeTileKeys = 16;  // that a warp takes at a time
// A sequence with so many rows in a call, or fewer, has its context split, each split a warp's.
inline constexpr int kCodeFewRows = 8;
inline constexpr int kCodeSplitKeys = 256;
inline constexpr int kMinCodeSlots = 2, kMaxCodeSlots = 4;  // tiles of a warp in shared memory
// What splits leave behind takes no more memory, if that is enough for one sequence.
inline constexpr int64_t kMaxCodePartialBytes = int64_t{96} << 20;

// The head sizes that kernels are compiled for. A tile of keys lies in one block of the cache.
constexpr bool HasCodeAttention(int64_t head_dim, int64_t block_tokens) {
  const bool size = head_dim == 64 || head_dim == 96 || head_dim == 128 || head_dim == 256;
  return size && block_tokens > 0 && block_tokens % kCodeTileKeys == 0;
}

// Bytes of a key, or a value, of one head: codes and a scale.
constexpr int64_t CodeRowBytes(int64_t head_dim) { return head_dim + 4; }
// Shared memory of a warp: its queries, and a tile of keys and values.
constexpr int64_t CodeQueryBytes(int64_t head_dim) { return 2 * kCodeWarpRows * head_dim; }
constexpr int64_t CodeTileBytes(int64_t head_dim) {
  return 2 * kCodeTileKeys * CodeRowBytes(head_dim);
}

struct CodeExtents {
  int64_t rows = 0, sequences = 0, heads = 0, kv_heads = 0, head_dim = 0;
  int64_t max_context = 0;          // no context has more keys
  int64_t few_rows = kCodeFewRows;  // of sequences that are split: 1 where none has more
};

// Splits of a context at most.
constexpr int64_t CodeSplits(int64_t max_context) {
  return max_context < 1 ? 1 : (max_context + kCodeSplitKeys - 1) / kCodeSplitKeys;
}

// Sequences of few rows that a launch takes, and rows of each for which there is room.
struct CodeWave {
  int64_t sequences = 0, rows_each = 0;
};
CodeWave CodeWaveOf(const CodeExtents& extents);
// Memory for what the splits of a wave leave behind, whatever few_rows is: a row of each sequence,
// or the rows of one. 0 where there is nothing to compute.
int64_t CodePartialBytes(const CodeExtents& extents);

// Tiles that a warp has in shared memory; 0: the GPU has no room for the least.
int CodeSlots(int64_t head_dim, int capability);

// Sequences of few rows: blocks (groups of splits, kv heads times tiles of rows, sequences of the
// wave).
LaunchShape FewCodeRowsShape(const CodeExtents& extents, const CodeWave& wave, int slots);
// Sequences of many: a block for each kCodeWarps tiles of rows; those of sequence s begin with
// number query_starts[s] * group / (rows of a block) + s.
LaunchShape ManyCodeRowsShape(const CodeExtents& extents, int slots);
// Blocks (heads, rows of the wave), a thread per element of a head.
LaunchShape CodeCombineShape(const CodeExtents& extents, const CodeWave& wave);

}  // namespace tessera::kernels::cuda
