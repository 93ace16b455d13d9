#include "kernels/cuda/launch/plain_shapes.h"
#include "kernels/cuda/plain/plain_kernels.h"
#include "kernels/cuda/platform.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

__global__ void RopeKernel(RopeParams p) {
  const int64_t token = blockIdx.x, half = p.rotary_dim / 2;
  const float* cosines = p.cos_sin + token * p.cos_sin_stride;
  const float* sines = cosines + half;
  for (int64_t pair = threadIdx.x; pair < (p.heads + p.kv_heads) * half; pair += blockDim.x) {
    const int64_t head = pair / half, i = pair % half;
    float* x = head < p.heads ? p.q + token * p.q_stride + head * p.head_dim
                              : p.k + token * p.k_stride + (head - p.heads) * p.head_dim;
    const float a = x[i], b = x[half + i];
    x[i] = a * cosines[i] - b * sines[i];
    x[half + i] = b * cosines[i] + a * sines[i];
  }
}

}  // namespace

cudaError_t LaunchRope(const RopeParams& params, cudaStream_t stream) {
  const int64_t pairs = (params.heads + params.kv_heads) * (params.rotary_dim / 2);
  if (params.tokens == 0 || pairs == 0) return cudaSuccess;
  return Launch(RopeKernel, RopeShape(params.tokens, pairs), stream, params);
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
