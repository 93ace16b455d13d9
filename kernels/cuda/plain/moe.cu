#include "kernels/cuda/launch/plain_shapes.h"
#include "kernels/cuda/plain/float_types.h"
#include "kernels/cuda/plain/fours.h"
#include "kernels/cuda/plain/moe_kernels.h"
#include "kernels/cuda/platform.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

// A block per slot.
template <typename T>
__global__ void ExpertBiasKernel(ExpertBiasParams p) {
  const int64_t slot = blockIdx.x;
  if (slot < p.expert_offsets[0] || slot >= p.expert_offsets[p.experts]) return;
  int64_t low = 0, high = p.experts;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (p.expert_offsets[middle] <= slot ? low : high) = middle;
  }
  const float* bias = p.biases + low * p.biases_stride;
  T* out = static_cast<T*>(p.out) + slot * p.out_stride;
  for (int64_t i = FirstOfThread(); i < p.width; i += ThreadsOfRow()) {
    out[i] = RoundTo<T>(AsFloat(out[i]) + bias[i]);
  }
}

template <typename T>
__global__ void CombineKernel(MoeCombineParams p) {
  const int64_t row = blockIdx.x;
  const float* weights = p.weights + row * p.weights_stride;
  const int32_t* slots = p.slots + row * p.slots_stride;
  T* out = static_cast<T*>(p.out) + row * p.out_stride;
  const T* shared = static_cast<const T*>(p.shared) + row * p.shared_stride;
  const float gate = p.shared_gate == nullptr ? 1.0f : 1.0f / (1.0f + expf(-p.shared_gate[row]));
  for (int64_t i = FirstOfThread(); i < p.width; i += ThreadsOfRow()) {
    float sum = p.shared == nullptr ? 0.0f : gate * AsFloat(shared[i]);
    for (int64_t j = 0; j < p.k; ++j) {
      const int64_t slot = slots[j];
      const bool counts =
          p.held == nullptr || (slot >= p.held[0] && slot < p.held[p.held_count - 1]);
      if (counts) sum += weights[j] * AsFloat(static_cast<const T*>(p.in)[slot * p.in_stride + i]);
    }
    out[i] = RoundTo<T>(sum);
  }
}

}  // namespace

cudaError_t LaunchExpertBias(const ExpertBiasParams& params, cudaStream_t stream) {
  if (params.slots == 0) return cudaSuccess;
  return WithFloatType(params.dtype, [&](auto type) {
    return Launch(ExpertBiasKernel<decltype(type)>, SpreadShape(params.slots, params.width), stream,
                  params);
  });
}

cudaError_t LaunchMoeCombine(const MoeCombineParams& params, cudaStream_t stream) {
  if (params.rows == 0) return cudaSuccess;
  return WithFloatType(params.dtype, [&](auto type) {
    return Launch(CombineKernel<decltype(type)>, SpreadShape(params.rows, params.width), stream,
                  params);
  });
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
