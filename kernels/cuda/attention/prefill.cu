// Attention of sequences with several rows: a block takes 64 rows, each of its four warps 16 of
// them, and the keys and values that they see in tiles.
#include "kernels/cuda/attention/warp_rows.h"
#include "kernels/cuda/launch/attention_shapes.h"
#include "kernels/cuda/platform.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

constexpr int kPrefillThreads = kPrefillWarps * kWarpThreads;

// The tiles of a sequence begin with this one: there are as many as its rows need, and at times one
// more. So a block finds its sequence by the starts alone.
__device__ __forceinline__ int FirstTileOf(int sequence, const TiledParams& p) {
  return p.attention.query_starts[sequence] * p.group / kPrefillRows + sequence;
}

// The last sequence whose tiles begin at or before this one.
__device__ __forceinline__ int SequenceOfTile(int tile, const TiledParams& p) {
  int low = 0, high = static_cast<int>(p.attention.sequences);
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (FirstTileOf(middle, p) <= tile ? low : high) = middle;
  }
  return low;
}

template <typename T, int D>
__global__ void __launch_bounds__(kPrefillThreads, 2) PrefillKernel(TiledParams p) {
  TESSERA_DYNAMIC_SHARED(memory);
  constexpr int kKeys = PrefillTileKeys(D);
  const AttentionParams& a = p.attention;
  // Rows with the longest contexts begin first.
  const int tile = static_cast<int>(gridDim.x - 1 - blockIdx.x);
  const int sequence = SequenceOfTile(tile, p);
  const int first_row = a.query_starts[sequence], end_row = a.query_starts[sequence + 1];
  const SequenceRows rows = {sequence, static_cast<int>(blockIdx.y), first_row,
                             (end_row - first_row) * p.group,
                             a.context_lengths[sequence] - (end_row - first_row)};
  const int first_of_block = (tile - FirstTileOf(sequence, p)) * kPrefillRows;
  if (end_row - first_row < 2 || first_of_block >= rows.count) return;  // the whole block

  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int number = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int first = first_of_block + number * kWarpRows;
  const int begin = FirstKey(rows.PositionOf(first_of_block, p) + 1, a);
  const int end = rows.PositionOf(first_of_block + kPrefillRows - 1, p) + 1;
  // Tiles begin at multiples of kKeys: a row's sums are made alike in every block.
  const int first_tile = begin / kKeys, tiles = (end + kKeys - 1) / kKeys - first_tile;
  TileRing<D, kKeys, kPrefillThreads> ring(memory + kPrefillWarps * QueryBytes(D),
                                           PagesOf(rows, begin, end, p), first_tile, 1, tiles, p);
  WarpRows<T, D> warp;
  warp.Begin(rows, first, p, memory + number * QueryBytes(D));
  warp.Attend(ring, first_tile, 1, tiles, first < rows.count, KeysSeenBy(rows, first, p),
              p.scale_log2);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first + lane / 4 + half * 8;
    unsigned char* const out =
        rows.ElementsOf(static_cast<unsigned char*>(a.out), a.out_stride, row, p);
    if (out == nullptr) continue;
    const float factor = 1 / warp.total[half];
#pragma unroll
    for (int i = 0; i < D / 8; ++i) {
      StorePair<T>(out, i * 8 + lane % 4 * 2, a.dtype, warp.out[i][2 * half] * factor,
                   warp.out[i][2 * half + 1] * factor);
    }
  }
}

}  // namespace

cudaError_t LaunchPrefillAttention(const TensorAttentionParams& params, cudaStream_t stream) {
  const AttentionParams& a = params.attention;
  if (a.rows < 2 || a.sequences == 0 || a.heads == 0) return cudaSuccess;
  const TiledShape tiled = PrefillShape(ExtentsOf(params), params.capability);
  return WithCacheOf(a, [&](auto type, auto head_dim) {
    return Launch(PrefillKernel<decltype(type), decltype(head_dim)::value>, tiled.shape, stream,
                  TiledParamsOf(params, tiled.slots));
  });
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
