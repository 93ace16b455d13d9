// Sample: a block per row, a few passes over it. Where the candidates that matter are few, they go
// to shared memory, and top-k, top-p and the draw look at those only; else passes over the row
// narrow the range of values in which the cut lies. The draw runs over the ids in order.
#include "kernels/cuda/launch/plain_shapes.h"
#include "kernels/cuda/plain/logit_rows.h"
#include "kernels/cuda/plain/logits_kernels.h"
#include "kernels/cuda/plain/shortlist.h"
#include "kernels/cuda/platform.h"
#include "kernels/philox.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

// What ops.h calls kLogitsNotFinite, kNothingToPick and kMinTemperature.
constexpr int32_t kNotFinite = -1;
constexpr int32_t kNothing = -2;
constexpr float kMinTemperatureUsed = 1e-6f;

// Within the finite numbers; NaN becomes the least.
__device__ __forceinline__ float Bounded(float logit) {
  return fminf(fmaxf(logit, -kLargestFloat), kLargestFloat);
}

// Bias, then penalties, then the mask. An id may have several biases, which count in order: a
// thread adds all of its ids. In the history an id stands once. Returns whether there is any.
__device__ __forceinline__ bool AdjustLogits(const SampleParams& p, int64_t row, float* logits) {
  const int bias_begin = p.bias_offsets[row], bias_end = p.bias_offsets[row + 1];
  for (int e = bias_begin; e < bias_end; ++e) {
    const int32_t id = p.bias_ids[e];
    if (id < 0 || id >= p.vocabulary || id % blockDim.x != threadIdx.x) continue;
    if (logits[id] == -INFINITY) continue;
    const float bias = p.bias_values[e];
    logits[id] = bias == -INFINITY ? -INFINITY : Bounded(logits[id] + bias);
  }
  __syncthreads();
  const float repetition = p.repetition[row];
  const float presence = p.presence[row], frequency = p.frequency[row];
  const bool penalties = repetition != 1 || presence != 0 || frequency != 0;
  const int begin = p.history_offsets[row], end = penalties ? p.history_offsets[row + 1] : begin;
  for (int e = begin + static_cast<int>(threadIdx.x); e < end; e += static_cast<int>(blockDim.x)) {
    const int32_t id = p.history_ids[e];
    if (id < 0 || id >= p.vocabulary || logits[id] == -INFINITY) continue;
    float logit = logits[id];
    logit = Bounded(logit > 0 ? logit / repetition : logit * repetition);
    const int32_t count = p.history_counts[e];
    if (count > 0) logit = Bounded(logit - (presence + frequency * static_cast<float>(count)));
    logits[id] = logit;
  }
  __syncthreads();
  const int32_t mask = p.mask_rows == nullptr ? -1 : p.mask_rows[row];
  const bool masked = mask >= 0 && mask < p.mask_count;
  if (masked) {
    const int32_t* bits = p.masks + mask * p.mask_stride;
    for (int64_t id = threadIdx.x; id < p.vocabulary; id += blockDim.x) {
      if ((static_cast<uint32_t>(bits[id / 32]) >> (id % 32) & 1) == 0) logits[id] = -INFINITY;
    }
    __syncthreads();
  }
  return bias_begin < bias_end || begin < end || masked;
}

// The least finite logit whose share of the largest one's weight is min_p or more. One thread.
__device__ __forceinline__ float LeastCandidate(float largest, double temperature, double min_p) {
  if (min_p <= 0) return -kLargestFloat;
  const double least = static_cast<double>(largest) / temperature + log(min_p);
  const uint32_t lowest = OrderOf(-kLargestFloat), highest = OrderOf(largest);
  const auto is_candidate = [&](uint32_t order) {
    return static_cast<double>(ValueOf(order)) / temperature >= least;
  };
  // At most one off, by the rounding to a float.
  uint32_t order = min(highest, OrderOf(Bounded(static_cast<float>(least * temperature))));
  while (order > lowest && is_candidate(order - 1)) --order;
  while (order < highest && !is_candidate(order)) ++order;
  return ValueOf(order);
}

struct Amounts {
  float all;     // weight of the candidates
  float weight;  // of those from a limit on
  int count;     // of the same
};

// The block's row after adjustment, and what it may use.
struct Sampler {
  const LogitRow& row;
  LogitWeight weight;
  uint32_t best;  // OrderOf
  Shortlist& list;
  LogitsScratch& scratch;

