#include "kernels/cuda/launch/code_attention_shapes.h"

#include <algorithm>

#include "kernels/cuda/launch/gpu_limits.h"

namespace tessera::kernels::cuda {
namespace {

constexpr int64_t kBlocksOfMultiprocessor = 2;

int64_t Ceil(int64_t a, int64_t b) { return (a + b - 1) / b; }

// A row leaves sums, its largest score and its total weight of each split and head.
int64_t RowPartialBytes(const CodeExtents& extents) {
  return extents.heads * CodeSplits(extents.max_context) * (extents.head_dim + 2) *
         int64_t{sizeof(float)};
}

LaunchShape WithThreads(LaunchShape::Extent blocks, int64_t head_dim, int slots) {
  return {
      .blocks = blocks,
      .threads = {int64_t{kCodeWarps} * kWarpThreads},
      .shared_bytes = kCodeWarps * (CodeQueryBytes(head_dim) + slots * CodeTileBytes(head_dim))};
}

}  // namespace

CodeWave CodeWaveOf(const CodeExtents& extents) {
  if (extents.rows < 1 || extents.sequences < 1 || extents.heads < 1) return {};
  CodeWave wave;
  wave.rows_each = std::min(extents.few_rows, extents.rows);
  const int64_t sequence_bytes = wave.rows_each * RowPartialBytes(extents);
  wave.sequences = std::clamp<int64_t>(CodePartialBytes(extents) / sequence_bytes, 1,
                                       std::min(extents.sequences, kMaxGridYZ / kCodeFewRows));
  return wave;
}

int64_t CodePartialBytes(const CodeExtents& extents) {
  if (extents.rows < 1 || extents.sequences < 1 || extents.heads < 1) return 0;
  const int64_t row_bytes = RowPartialBytes(extents);
  const int64_t all = std::min(kMaxCodePartialBytes, extents.sequences * row_bytes);
  return std::max(all, std::min<int64_t>(kCodeFewRows, extents.rows) * row_bytes);
}

int CodeSlots(int64_t head_dim, int capability) {
  for (const int64_t blocks : {kBlocksOfMultiprocessor, int64_t{1}}) {
    const int64_t of_warp = BlockSharedBytes(capability, blocks) / kCodeWarps;
    const int64_t slots = (of_warp - CodeQueryBytes(head_dim)) / CodeTileBytes(head_dim);
    if (slots >= kMinCodeSlots) return static_cast<int>(std::min<int64_t>(slots, kMaxCodeSlots));
  }
  return 0;
}

LaunchShape FewCodeRowsShape(const CodeExtents& extents, const CodeWave& wave, int slots) {
  const int64_t group = extents.heads / extents.kv_heads;
  const int64_t tiles = Ceil(wave.rows_each * group, kCodeWarpRows);
  return WithThreads(
      {Ceil(CodeSplits(extents.max_context), kCodeWarps), extents.kv_heads * tiles, wave.sequences},
      extents.head_dim, slots);
}

LaunchShape ManyCodeRowsShape(const CodeExtents& extents, int slots) {
  constexpr int64_t kBlockRows = int64_t{kCodeWarps} * kCodeWarpRows;
  const int64_t group = extents.heads / extents.kv_heads;
  const int64_t tiles = extents.rows * group / kBlockRows + extents.sequences;
  return WithThreads({tiles, extents.kv_heads}, extents.head_dim, slots);
}

LaunchShape CodeCombineShape(const CodeExtents& extents, const CodeWave& wave) {
  return {.blocks = {extents.heads, wave.sequences * wave.rows_each},
          .threads = {extents.head_dim}};
}

}  // namespace tessera::kernels::cuda
