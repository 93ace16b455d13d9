// LogSoftmax and TopK: a block per row.
#include "kernels/cuda/launch/plain_shapes.h"
#include "kernels/cuda/plain/fours.h"
#include "kernels/cuda/plain/logit_rows.h"
#include "kernels/cuda/plain/logits_kernels.h"
#include "kernels/cuda/plain/shortlist.h"
#include "kernels/cuda/platform.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

__global__ void __launch_bounds__(kWarpThreads* kMaxLogitsWarps)
    LogSoftmaxKernel(LogSoftmaxParams p) {
  TESSERA_SHARED(LogitsScratch, scratch_of_block, 1);
  LogitsScratch& scratch = scratch_of_block[0];
  const LogitRow row(p.in + blockIdx.x * p.in_stride, p.width);
  float* out = p.out + blockIdx.x * p.out_stride;
  const auto best = static_cast<uint32_t>(BestOf<false>(row, scratch).rank >> 32);
  const float largest = ValueOf(best);
  float own[kFour] = {};
  VisitSegments(row, [&](const float(&four)[kFour], int) {
#pragma unroll
    for (int e = 0; e < kFour; ++e) own[e] += Exp2((four[e] - largest) * kLog2OfE);
  });
  const float total = SumOfBlock((own[0] + own[1]) + (own[2] + own[3]), scratch.sums);
  const float log_total = logf(total);
  const bool whole = reinterpret_cast<uintptr_t>(out) % sizeof(float4) == 0;
  VisitSegments(row, [&](const float(&four)[kFour], int first) {
    float logs[kFour];
#pragma unroll
    for (int e = 0; e < kFour; ++e) logs[e] = four[e] - largest - log_total;
    if (whole && first + kFour <= row.width) {
      StoreFour(out + first, logs);
      return;
    }
#pragma unroll
    for (int e = 0; e < kFour; ++e) {
      if (first + e < row.width) out[first + e] = logs[e];
    }
  });
}

// The best of the list's first `count` elements whose rank is below `limit`.
__device__ __forceinline__ uint64_t BestListed(const Shortlist& list, int count, uint64_t limit,
                                               LogitsScratch& scratch) {
  uint64_t best = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
    const uint64_t rank = RankOf(list.values[i], list.ids[i]);
    if (rank < limit && rank > best) best = rank;
  }
  return LargestOfBlock(best, scratch.ranks);
}

// The same of a whole row.
__device__ __forceinline__ uint64_t BestBelow(const LogitRow& row, uint64_t limit,
                                              LogitsScratch& scratch) {
  uint64_t best = 0;
  for (int i = static_cast<int>(threadIdx.x); i < row.width; i += static_cast<int>(blockDim.x)) {
    const uint64_t rank = RankOf(row.data[i], i);
    if (rank < limit && rank > best) best = rank;
  }
  return LargestOfBlock(best, scratch.ranks);
}

__global__ void __launch_bounds__(kWarpThreads* kMaxLogitsWarps) TopKKernel(TopKParams p) {
  TESSERA_SHARED(LogitsScratch, scratch_of_block, 1);
  TESSERA_SHARED(Shortlist, list_of_block, 1);
  LogitsScratch& scratch = scratch_of_block[0];
  Shortlist& list = list_of_block[0];
  const LogitRow row(p.in + blockIdx.x * p.in_stride, p.width);
  const Cut all = {-INFINITY, row.width - 1};
  const float low = row.width <= kShortlistSize ? -INFINITY : BestOf<false>(row, scratch).common;
  const int listed = CountElements(row, all, low, INFINITY, scratch);
  const bool has_list = listed >= p.k && listed <= kShortlistSize;
  if (has_list) {
    FillShortlist(
        row, all, low, INFINITY, [](float) { return 0.0f; }, list, scratch);
  }
  uint64_t rank = ~uint64_t{0};
  for (int64_t j = 0; j < p.k; ++j) {
    rank = has_list ? BestListed(list, listed, rank, scratch) : BestBelow(row, rank, scratch);
    if (threadIdx.x != 0) continue;
    const int64_t index = IndexOf(rank);
    p.values[blockIdx.x * p.values_stride + j] = row.data[index];
    p.indices[blockIdx.x * p.indices_stride + j] = static_cast<int32_t>(index);
  }
}

}  // namespace

cudaError_t LaunchLogSoftmax(const LogSoftmaxParams& params, cudaStream_t stream) {
  if (params.rows == 0 || params.width == 0) return cudaSuccess;
  return Launch(LogSoftmaxKernel, LogitsShape(params.rows, params.width), stream, params);
}

cudaError_t LaunchTopK(const TopKParams& params, cudaStream_t stream) {
  if (params.rows == 0 || params.k == 0) return cudaSuccess;
  return Launch(TopKKernel, LogitsShape(params.rows, params.width), stream, params);
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
