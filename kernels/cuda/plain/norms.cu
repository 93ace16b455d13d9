#include "kernels/cuda/launch/plain_shapes.h"
#include "kernels/cuda/plain/float_types.h"
#include "kernels/cuda/plain/plain_kernels.h"
#include "kernels/cuda/plain/sums.h"
#include "kernels/cuda/platform.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

// Threads of one y share a vector.
template <typename T>
__global__ void NormKernel(NormParams p) {
  TESSERA_SHARED(float, sums, kMaxNormWarps);
  const int64_t vector = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  const int64_t row = vector / p.vectors, begin = vector % p.vectors * p.width;
  const int64_t width = vector < p.rows * p.vectors ? p.width : 0;
  const T* in = static_cast<const T*>(p.in) + row * p.in_stride + begin;
  if (p.residual != nullptr) {
    T* residual = static_cast<T*>(p.residual) + row * p.residual_stride + begin;
    for (int64_t i = threadIdx.x; i < width; i += blockDim.x) {
      residual[i] = RoundTo<T>(AsFloat(residual[i]) + AsFloat(in[i]));
    }
    in = residual;  // of which a thread reads what it wrote
  }
  float mean = 0;
  if (p.subtract_mean) {
    float sum = 0;
    for (int64_t i = threadIdx.x; i < width; i += blockDim.x) sum += AsFloat(in[i]);
    mean = SumOfRow(sum, sums) / static_cast<float>(p.width);
  }
  float squares = 0;
  for (int64_t i = threadIdx.x; i < width; i += blockDim.x) {
    const float x = AsFloat(in[i]) - mean;
    squares += x * x;
  }
  squares = SumOfRow(squares, sums);
  const float scale = 1.0f / sqrtf(squares / static_cast<float>(p.width) + p.epsilon);
  T* out = static_cast<T*>(p.out) + row * p.out_stride + begin;
  for (int64_t i = threadIdx.x; i < width; i += blockDim.x) {
    const float x = (AsFloat(in[i]) - mean) * scale * p.weight[i];
    out[i] = RoundTo<T>(p.bias == nullptr ? x : x + p.bias[i]);
  }
}

}  // namespace

cudaError_t LaunchNorm(const NormParams& params, cudaStream_t stream) {
  if (params.rows == 0 || params.vectors == 0) return cudaSuccess;
  const LaunchShape shape = NormShape(params.rows * params.vectors, params.width);
  return WithFloatType(params.dtype, [&](auto type) {
    return Launch(NormKernel<decltype(type)>, shape, stream, params);
  });
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