  // The amounts of candidates from `least` on and, also in scratch.counts, those from `low` on.
  __device__ __forceinline__ Amounts AmountsOf(float least, float low) const {
    float all[kFour] = {}, listed[kFour] = {};
    int count = 0;
    VisitSegments(row, [&](const float(&four)[kFour], int) {
#pragma unroll
      for (int e = 0; e < kFour; ++e) {
        if (four[e] < least) continue;
        const float amount = weight(four[e]);
        all[e] += amount;
        if (four[e] < low) continue;
        listed[e] += amount;
        ++count;
      }
    });
    Amounts amounts;
    amounts.all = SumOfBlock((all[0] + all[1]) + (all[2] + all[3]), scratch.sums);
    amounts.weight = SumOfBlock((listed[0] + listed[1]) + (listed[2] + listed[3]), scratch.sums);
    amounts.count = SumOfBlock(count, scratch.counts);
    return amounts;
  }

  __device__ float WeightOfKept(const Cut& cut) const {
    float own[kFour] = {};
    VisitSegments(row, [&](const float(&four)[kFour], int first) {
#pragma unroll
      for (int e = 0; e < kFour; ++e) {
        if (cut.Keeps(four[e], first + e)) own[e] += weight(four[e]);
      }
    });
    return SumOfBlock((own[0] + own[1]) + (own[2] + own[3]), scratch.sums);
  }

  // A pass that leaves a quarter of the range. Returns how many elements are in it.
  __device__ __forceinline__ int Narrow(CutRange& range, const Cut& within, bool by_weight) const {
    constexpr int kSteps = 3;
    const uint32_t step = range.StepOf(kSteps);
    const float low = ValueOf(range.low), high = ValueOf(range.high);
    float values[kSteps];
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const uint64_t order = range.Threshold(s, step);
      values[s] = order <= range.high ? ValueOf(static_cast<uint32_t>(order)) : INFINITY;
    }
    float amounts[kSteps] = {};
    int counts[kSteps + 1] = {};  // the first: from `low` on
    VisitSegments(row, [&](const float(&four)[kFour], int first) {
#pragma unroll
      for (int e = 0; e < kFour; ++e) {
        const float value = four[e];
        const bool open_here = value >= low && value <= high && within.Keeps(value, first + e);
        float amount = 1;
        if (by_weight && open_here) amount = weight(value);
        counts[0] += open_here;
#pragma unroll
        for (int s = 0; s < kSteps; ++s) {
          const bool from_here = open_here && value >= values[s];
          amounts[s] += from_here ? amount : 0;
          counts[s + 1] += from_here;
        }
      }
    });
    int passed = 0, open_above = 0, open = SumOfBlock(counts[0], scratch.counts);
    float above = 0;
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const float amount = SumOfBlock(amounts[s], scratch.sums);
      const int count = SumOfBlock(counts[s + 1], scratch.counts);
      if (passed < s) continue;
      if (values[s] <= high && range.above + amount >= range.enough) {
        ++passed;
        open = count;
      } else {
        above = amount;
        open_above = count;
      }
    }
    range.Narrow(passed, step);
    range.above += above;
    return open - open_above;
  }

  // CutShortlist of the whole row.
  __device__ __forceinline__ Cut CutRow(const Cut& within, bool by_weight, CutRange range) const {
    if (by_weight) range.low = max(range.low, min(range.high, OrderOf(weight.LeastThatCounts())));
    int open = INT32_MAX;
    while (range.low < range.high && open > kShortlistSize) {
      open = Narrow(range, within, by_weight);
    }
    const float low = ValueOf(range.low), high = ValueOf(range.high);
    open = CountElements(row, within, low, high, scratch);
    if (open <= kShortlistSize) {
      FillShortlist(row, within, low, high, weight, list, scratch);
      return CutShortlist(list, open, within, by_weight, range, scratch);
    }
    // Many equal elements.
    const double ties = TiesFor(range, by_weight ? weight(low) : 1.0f, scratch);
    if (open <= ties) return {low, within.value == low ? within.last_id : INT32_MAX};
    const int last = FirstIdAbove(
        row,
        [&](float value, int id) { return value == low && within.Keeps(low, id) ? 1.0f : 0.0f; },
        [ties](double) { return ties - 0.5; }, scratch);
    return {low, last};
  }
};

