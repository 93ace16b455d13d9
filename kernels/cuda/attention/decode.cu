// Attention of sequences with few rows. Contexts are split at fixed positions, and a block takes a
// split, or several one behind the other: its warps take turns at tiles of 16 keys for the same
// rows. Which warp a tile is of depends on its position alone: a row's sums are those that it has
// without the other rows of its sequence. Where there are several splits, a second kernel adds them
// up (combine.cu).
#include "kernels/cuda/attention/warp_rows.h"
#include "kernels/cuda/launch/attention_shapes.h"
#include "kernels/cuda/platform.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

// Sums of a warp as they stand in shared memory: an element of all 32 lanes behind the other.
template <int D>
inline constexpr int kSumsOfLane = D / 2 + 4;
template <int D>
inline constexpr int kSumsOfWarp = kSumsOfLane<D>* kWarpThreads;

template <typename T, int D, bool kPadded>
using DecodeRows = WarpRows<T, D, kPadded, 1, DecodeWarps(D)>;

template <typename T, int D, bool kPadded>
__device__ __forceinline__ void PutSums(const DecodeRows<T, D, kPadded>& warp, float* sums) {
#pragma unroll
  for (int i = 0; i < D / 2; ++i) sums[i * kWarpThreads] = warp.out[0][i / 4][i % 4];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    sums[(D / 2 + half) * kWarpThreads] = warp.largest[0][half];
    sums[(D / 2 + 2 + half) * kWarpThreads] = warp.total[0][half];
  }
}

template <typename T, int D, bool kPadded>
__device__ __forceinline__ void AddSums(DecodeRows<T, D, kPadded>& warp, const float* sums) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float largest = sums[(D / 2 + half) * kWarpThreads];
    const float most = fmaxf(warp.largest[0][half], largest);
    const float base = most == -INFINITY ? 0 : most;
    const float own = Exp2(warp.largest[0][half] - base), other = Exp2(largest - base);
    warp.largest[0][half] = most;
    warp.total[0][half] =
        warp.total[0][half] * own + sums[(D / 2 + 2 + half) * kWarpThreads] * other;
#pragma unroll
    for (int i = 0; i < D / 8; ++i) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float& sum = warp.out[0][i][2 * half + j];
        sum = sum * own + sums[(i * 4 + 2 * half + j) * kWarpThreads] * other;
      }
    }
  }
}

// The sums of all warps in the first one: of four 0 + 2 and 1 + 3, then the two.
template <typename T, int D, bool kPadded>
__device__ __forceinline__ void AddWarps(DecodeRows<T, D, kPadded>& warp, float* shared) {
  const int number = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
#pragma unroll
  for (int warps = DecodeWarps(D) / 2; warps > 0; warps /= 2) {
    __syncthreads();  // before what lies in shared memory is overwritten
    if (number >= warps && number < 2 * warps) {
      PutSums<T, D, kPadded>(warp, shared + (number - warps) * kSumsOfWarp<D> + lane);
    }
    __syncthreads();
    if (number < warps) AddSums<T, D, kPadded>(warp, shared + number * kSumsOfWarp<D> + lane);
  }
}

// The rows of one tile over one split, up to the sums of the block's first warp. The launch before
// is waited for behind what does not depend on it; of further splits that costs nothing.
template <typename T, int D, bool kPadded>
__device__ __forceinline__ void AttendSplit(const SequenceRows& rows, int first, int split,
                                            unsigned char* memory, const TiledParams& p,
                                            DecodeRows<T, D, kPadded>& warp) {
  constexpr int kKeys = kDecodeTileKeys, kWarps = DecodeWarps(D);
  const AttentionParams& a = p.attention;
  const int number = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const KeysSeen seen = {rows.PositionOf(first, p) + 1,
                         rows.PositionOf(first + kWarpRows - 1, p) + 1, WindowOf(a)};
  const int begin = max(FirstKeyOfSplit(split), FirstKey<kPadded>(seen.first_end, a));
  const int end = min(FirstKeyOfSplit(split + 1), seen.last_end);
  // Tile i is warp i % kWarps's.
  static_assert((kWarps & (kWarps - 1)) == 0 && kSplitKeys % (kKeys * kWarps) == 0);
  const int skipped = (number - begin / kKeys) & (kWarps - 1);
  const int first_tile = begin / kKeys + skipped, end_tile = (end + kKeys - 1) / kKeys;
  const int tiles = max(0, end_tile - first_tile + kWarps - 1) / kWarps;
  using Ring = TileRing<D, kPadded, kKeys, kWarpThreads>;
  unsigned char* const tiles_memory = memory + QueryBytes(D, 1);
  Ring ring(tiles_memory + number * p.slots * Ring::kTileBytes, PagesOf(rows, begin, end, p),
            first_tile, kWarps, tiles, p);
  WaitForEarlierLaunches();
  LetNextLaunchBegin();
  ring.Begin();
  warp.Begin(rows, first, p, memory);
  if constexpr (DecodeRows<T, D, kPadded>::kQueriesInShared) __syncthreads();
  // Found again for the few tiles of which a row sees a part.
  const auto end_of = [&](int i) {
    return rows.PositionOf(ComputedHere(first) + lane / 4 + i * 8, p) + 1;
  };
  warp.Attend(ring, first_tile, kWarps, tiles, true, seen, end_of, p);
  static_assert(kWarps / 2 * kSumsOfWarp<D> * sizeof(float) <=
                kMinTileSlots * kWarps * Ring::kTileBytes);
  AddWarps<T, D, kPadded>(warp, reinterpret_cast<float*>(tiles_memory));
}

