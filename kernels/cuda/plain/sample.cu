// Sample: a block per row. Nothing is sorted: the rank at which top-k or top-p cuts is found by
// halving the range of ranks, and the draw runs over the ids in order.
#include "kernels/cuda/launch/plain_shapes.h"
#include "kernels/cuda/plain/logits_kernels.h"
#include "kernels/cuda/plain/ranks.h"
#include "kernels/cuda/plain/sums.h"
#include "kernels/cuda/platform.h"
#include "kernels/philox.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

// What ops.h calls kLogitsNotFinite, kNothingToPick and kLeastTemperature.
constexpr int32_t kNotFinite = -1;
constexpr int32_t kNothing = -2;
constexpr float kLeastTemperatureUsed = 1e-6f;
constexpr float kLargestFloat = 3.402823466e38f;

// Within the finite numbers; NaN becomes the least.
__device__ __forceinline__ float Bounded(float logit) {
  return fminf(fmaxf(logit, -kLargestFloat), kLargestFloat);
}

// Bias, then penalties. An id may have several biases, which count in order; in the history it
// stands once.
__device__ __forceinline__ void AdjustLogits(const SampleParams& p, int64_t row, float* logits) {
  if (threadIdx.x == 0) {
    for (int64_t e = p.bias_offsets[row]; e < p.bias_offsets[row + 1]; ++e) {
      const int32_t id = p.bias_ids[e];
      if (id < 0 || id >= p.vocabulary || logits[id] == -INFINITY) continue;
      const float bias = p.bias_values[e];
      logits[id] = bias == -INFINITY ? -INFINITY : Bounded(logits[id] + bias);
    }
  }
  __syncthreads();
  const int64_t end = p.history_offsets[row + 1];
  for (int64_t e = p.history_offsets[row] + threadIdx.x; e < end; e += blockDim.x) {
    const int32_t id = p.history_ids[e];
    if (id < 0 || id >= p.vocabulary || logits[id] == -INFINITY) continue;
    const float repetition = p.repetition[row];
    float logit = logits[id];
    logit = Bounded(logit > 0 ? logit / repetition : logit * repetition);
    const int32_t count = p.history_counts[e];
    if (count > 0) {
      logit = Bounded(logit - (p.presence[row] + p.frequency[row] * static_cast<float>(count)));
    }
    logits[id] = logit;
  }
  __syncthreads();
}

// The candidates of a row: ids whose rank and scaled logit are high enough.
struct Candidates {
  const float* logits;
  int64_t vocabulary;
  double temperature, largest, least;  // scaled
  uint64_t lowest_rank;

  // exp(scaled - largest), or 0 for what is none; `from` is one more bound on the rank.
  __device__ double Weight(int64_t id, uint64_t from = 0) const {
    const uint64_t rank = RankOf(logits[id], id);
    const double scaled = static_cast<double>(logits[id]) / temperature;
    if (rank < lowest_rank || rank < from || scaled < least || logits[id] == -INFINITY) return 0;
    return expf(static_cast<float>(scaled - largest));
  }
  __device__ bool Has(int64_t id, uint64_t from) const {
    return RankOf(logits[id], id) >= from &&
           static_cast<double>(logits[id]) / temperature >= least && logits[id] != -INFINITY;
  }
  // Of all threads of the block.
  __device__ double WeightFrom(uint64_t from, double* sums) const {
    double sum = 0;
    for (int64_t id = threadIdx.x; id < vocabulary; id += blockDim.x) sum += Weight(id, from);
    return SumOfRow(sum, sums);
  }
  __device__ double CountFrom(uint64_t from, double* sums) const {
    double count = 0;
    for (int64_t id = threadIdx.x; id < vocabulary; id += blockDim.x) count += Has(id, from);
    return SumOfRow(count, sums);
  }
};

