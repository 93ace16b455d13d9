// Attention over keys and values in 8 bits: a warp takes sixteen rows of a kv head, of few rows one
// split of their context, of many all of it. The sums of splits are added up by a second kernel, in
// their order.
#include "kernels/cuda/attention/code_attention.h"
#include "kernels/cuda/attention/code_rows.h"
#include "kernels/cuda/launch/code_attention_shapes.h"
#include "kernels/cuda/platform.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

constexpr int kCodeThreads = kCodeWarps * kWarpThreads;

// The weight of a head's sink beside those relative to `largest`, a power of two.
__device__ __forceinline__ float SinkOf(const AttentionParams& a, int64_t head, float largest) {
  constexpr float kLog2OfE = 1.44269504f;
  if (a.sinks == nullptr) return 0;
  return Exp2(a.sinks[head] * kLog2OfE - (largest == -INFINITY ? 0 : largest));
}

// What one split of a head leaves behind for a row of the wave: its sums, the largest score, the
// total weight.
__device__ __forceinline__ float* CodePartial(int wave_row, int64_t head, int split,
                                              const CodeLaunch& p) {
  const int64_t at = wave_row * p.attention.heads + head;
  return p.partials + (at * p.splits + split) * (p.attention.head_dim + 2);
}

// A row's weighted means to its outputs.
template <typename Warp>
__device__ __forceinline__ void StoreMeans(const Warp& warp, int half, const CodeSequence& rows,
                                           int row, const CodeLaunch& p) {
  const AttentionParams& a = p.attention;
  const float sink = SinkOf(a, rows.Head(row, p), warp.largest[half]);
  const float factor = 1 / (warp.total[half] + sink);
  const int64_t element = rows.Element(row, a.out_stride, p);
  warp.ForSums(
      half, [&](int d, float sum) { StoreElement(a.out, p.out_dtype, element + d, sum * factor); });
}

template <typename Warp>
__device__ __forceinline__ unsigned char* MemoryOfWarp(unsigned char* memory, const CodeLaunch& p) {
  const int number = static_cast<int>(threadIdx.x) / kWarpThreads;
  constexpr int kQueryBytes = static_cast<int>(CodeQueryBytes(Warp::kSteps * 16));
  return memory + number * (kQueryBytes + p.slots * Warp::kTileBytes);
}

// The warp's rows from `first` on over the keys of [begin, end).
template <typename Warp>
__device__ __forceinline__ Warp Attended(unsigned char* memory, const CodeSequence& rows, int first,
                                         int begin, int end, const CodeLaunch& p) {
  Warp warp(MemoryOfWarp<Warp>(memory, p));
  warp.LoadQueries(rows, first, p);
  warp.Attend(rows, first, begin, end, p);
  return warp;
}

// Sequences of few rows: a warp for each split.
template <typename T, typename C, int D>
__global__ void __launch_bounds__(kCodeThreads) FewCodeRowsKernel(CodeLaunch p) {
  TESSERA_DYNAMIC_SHARED(memory);
  using Warp = CodeWarp<T, C, D>;
  const AttentionParams& a = p.attention;
  const int of_wave = static_cast<int>(blockIdx.z);
  const int tiles = static_cast<int>(gridDim.y) / static_cast<int>(a.kv_heads);
  const int kv_head = static_cast<int>(blockIdx.y) / tiles;
  const int first = static_cast<int>(blockIdx.y) % tiles * kCodeWarpRows;
  const auto rows = CodeSequence::Of(p.first_sequence + of_wave, kv_head, p);
  const int split =
      static_cast<int>(blockIdx.x) * kCodeWarps + static_cast<int>(threadIdx.x) / kWarpThreads;
  if (first >= rows.count || rows.count > kCodeFewRows * p.group) return;  // the whole warp
  const int first_end = rows.End(first, p), last_end = rows.End(first + kCodeWarpRows - 1, p);
  const int begin = max(split * kCodeSplitKeys, rows.Begin(first_end, p));
  const int end = min((split + 1) * kCodeSplitKeys, last_end);
  if (begin >= end) return;

  const Warp warp = Attended<Warp>(memory, rows, first, begin, end, p);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first + Warp::Lane() / 4 + 8 * half;
    if (row >= rows.count) continue;
    const int row_end = rows.End(row, p);
    const int first_split = rows.Begin(row_end, p) / kCodeSplitKeys;
    const int last_split = (row_end - 1) / kCodeSplitKeys;
    if (split < first_split || split > last_split) continue;
    if (first_split == last_split) {
      StoreMeans(warp, half, rows, row, p);
      continue;
    }
    const int wave_row = of_wave * p.rows_each + rows.Row(row, p);
    float* const partial = CodePartial(wave_row, rows.Head(row, p), split, p);
    warp.ForSums(half, [&](int d, float sum) { partial[d] = sum; });
    if (Warp::Lane() % 4 == 0) {
      partial[D] = warp.largest[half];
      partial[D + 1] = warp.total[half];
    }
  }
}

