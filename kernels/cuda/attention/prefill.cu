// Attention of sequences with many rows: a block takes 64 or 128 rows, each of its four warps a
// quarter of them, and the keys and values that they see of a split in tiles. Where a row sees keys
// of several splits, a second kernel adds them up (combine.cu).
#include "kernels/cuda/attention/row_blocks.h"
#include "kernels/cuda/attention/warp_rows.h"
#include "kernels/cuda/launch/attention_shapes.h"
#include "kernels/cuda/platform.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

constexpr int kPrefillThreads = kPrefillWarps * kWarpThreads;

template <typename T, int D, bool kPadded, int kRowTiles>
__global__ void __launch_bounds__(kPrefillThreads, 2) PrefillKernel(TiledParams p) {
  TESSERA_DYNAMIC_SHARED(memory);
  constexpr int kKeys = PrefillTileKeys(D), kRows = kRowTiles * kWarpRows;
  constexpr int kBlockRows = kPrefillWarps * kRows, kQueryBytes = QueryBytes(D, kRowTiles);
  const AttentionParams& a = p.attention;
  const auto block = RowBlock<kBlockRows>::template Of<kPrefillSplitKeys, kPadded>(p, kFewRows);
  const SequenceRows& rows = block.rows;
  const int begin = block.begin, end = block.end;
  if (begin >= end) {  // the whole block
    WaitForEarlierLaunches();
    return;
  }

  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int number = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int first = block.first + number * kRows;
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
  warp.Attend(ring, first_tile, 1, tiles, first < rows.count, seen, end_of, p);
#pragma unroll
  for (int i = 0; i < 2 * kRowTiles; ++i) {
    const int row = first + lane / 4 + i * 8;
    const int wave_row = block.WaveRow(row, p);
    const Splits splits = Splits::Of<kPadded>(false, rows.PositionOf(row, p) + 1, a);
    if (wave_row == block.kNoRow || !splits.Has(block.split)) continue;
    warp.StoreSplit(i / 2, i % 2, rows, row, wave_row, block.split, splits, p);
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
    cudaError_t error = WithCacheOf(a, extents.general, [&](auto type, auto head_dim, auto padded) {
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