// The highest rank, of those up to `best`, from which on there is enough; 0 if there never is.
template <typename AmountFrom>
__device__ __forceinline__ uint64_t CutAt(uint64_t best, double enough, AmountFrom amount_from) {
  uint64_t low = 0, high = best;
  while (low < high) {
    const uint64_t middle = low + (high - low + 1) / 2;
    if (amount_from(middle) >= enough) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// The first id, in order, at which the sum of the weights is above uniform * total.
__device__ __forceinline__ int32_t Draw(const Candidates& candidates, double uniform,
                                        double* part_sums) {
  const int64_t part = (candidates.vocabulary + blockDim.x - 1) / blockDim.x;
  const int64_t begin = threadIdx.x * part;
  double sum = 0;
  for (int64_t id = begin; id < begin + part && id < candidates.vocabulary; ++id) {
    sum += candidates.Weight(id);
  }
  part_sums[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return 0;
  double total = 0;
  for (int64_t i = 0; i < blockDim.x; ++i) total += part_sums[i];
  const double target = uniform * total;
  double before = 0;
  int64_t last = 0;
  for (int64_t i = 0; i < blockDim.x; ++i) {
    if (part_sums[i] == 0) continue;
    const bool here = before + part_sums[i] > target;
    double so_far = before;
    // The part that the target falls in; of others only the last candidate may matter.
    for (int64_t id = i * part; here && id < (i + 1) * part && id < candidates.vocabulary; ++id) {
      const double weight = candidates.Weight(id);
      so_far += weight;
      if (so_far > target) return static_cast<int32_t>(id);
      if (weight > 0) last = id;
    }
    before += part_sums[i];
  }
  for (int64_t id = candidates.vocabulary - 1; id > last; --id) {
    if (candidates.Weight(id) > 0) return static_cast<int32_t>(id);
  }
  return static_cast<int32_t>(last);
}

__global__ void SampleKernel(SampleParams p) {
  TESSERA_SHARED(double, sums, kMaxRowThreads);
  TESSERA_SHARED(uint64_t, ranks, kMaxRowWarps);
  const int64_t row = blockIdx.x;
  float* logits = p.logits + row * p.stride;
  double not_finite = 0;
  for (int64_t id = threadIdx.x; id < p.vocabulary; id += blockDim.x) {
    not_finite += fabsf(logits[id]) <= kLargestFloat ? 0 : 1;  // NaN is not
  }
  if (SumOfRow(not_finite, sums) > 0) {
    if (threadIdx.x == 0) p.token_ids[row] = kNotFinite;
    return;  // the whole block
  }
  AdjustLogits(p, row, logits);
  uint64_t best = 0;
  for (int64_t id = threadIdx.x; id < p.vocabulary; id += blockDim.x) {
    const uint64_t rank = RankOf(logits[id], id);
    best = rank > best ? rank : best;
  }
  best = LargestOfRow(best, ranks);
  const int64_t likeliest = IndexOf(best);
  const bool nothing = logits[likeliest] == -INFINITY;
  const float temperature = p.temperature[row];
  if (nothing || temperature < kLeastTemperatureUsed) {
    if (threadIdx.x == 0) p.token_ids[row] = nothing ? kNothing : static_cast<int32_t>(likeliest);
    return;  // the whole block
  }
  const double largest = static_cast<double>(logits[likeliest]) / temperature;
  const double min_p = p.min_p[row];
  Candidates candidates = {
      logits, p.vocabulary, temperature, largest, min_p > 0 ? largest + log(min_p) : -INFINITY, 0};
  const int32_t top_k = p.top_k[row];
  if (top_k > 0 && top_k < p.vocabulary) {
    candidates.lowest_rank =
        CutAt(best, top_k, [&](uint64_t from) { return candidates.CountFrom(from, sums); });
  }
  const double top_p = p.top_p[row];
  if (top_p < 1) {
    const double enough = top_p * candidates.WeightFrom(0, sums);
    const uint64_t cut =
        CutAt(best, enough, [&](uint64_t from) { return candidates.WeightFrom(from, sums); });
    candidates.lowest_rank = cut > candidates.lowest_rank ? cut : candidates.lowest_rank;
  }
  const double uniform = SamplingUniform(p.seeds[row], p.choices[row], p.positions[row]);
  const int32_t drawn = Draw(candidates, uniform, sums);
  if (threadIdx.x == 0) p.token_ids[row] = drawn;
}

}  // namespace

cudaError_t LaunchSample(const SampleParams& params, cudaStream_t stream) {
  if (params.rows == 0) return cudaSuccess;
  return Launch(SampleKernel, RowShape(params.rows, params.vocabulary), stream, params);
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
