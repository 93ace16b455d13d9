#include "kernels/cuda/launch/plain_shapes.h"
#include "kernels/cuda/plain/float_types.h"
#include "kernels/cuda/plain/fours.h"
#include "kernels/cuda/plain/moe_kernels.h"
#include "kernels/cuda/platform.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

// A thread per row: its experts, best first, into `slots` for now, and their weights.
__global__ void ChooseExpertsKernel(MoeRouteParams p) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (row >= p.rows) return;
  const float* logits = p.logits + row * p.logits_stride;
  float* weights = p.weights + row * p.weights_stride;
  int32_t* chosen = p.slots + row * p.k;
  float largest = logits[0];
  for (int64_t e = 1; e < p.experts; ++e) largest = fmaxf(largest, logits[e]);
  float total = 0;
  for (int64_t e = 0; e < p.experts; ++e) total += expf(logits[e] - largest);
  float chosen_total = 0;
  for (int64_t j = 0; j < p.k; ++j) {
    // The best one behind the one chosen before it, in the order of logits, then of numbers.
    int64_t best = -1;
    for (int64_t e = 0; e < p.experts; ++e) {
      bool taken = false;
      for (int64_t i = 0; i < j; ++i) taken = taken || chosen[i] == e;
      if (!taken && (best < 0 || logits[e] > logits[best])) best = e;
    }
    chosen[j] = static_cast<int32_t>(best);
    weights[j] = expf(logits[best] - largest) / total;
    chosen_total += weights[j];
  }
  for (int64_t j = 0; p.renormalise && j < p.k; ++j) weights[j] /= chosen_total;
}

// One block, a thread per expert: from experts in `slots` to slots sorted by expert.
__global__ void SortByExpertKernel(MoeRouteParams p) {
  const int64_t choices = p.rows * p.k;
  for (int64_t e = threadIdx.x; e < p.experts; e += blockDim.x) {
    int32_t count = 0;
    for (int64_t i = 0; i < choices; ++i) count += p.slots[i] == e ? 1 : 0;
    p.expert_offsets[e + 1] = count;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    p.expert_offsets[0] = 0;
    for (int64_t e = 0; e < p.experts; ++e) p.expert_offsets[e + 1] += p.expert_offsets[e];
  }
  __syncthreads();
  // Which choice has a slot, before `slots` is written: it still says who chose which expert.
  for (int64_t e = threadIdx.x; e < p.experts; e += blockDim.x) {
    int32_t slot = p.expert_offsets[e];
    for (int64_t i = 0; i < choices; ++i) {
      if (p.slots[i] == e) p.source_rows[slot++] = static_cast<int32_t>(i);
    }
  }
  __syncthreads();
  for (int64_t slot = threadIdx.x; slot < choices; slot += blockDim.x) {
    const int32_t choice = p.source_rows[slot];
    p.slots[choice] = static_cast<int32_t>(slot);
    p.source_rows[slot] = static_cast<int32_t>(choice / p.k);
  }
}

template <typename T>
__global__ void CombineKernel(MoeCombineParams p) {
  const int64_t row = blockIdx.x;
  const float* weights = p.weights + row * p.weights_stride;
  const int32_t* slots = p.slots + row * p.slots_stride;
  T* out = static_cast<T*>(p.out) + row * p.out_stride;
  for (int64_t i = FirstOfThread(); i < p.width; i += ThreadsOfRow()) {
    float sum = 0;
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

cudaError_t LaunchMoeRoute(const MoeRouteParams& params, cudaStream_t stream) {
  if (params.rows > 0) {
    const cudaError_t error =
        Launch(ChooseExpertsKernel, ElementShape(params.rows), stream, params);
    if (error != cudaSuccess) return error;
  }
  return Launch(SortByExpertKernel, RowShape(1, params.experts), stream, params);
}

cudaError_t LaunchMoeCombine(const MoeCombineParams& params, cudaStream_t stream) {
  if (params.rows == 0) return cudaSuccess;
  return WithFloatType(params.dtype, [&](auto type) {
    return Launch(CombineKernel<decltype(type)>, SpreadShape(params.rows, params.width), stream,
                  params);
  });
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
