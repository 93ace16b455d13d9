// Attention of wide heads, as latents have: a block takes sixteen rows, and its warps share the
// keys of a tile for their scores and the elements of a head for its sums. Scores pass through
// shared memory; each warp turns all of them into weights, so that they need not pass again.
#include "kernels/cuda/attention/row_blocks.h"
#include "kernels/cuda/attention/warp_rows.h"
#include "kernels/cuda/launch/attention_shapes.h"
#include "kernels/cuda/platform.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

constexpr int kWideThreads = kWideWarps * kWarpThreads;
// Warps that compute scores of the same keys, each by a part of the elements.
constexpr int kKeyWarps = kWideTileKeys / 8, kScoreParts = kWideWarps / kKeyWarps;
static_assert(kScoreParts == 2 && kWideTileKeys == kWarpThreads);

// A warp of the block: all sixteen rows, some of the elements of their means.
template <typename T, int D>
struct WideWarp {
  static constexpr int kSteps = D / 16, kPartSteps = kSteps / kScoreParts;
  static constexpr int kOwn = D / kWideWarps, kFragments = kOwn / 8;
  static_assert(kPartSteps % 2 == 0 && kOwn % 8 == 0);
  using Rows = WarpRows<T, kOwn, true>;

  uint4* queries;  // of the lane, a step behind kWarpThreads others
  float* scores;   // [kScoreParts, kWarpRows, kWideScoreStride]
  Rows own;        // its elements alone; its queries are not used

  __device__ __forceinline__ static int Lane() {
    return static_cast<int>(threadIdx.x) % kWarpThreads;
  }
  __device__ __forceinline__ static int Number() {
    return static_cast<int>(threadIdx.x) / kWarpThreads;
  }

  __device__ __forceinline__ explicit WideWarp(unsigned char* memory)
      : queries(reinterpret_cast<uint4*>(memory) + Lane()),
        scores(reinterpret_cast<float*>(memory + QueryBytes(D, 1))) {
    own.Clear();
  }

  // Its share of the queries, for all warps of the block: a barrier must follow.
  __device__ __forceinline__ void LoadQueries(const SequenceRows& rows, int first,
                                              const TiledParams& p) const {
    const AttentionParams& a = p.attention;
    const auto* const q = static_cast<const unsigned char*>(a.q);
    const unsigned char* of_half[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = min(first + Lane() / 4 + 8 * half, rows.count - 1);
      of_half[half] = rows.ElementsOf(q, a.q_stride, a.dtype, row, p);
    }
    for (int step = Number(); step < kSteps; step += kWideWarps) {
      uint32_t pairs[4];
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const int element = step * 16 + r / 2 * 8 + Lane() % 4 * 2;
        const unsigned char* const row = of_half[r % 2];
        pairs[r] = a.dtype == DType::kF32
                       ? PairWithin<T>(*reinterpret_cast<const float2*>(row + 4 * element))
                       : *reinterpret_cast<const uint32_t*>(row + 2 * element);
      }
      queries[step * kWarpThreads] = {pairs[0], pairs[1], pairs[2], pairs[3]};
    }
  }

  // Products with eight of the keys, over its part of the elements.
  __device__ __forceinline__ void Score(const unsigned char* keys) const {
    const int first_key = Number() % kKeyWarps * 8, part = Number() / kKeyWarps;
    float sums[2][4] = {};  // by turns, so that a product need not wait for the one before
#pragma unroll
    for (int i = 0; i < kPartSteps; i += 2) {
      const int step = part * kPartSteps + i;
      uint32_t b[4];  // of both steps
      LoadMatrices(b, keys + TileLayout<D>::Offset(first_key + Lane() % 8, 2 * step + Lane() / 8));
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const uint4 fragment = queries[(step + j) * kWarpThreads];
        const uint32_t of_step[4] = {fragment.x, fragment.y, fragment.z, fragment.w};
        const uint32_t of_keys[2] = {b[2 * j], b[2 * j + 1]};
        Mma16x8x16<T>(sums[j], of_step, of_keys);
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = Lane() / 4 + 8 * half, key = first_key + Lane() % 4 * 2;
      *reinterpret_cast<float2*>(scores + (part * kWarpRows + row) * kWideScoreStride + key) = {
          sums[0][2 * half] + sums[1][2 * half], sums[0][2 * half + 1] + sums[1][2 * half + 1]};
    }
  }

  // The scores of all keys, behind a barrier.
  __device__ __forceinline__ void ReadScores(float (&read)[1][kWideTileKeys / 8][4]) const {
#pragma unroll
    for (int j = 0; j < kWideTileKeys / 8; ++j) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float* const at =
            scores + (Lane() / 4 + 8 * half) * kWideScoreStride + 8 * j + Lane() % 4 * 2;
        const float2 low = *reinterpret_cast<const float2*>(at);
        const float2 high = *reinterpret_cast<const float2*>(at + kWarpRows * kWideScoreStride);
        read[0][j][2 * half] = low.x + high.x;
        read[0][j][2 * half + 1] = low.y + high.y;
      }
    }
  }

  __device__ __forceinline__ void AddValues(const unsigned char* values,
                                            const uint32_t (&weights)[1][kWideTileKeys / 16][4]) {
    const int first_chunk = Number() * kFragments;
#pragma unroll
    for (int n = 0; n < kFragments; ++n) {
      uint32_t b[4];  // of all keys, sixteen and sixteen
      LoadMatricesTransposed(b, values + TileLayout<D>::Offset(Lane(), first_chunk + n));
      const uint32_t low[2] = {b[0], b[1]}, high[2] = {b[2], b[3]};
      Mma16x8x16<T>(own.out[0][n], weights[0][0], low);
      Mma16x8x16<T>(own.out[0][n], weights[0][1], high);
    }
  }

  // The means of a row, or what a split leaves behind.
  __device__ __forceinline__ void Store(int half, const RowBlock<kWarpRows>& block, int row,
                                        int wave_row, const TiledParams& p) const {
    const AttentionParams& a = p.attention;
    const Splits splits = Splits::Of<true, true>(false, block.rows.PositionOf(row, p) + 1, a);
    if (!splits.Has(block.split)) return;
    const int64_t head = block.rows.HeadOf(row, p);
    const int first = Number() * kOwn;
    if (splits.count() == 1) {
      const int bytes = a.out_dtype == DType::kF32 ? 4 : 2;
      own.Store(0, half, head, a, block.rows.OutputsOf(row, p) + first * bytes);
      return;
    }
    float* const partial = PartialOf(wave_row, head, block.split, p);
#pragma unroll
    for (int n = 0; n < kFragments; ++n) {
      *reinterpret_cast<float2*>(partial + first + 8 * n + Lane() % 4 * 2) = {
          own.out[0][n][2 * half], own.out[0][n][2 * half + 1]};
    }
    if (Number() == 0 && Lane() % 4 == 0) {
      *reinterpret_cast<float2*>(partial + D) = {own.largest[0][half], own.total[0][half]};
    }
  }
};

