#include "kernels/cuda/launch/plain_shapes.h"
#include "kernels/cuda/plain/float_types.h"
#include "kernels/cuda/plain/fours.h"
#include "kernels/cuda/plain/moe_kernels.h"
#include "kernels/cuda/platform.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

// The largest of `count` logits, without the one at `without`.
__device__ __forceinline__ int64_t BestOf(const float* logits, int64_t count, int64_t without) {
  int64_t best = without == 0 ? 1 : 0;
  for (int64_t e = best + 1; e < count; ++e) {
    if (e != without && logits[e] > logits[best]) best = e;
  }
  return best;
}

// Its softmax among those near to it; see MoeScoresArgs.
__device__ float NearSoftmax(const MoeScoresParams& p, const float* logits, int64_t best,
                             int64_t without) {
  const float most = logits[best];
  float total = 0;
  for (int64_t e = 0; e < p.experts; ++e) {
    const float x = logits[e];
    const bool far = (most - x) / fmaxf(fabsf(x), most) > 2 * p.jitter;
    if (e != without && !far) total += expf(x - most);
  }
  return 1.0f / total;
}

__device__ void MixSparsely(const MoeScoresParams& p, float* scores) {
  const int64_t first = BestOf(scores, p.experts, -1);
  const int64_t second = BestOf(scores, p.experts, first);
  const float of_first = NearSoftmax(p, scores, first, -1);
  const float of_second = NearSoftmax(p, scores, second, first);
  for (int64_t e = 0; e < p.experts; ++e) {
    scores[e] = e == first ? of_first : e == second ? of_second : 0.0f;
  }
}

// A thread per row.
__global__ void ScoresKernel(MoeScoresParams p) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (row >= p.rows) return;
  float* scores = p.scores + row * p.stride;
  if (p.sparse_mixer) return MixSparsely(p, scores);
  float largest = scores[0];
  for (int64_t e = 1; e < p.experts; ++e) largest = fmaxf(largest, scores[e]);
  float total = 0;
  for (int64_t e = 0; p.softmax && e < p.experts; ++e) total += expf(scores[e] - largest);
  for (int64_t e = 0; e < p.experts; ++e) {
    scores[e] = p.softmax ? expf(scores[e] - largest) / total : 1.0f / (1.0f + expf(-scores[e]));
  }
}

__device__ __forceinline__ float ChoiceOf(const MoeRouteParams& p, const float* scores, int64_t e) {
  return p.choice_bias == nullptr ? scores[e] : scores[e] + p.choice_bias[e];
}

// On the weight of an expert, at last.
__device__ __forceinline__ float ScaleOf(const MoeRouteParams& p, int32_t expert) {
  return p.expert_scales == nullptr ? 1.0f : p.expert_scales[expert];
}

constexpr float kLowest = -3.402823466e38f;

// Which groups a row chooses from, a bit for each.
__device__ uint64_t KeptGroups(const MoeRouteParams& p, const float* scores) {
  if (p.groups == 1) return 1;
  const int64_t members = p.experts / p.groups;
  uint64_t kept = 0;
  for (int64_t n = 0; n < p.groups_per_row; ++n) {
    int64_t best_group = -1;
    float best_worth = 0;
    for (int64_t g = 0; g < p.groups; ++g) {
      if (((kept >> g) & 1) != 0) continue;
      float best = kLowest, second = kLowest;
      for (int64_t e = g * members; e < (g + 1) * members; ++e) {
        const float choice = ChoiceOf(p, scores, e);
        second = fmaxf(second, fminf(best, choice));
        best = fmaxf(best, choice);
      }
      const float worth = p.groups_by_best ? best : best + second;
      if (best_group >= 0 && worth <= best_worth) continue;
      best_group = g;
      best_worth = worth;
    }
    kept |= uint64_t{1} << best_group;
  }
  return kept;
}

// A thread per row: as ChooseExpertsKernel, from scores.
__global__ void ChooseScoredKernel(MoeRouteParams p) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (row >= p.rows) return;
  const float* scores = p.logits + row * p.logits_stride;
  float* weights = p.weights + row * p.weights_stride;
  int32_t* chosen = p.slots + row * p.k;
  const uint64_t kept = KeptGroups(p, scores);
  const int64_t members = p.experts / p.groups;
  float total = 0;
  for (int64_t j = 0; j < p.k; ++j) {
    int64_t best = -1;
    float best_choice = 0;
    for (int64_t e = 0; e < p.experts; ++e) {
      bool taken = ((kept >> (e / members)) & 1) == 0;
      for (int64_t i = 0; i < j; ++i) taken = taken || chosen[i] == e;
      const float choice = ChoiceOf(p, scores, e);
      if (taken || (best >= 0 && choice <= best_choice)) continue;
      best = e;
      best_choice = choice;
    }
    chosen[j] = static_cast<int32_t>(best);
    weights[j] = scores[best];
    total += scores[best];
  }
  for (int64_t j = 0; j < p.k; ++j) {
    weights[j] *= (p.renormalise ? p.factor / total : p.factor) * ScaleOf(p, chosen[j]);
  }
}

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
  for (int64_t j = 0; j < p.k; ++j) {
    if (p.renormalise) weights[j] /= chosen_total;
    weights[j] *= p.factor * ScaleOf(p, chosen[j]);
  }
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

cudaError_t LaunchMoeScores(const MoeScoresParams& params, cudaStream_t stream) {
  if (params.rows == 0) return cudaSuccess;
  return Launch(ScoresKernel, ElementShape(params.rows), stream, params);
}

cudaError_t LaunchMoeRoute(const MoeRouteParams& params, cudaStream_t stream) {
  if (params.rows > 0) {
    const auto kernel = params.scored ? &ChooseScoredKernel : &ChooseExpertsKernel;
    const cudaError_t error = Launch(kernel, ElementShape(params.rows), stream, params);
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
