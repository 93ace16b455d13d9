// LogSoftmax and TopK: a block per row.
#include "kernels/cuda/launch/plain_shapes.h"
#include "kernels/cuda/plain/logits_kernels.h"
#include "kernels/cuda/plain/ranks.h"
#include "kernels/cuda/plain/sums.h"
#include "kernels/cuda/platform.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

// The best element of in[0, width) whose rank is below `limit`.
__device__ __forceinline__ uint64_t BestBelow(const float* in, int64_t width, uint64_t limit,
                                              uint64_t* shared) {
  uint64_t best = 0;
  for (int64_t i = threadIdx.x; i < width; i += blockDim.x) {
    const uint64_t rank = RankOf(in[i], i);
    if (rank < limit && rank > best) best = rank;
  }
  return LargestOfRow(best, shared);
}

__global__ void LogSoftmaxKernel(LogSoftmaxParams p) {
  TESSERA_SHARED(double, sums, kMaxRowWarps);
  TESSERA_SHARED(uint64_t, ranks, kMaxRowWarps);
  const float* in = p.in + blockIdx.x * p.in_stride;
  float* out = p.out + blockIdx.x * p.out_stride;
  const float largest = in[IndexOf(BestBelow(in, p.width, ~uint64_t{0}, ranks))];
  double total = 0;
  for (int64_t i = threadIdx.x; i < p.width; i += blockDim.x) total += expf(in[i] - largest);
  const double log_total = largest + log(SumOfRow(total, sums));
  for (int64_t i = threadIdx.x; i < p.width; i += blockDim.x) {
    out[i] = static_cast<float>(in[i] - log_total);
  }
}

__global__ void TopKKernel(TopKParams p) {
  TESSERA_SHARED(uint64_t, ranks, kMaxRowWarps);
  const float* in = p.in + blockIdx.x * p.in_stride;
  uint64_t rank = ~uint64_t{0};
  for (int64_t j = 0; j < p.k; ++j) {
    rank = BestBelow(in, p.width, rank, ranks);
    if (threadIdx.x != 0) continue;
    p.values[blockIdx.x * p.values_stride + j] = in[IndexOf(rank)];
    p.indices[blockIdx.x * p.indices_stride + j] = static_cast<int32_t>(IndexOf(rank));
  }
}

}  // namespace

cudaError_t LaunchLogSoftmax(const LogSoftmaxParams& params, cudaStream_t stream) {
  if (params.rows == 0 || params.width == 0) return cudaSuccess;
  return Launch(LogSoftmaxKernel, RowShape(params.rows, params.width), stream, params);
}

cudaError_t LaunchTopK(const TopKParams& params, cudaStream_t stream) {
  if (params.rows == 0 || params.k == 0) return cudaSuccess;
  return Launch(TopKKernel, RowShape(params.rows, params.width), stream, params);
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
