// Attention of sequences with one row. Its context is split at fixed positions, a block for each
// split: the four warps take turns at tiles of 16 keys for the same rows, the heads of a group.
// Where there are several splits, a second kernel adds them up, in order.
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

template <typename T, int D>
__device__ __forceinline__ void PutSums(const WarpRows<T, D, 1, DecodeWarps(D)>& warp,
                                        float* sums) {
#pragma unroll
  for (int i = 0; i < D / 2; ++i) sums[i * kWarpThreads] = warp.out[0][i / 4][i % 4];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    sums[(D / 2 + half) * kWarpThreads] = warp.largest[0][half];
    sums[(D / 2 + 2 + half) * kWarpThreads] = warp.total[0][half];
  }
}

template <typename T, int D>
__device__ __forceinline__ void AddSums(WarpRows<T, D, 1, DecodeWarps(D)>& warp,
                                        const float* sums) {
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
template <typename T, int D>
__device__ __forceinline__ void AddWarps(WarpRows<T, D, 1, DecodeWarps(D)>& warp, float* shared) {
  const int number = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
#pragma unroll
  for (int warps = DecodeWarps(D) / 2; warps > 0; warps /= 2) {
    __syncthreads();  // before what lies in shared memory is overwritten
    if (number >= warps && number < 2 * warps) {
      PutSums(warp, shared + (number - warps) * kSumsOfWarp<D> + lane);
    }
    __syncthreads();
    if (number < warps) AddSums(warp, shared + number * kSumsOfWarp<D> + lane);
  }
}

// The sums of one head over one split: its sums of values, the largest score, the total weight.
__device__ __forceinline__ float* PartialOf(int sequence, int head, int split,
                                            const TiledParams& p) {
  const int64_t row = sequence * p.attention.heads + head;
  return p.partials + (row * p.splits + split) * (p.attention.head_dim + 2);
}

// Splits of which a row sees a key.
struct Splits {
  int keys;  // of each
  int begin, end;

  __device__ __forceinline__ static Splits Of(int context, const AttentionParams& p) {
    const int keys = SplitKeys(context);
    return {keys, FirstKey(context, p) / keys, (context + keys - 1) / keys};
  }
  __device__ __forceinline__ int count() const { return end - begin; }
};

template <typename T, int D>
__global__ void __launch_bounds__(DecodeWarps(D) * kWarpThreads, kDecodeBlocks)
    DecodeKernel(TiledParams p) {
  TESSERA_DYNAMIC_SHARED(memory);
  constexpr int kKeys = kDecodeTileKeys, kWarps = DecodeWarps(D);
  const AttentionParams& a = p.attention;
  const int split = static_cast<int>(blockIdx.x), sequence = static_cast<int>(blockIdx.z);
  const int first_row = a.query_starts[sequence], context = a.context_lengths[sequence];
  const bool single = a.query_starts[sequence + 1] - first_row == 1;
  const Splits splits = Splits::Of(context, a);
  // One decision of the whole block: no load waits for another.
  if (!(single & (split >= splits.begin) & (split < splits.end))) {
    WaitForEarlierLaunches();
    return;
  }
  const int begin = max(split * splits.keys, FirstKey(context, a));
  const int end = min((split + 1) * splits.keys, context);

  const int group_tiles = (p.group.number + kWarpRows - 1) / kWarpRows;
  const int kv_head = static_cast<int>(blockIdx.y) / group_tiles;
  const int first = static_cast<int>(blockIdx.y) % group_tiles * kWarpRows;
  const SequenceRows rows = {sequence, kv_head, first_row, p.group.number, context - 1};
  const int number = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int first_tile = begin / kKeys + number, end_tile = (end + kKeys - 1) / kKeys;
  const int tiles = max(0, end_tile - first_tile + kWarps - 1) / kWarps;
  using Ring = TileRing<D, kKeys, kWarpThreads>;
  unsigned char* const tiles_memory = memory + QueryBytes(D, 1);
  Ring ring(tiles_memory + number * p.slots * Ring::kTileBytes, PagesOf(rows, begin, end, p),
            first_tile, kWarps, tiles, p);
  WaitForEarlierLaunches();
  LetNextLaunchBegin();
  ring.Begin();
  WarpRows<T, D, 1, DecodeWarps(D)> warp;
  warp.Begin(rows, first, p, memory);
  if constexpr (warp.kQueriesInShared) __syncthreads();
  const KeysSeen seen = {end, end, end - begin};
  const auto end_of = [&](int) { return end; };
  warp.Attend(ring, first_tile, kWarps, tiles, true, seen, end_of, p.scale_log2);
  static_assert(kWarps / 2 * kSumsOfWarp<D> * sizeof(float) <=
                kMinTileSlots * kWarps * Ring::kTileBytes);
  AddWarps(warp, reinterpret_cast<float*>(tiles_memory));
  if (number != 0) return;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first + lane / 4 + half * 8;
    if (row >= rows.count) continue;
    if (splits.count() == 1) {
      unsigned char* const out =
          rows.ElementsOf(static_cast<unsigned char*>(a.out), a.out_stride, row, p);
      warp.Store(0, half, kv_head * p.group.number + row, a, out);
      continue;
    }
    float* const partial = PartialOf(sequence, kv_head * p.group.number + row, split, p);
#pragma unroll
    for (int i = 0; i < D / 8; ++i) {
      *reinterpret_cast<float2*>(partial + i * 8 + lane % 4 * 2) = {warp.out[0][i][2 * half],
                                                                    warp.out[0][i][2 * half + 1]};
    }
    if (lane % 4 == 0) {
      *reinterpret_cast<float2*>(partial + D) = {warp.largest[0][half], warp.total[0][half]};
    }
  }
}