// Splits of which a row of a tile sees a key.
template <bool kGeneral>
__device__ __forceinline__ Splits SplitsOfTile(const SequenceRows& rows, int first,
                                               const TiledParams& p) {
  const AttentionParams& a = p.attention;
  return {Splits::Of<kGeneral>(true, rows.PositionOf(first, p) + 1, a).begin,
          Splits::Of<kGeneral>(true, rows.PositionOf(first + kWarpRows - 1, p) + 1, a).end};
}

template <typename T, int D, bool kPadded>
__global__ void __launch_bounds__(DecodeWarps(D) * kWarpThreads, kDecodeBlocks)
    DecodeKernel(TiledParams p) {
  TESSERA_DYNAMIC_SHARED(memory);
  const AttentionParams& a = p.attention;
  const int sequence = p.first + static_cast<int>(blockIdx.z);
  const int first_row = a.query_starts[sequence], context = a.context_lengths[sequence];
  const int row_count = a.query_starts[sequence + 1] - first_row;
  const int tiles = static_cast<int>(gridDim.y) / static_cast<int>(a.kv_heads);
  const int kv_head = static_cast<int>(blockIdx.y) / tiles;
  const int first = static_cast<int>(blockIdx.y) % tiles * kWarpRows;
  const SequenceRows rows = {sequence, kv_head, first_row, row_count * p.group.number,
                             context - row_count};
  if (row_count < 1 || row_count > kFewRows || first >= rows.count) {  // the whole block
    WaitForEarlierLaunches();
    return;
  }
  const Splits of_tile = SplitsOfTile<kPadded>(rows, first, p);
  const int step = static_cast<int>(gridDim.x);
  int split = static_cast<int>(blockIdx.x);
  if (split < of_tile.begin) split += (of_tile.begin - split + step - 1) / step * step;
  if (split >= of_tile.end) {
    WaitForEarlierLaunches();
    return;
  }
  while (true) {
    DecodeRows<T, D, kPadded> warp;
    AttendSplit<T, D, kPadded>(rows, first, split, memory, p, warp);
    if (threadIdx.x < kWarpThreads) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = first + static_cast<int>(threadIdx.x) / 4 + half * 8;
        const Splits splits = Splits::Of<kPadded>(true, rows.PositionOf(row, p) + 1, a);
        if (row >= rows.count || !splits.Has(split)) continue;
        const int wave_row = (rows.sequence - p.first) * p.rows_each + p.group.Of(row);
        warp.StoreSplit(0, half, rows, row, wave_row, split, splits, p);
      }
    }
    split += static_cast<int>(gridDim.x);
    // Found again, so that it takes no register in between.
    if (split >= SplitsOfTile<kPadded>(rows, ComputedHere(first), p).end) return;
    __syncthreads();  // before what lies in shared memory is overwritten
  }
}

}  // namespace

cudaError_t LaunchDecodeAttention(const TensorAttentionParams& params, cudaStream_t stream) {
  const AttentionParams& a = params.attention;
  if (a.rows == 0 || a.sequences == 0 || a.heads == 0) return cudaSuccess;
  const TensorAttentionExtents extents = ExtentsOf(params);
  const Wave wave = DecodeWave(extents, params.one_row, params.wave_bytes);
  for (int64_t first = 0; first < a.sequences; first += wave.count) {
    TiledParams tiled_params = TiledParamsOf(params, 0, wave, true, first);
    Wave own = wave;
    own.count = tiled_params.count;
    const TiledShape tiled = DecodeShape(extents, own, params.capability);
    tiled_params.slots = tiled.slots;
    cudaError_t error = WithCacheOf(a, extents.general, [&](auto type, auto head_dim, auto padded) {
      constexpr int D = decltype(head_dim)::value;
      return LaunchEarly(DecodeKernel<decltype(type), D, decltype(padded)::value>, tiled.shape,
                         stream, tiled_params);
    });
    if (error == cudaSuccess && wave.splits > 1) error = LaunchCombine(tiled_params, stream);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