// Rows of several splits of the kernel above.
__global__ void CodeCombineKernel(CodeLaunch p) {
  const AttentionParams& a = p.attention;
  const auto head = static_cast<int64_t>(blockIdx.x);
  const int wave_row = static_cast<int>(blockIdx.y), of_wave = wave_row / p.rows_each;
  const auto rows =
      CodeSequence::Of(p.first_sequence + of_wave, static_cast<int>(head) / p.group, p);
  const int row = wave_row % p.rows_each * p.group + static_cast<int>(head) % p.group;
  if (row >= rows.count || rows.count > kCodeFewRows * p.group) return;
  const int end = rows.End(row, p);
  const int first_split = rows.Begin(end, p) / kCodeSplitKeys;
  const int last_split = (end - 1) / kCodeSplitKeys;
  if (first_split == last_split) return;
  const int d = static_cast<int>(threadIdx.x), width = static_cast<int>(a.head_dim);
  float largest = -INFINITY, total = 0, sum = 0;
  for (int split = first_split; split <= last_split; ++split) {
    const float* const partial = CodePartial(wave_row, head, split, p);
    const float most = fmaxf(largest, partial[width]);
    const float base = most == -INFINITY ? 0 : most;
    const float kept = Exp2(largest - base), taken = Exp2(partial[width] - base);
    total = total * kept + partial[width + 1] * taken;
    sum = sum * kept + partial[d] * taken;
    largest = most;
  }
  StoreElement(a.out, p.out_dtype, rows.Element(row, a.out_stride, p) + d,
               sum / (total + SinkOf(a, head, largest)));
}

// The first tile of rows of a sequence, among those of all.
__device__ __forceinline__ int FirstCodeTile(int sequence, const CodeLaunch& p) {
  return p.attention.query_starts[sequence] * p.group / (kCodeWarps * kCodeWarpRows) + sequence;
}

// Sequences of many rows: a warp goes through all keys that its rows see.
template <typename T, typename C, int D>
__global__ void __launch_bounds__(kCodeThreads) ManyCodeRowsKernel(CodeLaunch p) {
  TESSERA_DYNAMIC_SHARED(memory);
  using Warp = CodeWarp<T, C, D>;
  // Those that end last have the longest contexts.
  const int tile = static_cast<int>(gridDim.x) - 1 - static_cast<int>(blockIdx.x);
  int low = 0, high = p.sequences;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (FirstCodeTile(middle, p) <= tile ? low : high) = middle;
  }
  const auto rows = CodeSequence::Of(low, static_cast<int>(blockIdx.y), p);
  const int first = (tile - FirstCodeTile(low, p)) * kCodeWarps * kCodeWarpRows +
                    static_cast<int>(threadIdx.x) / kWarpThreads * kCodeWarpRows;
  if (first >= rows.count || rows.count <= kCodeFewRows * p.group) return;  // the whole warp
  const int begin = rows.Begin(rows.End(first, p), p);
  const int end = rows.End(first + kCodeWarpRows - 1, p);

  const Warp warp = Attended<Warp>(memory, rows, first, begin, end, p);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first + Warp::Lane() / 4 + 8 * half;
    if (row < rows.count) StoreMeans(warp, half, rows, row, p);
  }
}

template <typename T, typename C, int D>
cudaError_t LaunchOf(const CodeAttentionParams& params, cudaStream_t stream) {
  const AttentionParams& a = params.attention;
  constexpr float kLog2OfE = 1.44269504f;
  const CodeExtents extents = {a.rows,
                               a.sequences,
                               a.heads,
                               a.kv_heads,
                               a.head_dim,
                               params.max_context,
                               params.one_row ? 1 : kCodeFewRows};
  CodeLaunch launch = {a,
                       params.partials,
                       a.scale * kLog2OfE,
                       static_cast<int>(a.heads / a.kv_heads),
                       CodeSlots(D, params.capability),
                       0,
                       static_cast<int>(a.sequences),
                       0,
                       static_cast<int>(CodeSplits(params.max_context)),
                       params.out_dtype};
  if (launch.slots == 0) return cudaErrorInvalidValue;
  cudaError_t error = cudaSuccess;
  if (a.rows > kCodeFewRows && !params.one_row) {
    error = Launch(ManyCodeRowsKernel<T, C, D>, ManyCodeRowsShape(extents, launch.slots), stream,
                   launch);
  }
  const CodeWave wave = CodeWaveOf(extents);
  for (int64_t first = 0; first < a.sequences && error == cudaSuccess; first += wave.sequences) {
    const int64_t left = a.sequences - first;
    const CodeWave own = {left < wave.sequences ? left : wave.sequences, wave.rows_each};
    launch.first_sequence = static_cast<int>(first);
    launch.rows_each = static_cast<int>(wave.rows_each);
    error = Launch(FewCodeRowsKernel<T, C, D>, FewCodeRowsShape(extents, own, launch.slots), stream,
                   launch);
    if (error == cudaSuccess && launch.splits > 1)
      error = Launch(CodeCombineKernel, CodeCombineShape(extents, own), stream, launch);
  }
  return error;
}

template <typename T, typename C>
cudaError_t LaunchOfSize(const CodeAttentionParams& params, cudaStream_t stream) {
  switch (params.attention.head_dim) {
    case 64: return LaunchOf<T, C, 64>(params, stream);
    case 96: return LaunchOf<T, C, 96>(params, stream);
    case 128: return LaunchOf<T, C, 128>(params, stream);
    case 256: return LaunchOf<T, C, 256>(params, stream);
    default: return cudaErrorInvalidValue;
  }
}

template <typename T>
cudaError_t LaunchOfCodes(const CodeAttentionParams& params, cudaStream_t stream) {
  return params.attention.cache_dtype == DType::kI8 ? LaunchOfSize<T, int8_t>(params, stream)
                                                    : LaunchOfSize<T, Float8>(params, stream);
}

}  // namespace

cudaError_t LaunchCodeAttention(const CodeAttentionParams& params, cudaStream_t stream) {
  const AttentionParams& a = params.attention;
  if (a.rows == 0 || a.sequences == 0 || a.heads == 0) return cudaSuccess;
  return params.products == DType::kBF16 ? LaunchOfCodes<BFloat16>(params, stream)
                                         : LaunchOfCodes<Float16>(params, stream);
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