// A warp per head of a sequence that has several splits: a lane per split for their factors, then
// for pairs of elements. One split alone would get the factor 1.
template <typename T, int D>
__global__ void __launch_bounds__(kCombineWarps* kWarpThreads) CombineKernel(TiledParams p) {
  const AttentionParams& a = p.attention;
  const int number = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int head = static_cast<int>(blockIdx.x) * kCombineWarps + number;
  const int sequence = static_cast<int>(blockIdx.y);
  const int first_row = a.query_starts[sequence], context = a.context_lengths[sequence];
  const bool single = a.query_starts[sequence + 1] - first_row == 1;
  const Splits splits = Splits::Of(context, a);
  WaitForEarlierLaunches();
  LetNextLaunchBegin();
  if (!single || head >= a.heads || splits.count() == 1) return;  // the whole warp

  static_assert(kMaxSplits <= kWarpThreads);
  const float* const partials = PartialOf(sequence, head, splits.begin, p);
  float2 of_split = {-INFINITY, 0};  // the largest score, the total weight
  if (lane < splits.count()) {
    of_split = *reinterpret_cast<const float2*>(partials + lane * (D + 2) + D);
  }
  float most = of_split.x;
#pragma unroll
  for (int i = 1; i < kWarpThreads; i *= 2) {
    most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, i));
  }
  const float factor = Exp2(of_split.x - (most == -INFINITY ? 0 : most));
  float total = of_split.y * factor;
#pragma unroll
  for (int i = 1; i < kWarpThreads; i *= 2) total += __shfl_xor_sync(kAllLanes, total, i);

  constexpr int kPairs = (D / 2 + kWarpThreads - 1) / kWarpThreads;
  float2 sums[kPairs] = {};
#pragma unroll 4
  for (int split = 0; split < splits.count(); ++split) {
    const float of_this = __shfl_sync(kAllLanes, factor, split);
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const int pair = i * kWarpThreads + lane;
      if (pair >= D / 2) continue;
      const float2 values = *reinterpret_cast<const float2*>(partials + split * (D + 2) + 2 * pair);
      sums[i].x += values.x * of_this;
      sums[i].y += values.y * of_this;
    }
  }
  const int64_t element = first_row * a.out_stride + head * a.head_dim;
  unsigned char* const out =
      static_cast<unsigned char*>(a.out) + element * (a.dtype == DType::kF32 ? 4 : 2);
  total = 1 / (total + SinkWeight(a, head, most));
  StorePairs<T, kPairs>(out, a.dtype, 2 * lane, 2 * kWarpThreads, D, [&](int i) {
    return float2{sums[i].x * total, sums[i].y * total};
  });
}

}  // namespace

cudaError_t LaunchDecodeAttention(const TensorAttentionParams& params, cudaStream_t stream) {
  const AttentionParams& a = params.attention;
  if (a.rows == 0 || a.sequences == 0 || a.heads == 0) return cudaSuccess;
  const TensorAttentionExtents extents = ExtentsOf(params);
  const TiledShape tiled = DecodeShape(extents, params.capability);
  const TiledParams tiled_params = TiledParamsOf(params, tiled.slots);
  return WithCacheOf(a, [&](auto type, auto head_dim) {
    using T = decltype(type);
    constexpr int D = decltype(head_dim)::value;
    const cudaError_t error = LaunchEarly(DecodeKernel<T, D>, tiled.shape, stream, tiled_params);
    if (error != cudaSuccess || tiled_params.splits == 1) return error;
    return LaunchEarly(CombineKernel<T, D>, CombineShape(extents), stream, tiled_params);
  });
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
