#include "kernels/cuda/launch/plain_shapes.h"
#include "kernels/cuda/plain/plain_kernels.h"
#include "kernels/cuda/platform.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

// Every lane has the sum, made in the same order.
__device__ __forceinline__ float SumOfWarp(float value) {
  for (int mask = kWarpThreads / 2; mask > 0; mask /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, mask);
  }
  return value;
}

__global__ void RmsNormKernel(RmsNormParams p) {
  TESSERA_SHARED(float, sums, kMaxNormWarps);
  const int64_t vector = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  const bool active = vector < p.rows * p.vectors;
  const int64_t row = vector / p.vectors, begin = vector % p.vectors * p.width;
  const float* in = p.in + row * p.in_stride + begin;
  float* residual = p.residual == nullptr ? nullptr : p.residual + row * p.residual_stride + begin;
  float squares = 0;
  for (int64_t i = threadIdx.x; active && i < p.width; i += blockDim.x) {
    float x = in[i];
    if (residual != nullptr) x = residual[i] += x;
    squares += x * x;
  }
  squares = SumOfWarp(squares);
  if (blockDim.x > kWarpThreads) {
    const int warps = static_cast<int>(blockDim.x) / kWarpThreads;
    if (threadIdx.x % kWarpThreads == 0) sums[threadIdx.x / kWarpThreads] = squares;
    __syncthreads();
    squares = 0;
    for (int warp = 0; warp < warps; ++warp) squares += sums[warp];
  }
  const float scale = 1.0f / sqrtf(squares / static_cast<float>(p.width) + p.epsilon);
  const float* normalised = residual != nullptr ? residual : in;
  float* out = p.out + row * p.out_stride + begin;
  for (int64_t i = threadIdx.x; active && i < p.width; i += blockDim.x) {
    out[i] = normalised[i] * scale * p.weight[i];
  }
}

}  // namespace

cudaError_t LaunchRmsNorm(const RmsNormParams& params, cudaStream_t stream) {
  if (params.rows == 0 || params.vectors == 0) return cudaSuccess;
  return Launch(RmsNormKernel, NormShape(params.rows * params.vectors, params.width), stream,
                params);
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