// What remains of the candidates, whose least is cut.value, is drawn from. With `common` of
// BestLogit.
__device__ __forceinline__ int32_t DrawCut(const Sampler& sampler, Cut cut, float common, int top_k,
                                           double top_p, double uniform) {
  LogitsScratch& scratch = sampler.scratch;
  const LogitRow& row = sampler.row;
  const Shortlist& list = sampler.list;
  const auto target_of = [uniform](double total) { return uniform * total; };
  // Cuts are made by count, then by weight.
  const bool by_count = top_k > 0 && top_k < row.width, by_weight = top_p < 1;
  const int first_cut = by_count ? 0 : 1, end_cut = by_weight ? 2 : 1;
  if (first_cut < end_cut) {
    const float low = row.width <= kShortlistSize ? cut.value : fmaxf(common, cut.value);
    const Amounts amounts = sampler.AmountsOf(cut.value, low);
    CutRange range = {OrderOf(low), sampler.best, 0, by_count ? top_k : top_p * amounts.all};
    const float from_low = by_count ? static_cast<float>(amounts.count) : amounts.weight;
    const bool enough = low == cut.value || from_low >= range.enough;
    if (enough && amounts.count <= kShortlistSize) {
      FillShortlist(row, cut, low, INFINITY, sampler.weight, sampler.list, scratch);
      const auto weight_of = [&](int i) {
        return cut.Keeps(list.values[i], list.ids[i]) ? list.weights[i] : 0.0f;
      };
#pragma unroll 1
      for (int c = first_cut; c < end_cut; ++c) {
        if (by_count && c == 1) {
          float own = 0;
          for (int i = static_cast<int>(threadIdx.x); i < amounts.count;
               i += static_cast<int>(blockDim.x)) {
            own += weight_of(i);
          }
          range = {OrderOf(fmaxf(low, cut.value)), sampler.best, 0,
                   top_p * SumOfBlock(own, scratch.sums)};
        }
        cut = CutShortlist(list, amounts.count, cut, c == 1, range, scratch);
      }
      return list.ids[FirstAbove(amounts.count, weight_of, target_of, scratch)];
    }
    if (!enough) range = {OrderOf(cut.value), OrderBelow(OrderOf(low)), from_low, range.enough};
#pragma unroll 1
    for (int c = first_cut; c < end_cut; ++c) {
      if (by_count && c == 1) {
        range = {OrderOf(cut.value), sampler.best, 0, top_p * sampler.WeightOfKept(cut)};
      }
      cut = sampler.CutRow(cut, c == 1, range);
    }
  }
  return FirstIdAbove(
      row, [&](float value, int id) { return cut.Keeps(value, id) ? sampler.weight(value) : 0.0f; },
      target_of, scratch);
}

__global__ void __launch_bounds__(kWarpThreads* kMaxLogitsWarps) SampleKernel(SampleParams p) {
  TESSERA_SHARED(LogitsScratch, scratch_of_block, 1);
  TESSERA_SHARED(Shortlist, list, 1);
  LogitsScratch& scratch = scratch_of_block[0];
  const int64_t r = blockIdx.x;
  float* logits = p.logits + r * p.stride;
  const LogitRow row(logits, p.vocabulary);
  BestLogit best = BestOf<true>(row, scratch);
  if (!best.finite) {
    if (threadIdx.x == 0) p.token_ids[r] = kNotFinite;
    return;  // the whole block
  }
  if (AdjustLogits(p, r, logits)) best = BestOf<false>(row, scratch);
  const int64_t likeliest = IndexOf(best.rank);
  const auto order = static_cast<uint32_t>(best.rank >> 32);
  const float largest = ValueOf(order);
  const bool nothing = largest == -INFINITY;
  const float temperature = p.temperature[r];
  if (nothing || temperature < kMinTemperatureUsed) {
    if (threadIdx.x == 0) p.token_ids[r] = nothing ? kNothing : static_cast<int32_t>(likeliest);
    return;  // the whole block
  }
  if (threadIdx.x == 0) scratch.least = LeastCandidate(largest, temperature, p.min_p[r]);
  __syncthreads();
  const Sampler sampler = {row, LogitWeight(largest, temperature), order, list[0], scratch};
  const double uniform = SamplingUniform(p.seeds[r], p.choices[r], p.positions[r]);
  const int32_t drawn = DrawCut(sampler, {scratch.least, row.width - 1}, best.common, p.top_k[r],
                                p.top_p[r], uniform);
  if (threadIdx.x == 0) p.token_ids[r] = drawn;
}

}  // namespace

cudaError_t LaunchSample(const SampleParams& params, cudaStream_t stream) {
  if (params.rows == 0) return cudaSuccess;
  return Launch(SampleKernel, LogitsShape(params.rows, params.vocabulary), stream, params);
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