template <typename T, int D>
__global__ void __launch_bounds__(kWideThreads) WideKernel(TiledParams p) {
  TESSERA_DYNAMIC_SHARED(memory);
  constexpr int kKeys = kWideTileKeys;
  static_assert(kWideSplitKeys % kKeys == 0);  // a row's sums are made alike in every block
  const AttentionParams& a = p.attention;
  const auto block = RowBlock<kWarpRows>::template Of<kWideSplitKeys, true>(p, 0);
  const SequenceRows& rows = block.rows;
  if (block.begin >= block.end) {  // the whole block
    WaitForEarlierLaunches();
    return;
  }
  const int first_tile = block.begin / kKeys;
  const int tiles = (block.end + kKeys - 1) / kKeys - first_tile;
  TileRing<D, false, kKeys, kWideThreads> ring(memory + QueryBytes(D, 1) + WideScoreBytes(),
                                               PagesOf(rows, block.begin, block.end, p), first_tile,
                                               1, tiles, p);
  WaitForEarlierLaunches();
  LetNextLaunchBegin();
  ring.Begin();
  WideWarp<T, D> warp(memory);
  warp.LoadQueries(rows, block.first, p);
  const int first_end = rows.PositionOf(block.first, p) + 1;
  const int last_end = rows.PositionOf(block.first + kWarpRows - 1, p) + 1;
  const auto end_of = [&](int i) {
    return rows.PositionOf(block.first + WideWarp<T, D>::Lane() / 4 + i * 8, p) + 1;
  };
  for (int i = 0; i < tiles; ++i) {
    const int first_key = (first_tile + i) * kKeys;
    warp.Score(ring.Next());
    __syncthreads();
    float scores[1][kKeys / 8][4];
    uint32_t weights[1][kKeys / 16][4];
    warp.ReadScores(scores);
    using Rows = typename WideWarp<T, D>::Rows;
    if (a.soft_cap > 0) Rows::template Cap<kKeys>(scores, a);
    if (a.chunked || first_key < last_end - WindowOf(a) || first_key + kKeys > first_end) {
      Rows::template Hide<kKeys>(scores, first_key, end_of, a);
    }
    warp.own.template Weigh<kKeys>(scores, p.scale_log2);
    Rows::template RoundWeights<kKeys>(scores, weights);
    warp.AddValues(ring.Next(), weights);
  }
  WaitCopies<0>();
  warp.own.AddTotals();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = block.first + WideWarp<T, D>::Lane() / 4 + 8 * half;
    const int wave_row = block.WaveRow(row, p);
    if (wave_row != block.kNoRow) warp.Store(half, block, row, wave_row, p);
  }
}

template <typename T>
cudaError_t LaunchOf(const TiledParams& p, const LaunchShape& shape, cudaStream_t stream) {
  if (p.attention.head_dim == 512) return LaunchEarly(WideKernel<T, 512>, shape, stream, p);
  return LaunchEarly(WideKernel<T, 576>, shape, stream, p);
}

}  // namespace

cudaError_t LaunchWideAttention(const TensorAttentionParams& params, cudaStream_t stream) {
  const AttentionParams& a = params.attention;
  if (a.rows == 0 || a.sequences == 0 || a.heads == 0) return cudaSuccess;
  if (!HasWideAttention(a.head_dim, params.capability)) return cudaErrorInvalidValue;
  const TensorAttentionExtents extents = ExtentsOf(params);
  const Wave wave = PrefillWave(extents, params.wave_bytes);
  for (int64_t first = 0; first < a.rows; first += wave.count) {
    TiledParams tiled_params = TiledParamsOf(params, 0, wave, false, first);
    const TiledShape tiled = WideShape(extents, tiled_params.count, params.capability);
    tiled_params.slots = tiled.slots;
    cudaError_t error = a.cache_dtype == DType::kBF16
                            ? LaunchOf<BFloat16>(tiled_params, tiled.shape, stream)
                            : LaunchOf<Float16>(tiled_params, tiled.shape, stream);
    if (error == cudaSuccess && wave.splits > 1) error = LaunchCombine(tiled_params, stream);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
