// Adds up what the splits of contexts left behind, of decode and of prefill alike.
#include "kernels/cuda/attention/warp_rows.h"
#include "kernels/cuda/launch/attention_shapes.h"
#include "kernels/cuda/platform.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

// The row of a wave that a block adds up.
template <bool kWide>
struct WaveRow {
  int row;  // of the call
  Splits splits;
  bool is_there;

  __device__ __forceinline__ static WaveRow Of(int number, const TiledParams& p) {
    const AttentionParams& a = p.attention;
    const bool decode = p.rows_each > 0;
    int sequence = p.first + (decode ? number / p.rows_each : 0);
    if (!decode) {  // the last one that begins at or before the row
      sequence = 0;
      for (int end = static_cast<int>(a.sequences); end - sequence > 1;) {
        const int middle = (sequence + end) / 2;
        (a.query_starts[middle] <= p.first + number ? sequence : end) = middle;
      }
    }
    const int first = a.query_starts[sequence], count = a.query_starts[sequence + 1] - first;
    const int of_sequence = decode ? number % p.rows_each : p.first + number - first;
    const int context = a.context_lengths[sequence] - count + of_sequence + 1;
    return {first + of_sequence, Splits::Of<true, kWide>(decode, context, a),
            of_sequence < count && (kWide || (count <= kFewRows) == decode)};
  }
};

__device__ __forceinline__ void StorePair(void* out, DType dtype, int64_t element, float2 pair) {
  switch (dtype) {
    case DType::kBF16:
      *reinterpret_cast<uint32_t*>(static_cast<uint16_t*>(out) + element) =
          PairWithin<BFloat16>(pair);
      break;
    case DType::kF16:
      *reinterpret_cast<uint32_t*>(static_cast<uint16_t*>(out) + element) =
          PairWithin<Float16>(pair);
      break;
    default: *reinterpret_cast<float2*>(static_cast<float*>(out) + element) = pair;
  }
}

// A block for a head of a row that has several splits; its warps take turns at splits, their lanes
// at pairs of elements, of which a lane has kPairs at most. A row of one split has its outputs.
template <int kPairs>
__global__ void __launch_bounds__(kCombineWarps* kWarpThreads) CombineKernel(TiledParams p) {
  constexpr int kWidth = kPairs * 2 * kWarpThreads;
  static_assert(kCombineWarps == 4);
  TESSERA_SHARED(float, of_warps, kCombineWarps* kWidth);
  TESSERA_SHARED(float, totals, kCombineWarps);
  const AttentionParams& a = p.attention;
  const int number = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int head = static_cast<int>(blockIdx.x), width = static_cast<int>(a.head_dim);
  using Row = WaveRow<(kWidth > kMaxTiledHead)>;
  const Row row = Row::Of(static_cast<int>(blockIdx.y), p);
  WaitForEarlierLaunches();
  LetNextLaunchBegin();
  const int splits = row.splits.count();
  if (!row.is_there || splits == 1) return;  // the whole block

  const float* const partials = PartialOf(static_cast<int>(blockIdx.y), head, row.splits.begin, p);
  float most = -INFINITY;
  for (int split = lane; split < splits; split += kWarpThreads) {
    most = fmaxf(most, partials[split * (width + 2) + width]);
  }
#pragma unroll
  for (int i = 1; i < kWarpThreads; i *= 2) {
    most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, i));
  }
  const float base = most == -INFINITY ? 0 : most;
  float2 sums[kPairs] = {};
  float total = 0;
#pragma unroll 4
  for (int split = number; split < splits; split += kCombineWarps) {
    const float* const partial = partials + split * (width + 2);
    const float2 of_split = *reinterpret_cast<const float2*>(partial + width);
    const float factor = Exp2(of_split.x - base);
    total += of_split.y * factor;
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const int element = 2 * (i * kWarpThreads + lane);
      if (element >= width) continue;
      const float2 values = *reinterpret_cast<const float2*>(partial + element);
      sums[i].x += values.x * factor;
      sums[i].y += values.y * factor;
    }
  }
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    float* const to = of_warps + number * kWidth + 2 * (i * kWarpThreads + lane);
    to[0] = sums[i].x;
    to[1] = sums[i].y;
  }
  if (lane == 0) totals[number] = total;
  __syncthreads();
  total = (totals[0] + totals[1]) + (totals[2] + totals[3]) + SinkWeight(a, head, most);
  const float factor = 1 / total;
  const int64_t out = row.row * a.out_stride + head * a.head_dim;
  for (int element = 2 * static_cast<int>(threadIdx.x); element < width;
       element += 2 * kCombineWarps * kWarpThreads) {
    const auto sum = [&](int at) {
      return (of_warps[at] + of_warps[kWidth + at]) +
             (of_warps[2 * kWidth + at] + of_warps[3 * kWidth + at]);
    };
    StorePair(a.out, a.out_dtype, out + element,
              float2{sum(element) * factor, sum(element + 1) * factor});
  }
}

}  // namespace

cudaError_t LaunchCombine(const TiledParams& params, cudaStream_t stream) {
  const int64_t rows = int64_t{params.count} * (params.rows_each > 0 ? params.rows_each : 1);
  const LaunchShape shape = CombineShape(params.attention.heads, rows);
  if (params.attention.head_dim <= 64) {
    return LaunchEarly(CombineKernel<1>, shape, stream, params);
  }
  if (params.attention.head_dim <= 128) {
    return LaunchEarly(CombineKernel<2>, shape, stream, params);
  }
  if (params.attention.head_dim <= kMaxTiledHead) {
    return LaunchEarly(CombineKernel<4>, shape, stream, params);
  }
  return LaunchEarly(CombineKernel<9>, shape, stream, params);
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
