#include "kernels/cuda/launch/plain_shapes.h"
#include "kernels/cuda/plain/float_types.h"
#include "kernels/cuda/plain/plain_kernels.h"
#include "kernels/cuda/platform.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

// The frequency of a token whose rotation is made for `length` tokens; see
// RopeTableArgs::dynamic_factor.
__device__ __forceinline__ float DynamicFrequency(const RopeTableParams& p, int64_t length,
                                                  int64_t i) {
  const double d = static_cast<double>(2 * p.half), factor = p.dynamic_factor;
  const double stretch =
      factor * static_cast<double>(length) / static_cast<double>(p.original_max_position) -
      (factor - 1);
  const double theta = p.theta * pow(stretch, d / (d - 2));
  return static_cast<float>(1.0 / pow(theta, 2.0 * static_cast<double>(i) / d));
}

__global__ void RopeTableKernel(RopeTableParams p) {
  const int64_t token = blockIdx.x;
  const int32_t position = p.positions[token];
  const int64_t length = p.dynamic_factor == 0.0f ? 0 : p.lengths[token];
  float* cosines = p.cos_sin + token * p.cos_sin_stride;
  for (int64_t i = threadIdx.x; i < p.half; i += blockDim.x) {
    const float frequency = p.dynamic_factor != 0.0f && length > p.original_max_position
                                ? DynamicFrequency(p, length, i)
                                : p.inverse_frequencies[i];
    const float angle = static_cast<float>(position) * frequency;
    cosines[i] = position < 0 ? 1.0f : cosf(angle) * p.attention_factor;
    cosines[p.half + i] = position < 0 ? 0.0f : sinf(angle) * p.attention_factor;
  }
}

template <typename T>
__global__ void RopeKernel(RopeParams p) {
  const int64_t token = blockIdx.x, half = p.rotary_dim / 2;
  const float* cosines = p.cos_sin + token * p.cos_sin_stride;
  const float* sines = cosines + half;
  for (int64_t pair = threadIdx.x; pair < (p.heads + p.kv_heads) * half; pair += blockDim.x) {
    const int64_t head = pair / half, i = pair % half;
    T* x = head < p.heads
               ? static_cast<T*>(p.q) + token * p.q_stride + head * p.head_dim
               : static_cast<T*>(p.k) + token * p.k_stride + (head - p.heads) * p.head_dim;
    const float a = AsFloat(x[i]), b = AsFloat(x[half + i]);
    x[i] = RoundTo<T>(a * cosines[i] - b * sines[i]);
    x[half + i] = RoundTo<T>(b * cosines[i] + a * sines[i]);
  }
}

}  // namespace

cudaError_t LaunchRopeTable(const RopeTableParams& params, cudaStream_t stream) {
  if (params.tokens == 0 || params.half == 0) return cudaSuccess;
  return Launch(RopeTableKernel, RowShape(params.tokens, params.half), stream, params);
}

cudaError_t LaunchRope(const RopeParams& params, cudaStream_t stream) {
  const int64_t pairs = (params.heads + params.kv_heads) * (params.rotary_dim / 2);
  if (params.tokens == 0 || pairs == 0) return cudaSuccess;
  return WithFloatType(params.dtype, [&](auto type) {
    return Launch(RopeKernel<decltype(type)>, RowShape(params.tokens, pairs), stream, params);
  });
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
