// Attention of sequences with one row. Its context is split at fixed positions, a block for each
// split: the four warps take turns at tiles of 16 keys for the same rows, the heads of a group. A
// second kernel adds the splits up, in order.
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
__device__ __forceinline__ void PutSums(const WarpRows<T, D>& warp, float* sums) {
#pragma unroll
  for (int i = 0; i < D / 2; ++i) sums[i * kWarpThreads] = warp.out[i / 4][i % 4];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    sums[(D / 2 + half) * kWarpThreads] = warp.largest[half];
    sums[(D / 2 + 2 + half) * kWarpThreads] = warp.total[half];
  }
}

template <typename T, int D>
__device__ __forceinline__ void AddSums(WarpRows<T, D>& warp, const float* sums) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float largest = sums[(D / 2 + half) * kWarpThreads];
    const float most = fmaxf(warp.largest[half], largest);
    const float base = most == -INFINITY ? 0 : most;
    const float own = Exp2(warp.largest[half] - base), other = Exp2(largest - base);
    warp.largest[half] = most;
    warp.total[half] = warp.total[half] * own + sums[(D / 2 + 2 + half) * kWarpThreads] * other;
#pragma unroll
    for (int i = 0; i < D / 8; ++i) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float& sum = warp.out[i][2 * half + j];
        sum = sum * own + sums[(i * 4 + 2 * half + j) * kWarpThreads] * other;
      }
    }
  }
}

// The sums of all warps in the first one: of four 0 + 2 and 1 + 3, then the two.
template <typename T, int D>
__device__ __forceinline__ void AddWarps(WarpRows<T, D>& warp, float* shared) {
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

template <typename T, int D>
__global__ void __launch_bounds__(DecodeWarps(D) * kWarpThreads, 3) DecodeKernel(TiledParams p) {
  TESSERA_DYNAMIC_SHARED(memory);
  constexpr int kKeys = kDecodeTileKeys, kWarps = DecodeWarps(D);
  const AttentionParams& a = p.attention;
  const int split = static_cast<int>(blockIdx.x), sequence = static_cast<int>(blockIdx.z);
  const int first_row = a.query_starts[sequence], context = a.context_lengths[sequence];
  if (a.query_starts[sequence + 1] - first_row != 1) return;  // the whole block
  const int split_keys = SplitKeys(context);
  const int begin = max(split * split_keys, FirstKey(context, a));
  const int end = min((split + 1) * split_keys, context);
  if (begin >= end) return;

  const int group_tiles = (p.group + kWarpRows - 1) / kWarpRows;
  const int kv_head = static_cast<int>(blockIdx.y) / group_tiles;
  const int first = static_cast<int>(blockIdx.y) % group_tiles * kWarpRows;
  const SequenceRows rows = {sequence, kv_head, first_row, p.group, context - 1};
  const int number = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int first_tile = begin / kKeys + number, end_tile = (end + kKeys - 1) / kKeys;
  const int tiles = max(0, end_tile - first_tile + kWarps - 1) / kWarps;
  using Ring = TileRing<D, kKeys, kWarpThreads>;
  unsigned char* const tiles_memory = memory + kWarps * QueryBytes(D);
  Ring ring(tiles_memory + number * p.slots * Ring::kTileBytes, PagesOf(rows, begin, end, p),
            first_tile, kWarps, tiles, p);
  WarpRows<T, D> warp;
  warp.Begin(rows, first, p, memory + number * QueryBytes(D));
  const KeysSeen seen = {{begin, begin}, {end, end}, begin, end, begin, end};
  warp.Attend(ring, first_tile, kWarps, tiles, true, seen, p.scale_log2);
  static_assert(kWarps / 2 * kSumsOfWarp<D> * sizeof(float) <=
                kMinTileSlots * kWarps * Ring::kTileBytes);
  AddWarps(warp, reinterpret_cast<float*>(tiles_memory));
  if (number != 0) return;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first + lane / 4 + half * 8;
    if (row >= rows.count) continue;
    float* const partial = PartialOf(sequence, kv_head * p.group + row, split, p);
#pragma unroll
    for (int i = 0; i < D / 8; ++i) {
      *reinterpret_cast<float2*>(partial + i * 8 + lane % 4 * 2) = {warp.out[i][2 * half],
                                                                    warp.out[i][2 * half + 1]};
    }
    if (lane % 4 == 0) {
      *reinterpret_cast<float2*>(partial + D) = {warp.largest[half], warp.total[half]};
    }
  }
}

// A block per head of a sequence, a thread per element.
template <typename T>
__global__ void CombineKernel(TiledParams p) {
  const AttentionParams& a = p.attention;
  const int head = static_cast<int>(blockIdx.x), sequence = static_cast<int>(blockIdx.y);
  const int first_row = a.query_starts[sequence], context = a.context_lengths[sequence];
  const int element = static_cast<int>(threadIdx.x), head_dim = static_cast<int>(a.head_dim);
  if (a.query_starts[sequence + 1] - first_row != 1 || element >= head_dim) return;
  const int split_keys = SplitKeys(context);
  const int first = FirstKey(context, a) / split_keys;
  const int end = (context + split_keys - 1) / split_keys;
  float most = -INFINITY;
  for (int split = first; split < end; ++split) {
    most = fmaxf(most, PartialOf(sequence, head, split, p)[head_dim]);
  }
  const float base = most == -INFINITY ? 0 : most;
  float sum = 0, total = 0;
  for (int split = first; split < end; ++split) {
    const float* const partial = PartialOf(sequence, head, split, p);
    const float factor = Exp2(partial[head_dim] - base);
    sum += partial[element] * factor;
    total += partial[head_dim + 1] * factor;
  }
  const int64_t at = first_row * a.out_stride + head * a.head_dim + element;
  if (a.dtype == DType::kF32) {
    static_cast<float*>(a.out)[at] = sum / total;
  } else {
    static_cast<T*>(a.out)[at] = RoundTo<T>(sum / total);
  }
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
    const cudaError_t error =
        Launch(DecodeKernel<T, decltype(head_dim)::value>, tiled.shape, stream, tiled_params);
    if (error != cudaSuccess) return error;
    return Launch(CombineKernel<T>, CombineShape(extents), stream, tiled_params);
  });
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
