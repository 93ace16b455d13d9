// Attention of sequences with many rows: a block takes 64 or 128 rows, each of its four warps a
// quarter of them, and the keys and values that they see of a split in tiles. Where a row sees keys
// of several splits, a second kernel adds them up (combine.cu).
#include "kernels/cuda/attention/warp_rows.h"
#include "kernels/cuda/launch/attention_shapes.h"
#include "kernels/cuda/platform.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

constexpr int kPrefillThreads = kPrefillWarps * kWarpThreads;

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

template <typename T, int D, bool kPadded, int kRowTiles>
__global__ void __launch_bounds__(kPrefillThreads, 2) PrefillKernel(TiledParams p) {
  TESSERA_DYNAMIC_SHARED(memory);
  constexpr int kKeys = PrefillTileKeys(D), kRows = kRowTiles * kWarpRows;
  constexpr int kBlockRows = kPrefillWarps * kRows, kQueryBytes = QueryBytes(D, kRowTiles);
  const AttentionParams& a = p.attention;
  // What does not change from launch to launch is read before the wait for those in front: which
  // rows there are, and the block table. Of all heads the rows with the longest contexts begin
  // first, those that end last.
  const int kv_heads = static_cast<int>(a.kv_heads);
  const int from_end = static_cast<int>(blockIdx.x) / kv_heads;
  const int kv_head = static_cast<int>(blockIdx.x) % kv_heads;
  const int first_tile_of_wave = p.first * p.group.number / kBlockRows;
  const int tile = first_tile_of_wave + static_cast<int>(gridDim.x) / kv_heads - 1 - from_end;
  const int sequence = SequenceOfTile<kBlockRows>(tile, p);
  const int first_row = a.query_starts[sequence], end_row = a.query_starts[sequence + 1];
  const SequenceRows rows = {sequence, kv_head, first_row, (end_row - first_row) * p.group.number,
                             a.context_lengths[sequence] - (end_row - first_row)};
  const int first_of_block = (tile - FirstTileOf<kBlockRows>(sequence, p)) * kBlockRows;
  if (end_row - first_row <= kFewRows || first_of_block >= rows.count) {  // the whole block
    WaitForEarlierLaunches();
    return;
  }
  const int last_of_block = min(first_of_block + kBlockRows, rows.count) - 1;
  const int split = static_cast<int>(blockIdx.y);
  // Keys of the split that a row of the block sees.
  const int begin =
      max(split * kPrefillSplitKeys, FirstKey(rows.PositionOf(first_of_block, p) + 1, a));
  const int end = min((split + 1) * kPrefillSplitKeys, rows.PositionOf(last_of_block, p) + 1);
  const bool in_wave = first_row + p.group.Of(last_of_block) >= p.first &&
                       first_row + p.group.Of(first_of_block) < p.first + p.count;
  if (begin >= end || !in_wave) {
    WaitForEarlierLaunches();
    return;
  }

  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int number = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int first = first_of_block + number * kRows;
  // Tiles begin at multiples of kKeys: a row's sums are made alike in every block.
  static_assert(kPrefillSplitKeys % kKeys == 0);
  const int first_tile = begin / kKeys, tiles = (end + kKeys - 1) / kKeys - first_tile;
  TileRing<D, kPadded, kKeys, kPrefillThreads> ring(
      memory + kPrefillWarps * kQueryBytes, PagesOf(rows, begin, end, p), first_tile, 1, tiles, p);
  WaitForEarlierLaunches();
  LetNextLaunchBegin();
  ring.Begin();
  WarpRows<T, D, kPadded, kRowTiles> warp;
  warp.Begin(rows, first, p, memory + number * kQueryBytes);
  const KeysSeen seen = {rows.PositionOf(first, p) + 1, rows.PositionOf(first + kRows - 1, p) + 1,
                         WindowOf(a)};
  // Found again for the few tiles of which a row sees a part.
  const auto end_of = [&](int i) {
    return rows.PositionOf(ComputedHere(first) + lane / 4 + i * 8, p) + 1;
  };
  warp.Attend(ring, first_tile, 1, tiles, first < rows.count, seen, end_of, p.scale_log2);
#pragma unroll
  for (int i = 0; i < 2 * kRowTiles; ++i) {
    const int row = first + lane / 4 + i * 8;
    const int wave_row = first_row + p.group.Of(row) - p.first;
    const Splits splits = Splits::Of(false, rows.PositionOf(row, p) + 1, a);
    const bool stores = row < rows.count && wave_row >= 0 && wave_row < p.count;
    if (!stores || !splits.Has(split)) continue;
    warp.StoreSplit(i / 2, i % 2, rows, row, wave_row, split, splits, p);
  }
}

}  // namespace

cudaError_t LaunchPrefillAttention(const TensorAttentionParams& params, cudaStream_t stream) {
  const AttentionParams& a = params.attention;
  if (a.rows <= kFewRows || a.sequences == 0 || a.heads == 0) return cudaSuccess;
  const TensorAttentionExtents extents = ExtentsOf(params);
  const Wave wave = PrefillWave(extents, params.wave_bytes);
  for (int64_t first = 0; first < a.rows; first += wave.count) {
    TiledParams tiled_params = TiledParamsOf(params, 0, wave, false, first);
    const TiledShape tiled = PrefillShape(extents, tiled_params.count, params.capability);
    tiled_params.slots = tiled.slots;
    cudaError_t error = WithCacheOf(a, [&](auto type, auto head_dim, auto padded) {
      using T = decltype(type);
      constexpr int D = decltype(head_dim)::value;
      constexpr bool kPadded = decltype(padded)::value;
      if constexpr (MaxPrefillRowTiles(D) == 2) {
        if (PrefillRowTiles(D, params.capability) == 2) {
          return LaunchEarly(PrefillKernel<T, D, kPadded, 2>, tiled.shape, stream, tiled_params);
        }
      }
      return LaunchEarly(PrefillKernel<T, D, kPadded, 1>, tiled.shape, stream, tiled_params);
    });
    if (error == cudaSuccess && wave.splits > 1) error = LaunchCombine(tiled_params, stream);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
