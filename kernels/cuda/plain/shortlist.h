// The best logits of a row in shared memory, and where top-k or top-p cuts them. For .cu files.
//
// Nothing is sorted: the value at which a cut lies is found by narrowing the range of values, with
// a threshold per warp. All threads of the block call these functions.
#pragma once

#include "kernels/cuda/plain/logit_rows.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {

inline constexpr int kShortlistSize = 2048;

// Shared memory of a block; in the order of ids.
struct Shortlist {
  float values[kShortlistSize];
  float weights[kShortlistSize];
  int32_t ids[kShortlistSize];
};

// Elements above `value`, and of those that equal it the ones up to last_id.
struct Cut {
  float value;
  int last_id;

  __device__ bool Keeps(float logit, int id) const {
    return logit > value || (logit == value && id <= last_id);
  }
};

// The weight of a candidate: exp((logit - largest) / temperature).
struct LogitWeight {
  float largest, scale;

  __device__ LogitWeight(float largest_logit, float temperature)
      : largest(largest_logit), scale(fmaxf(kLog2OfE / temperature, 1e-37f)) {}
  __device__ float operator()(float logit) const { return Exp2((logit - largest) * scale); }
  // The weights of all logits below add up to less than any part of the total that top_p, a float,
  // can leave out.
  __device__ float LeastThatCounts() const { return largest - 46.0f / scale; }
};

// Where the value of a cut lies, as orders of values, and the amount of what is above `high`.
struct CutRange {
  uint32_t low, high;
  float above;
  double enough;

  // Thresholds 0 to n - 1 lie steps of this size apart, some maybe above `high`.
  __device__ uint32_t StepOf(int thresholds) const { return (high - low) / (thresholds + 1) + 1; }
  __device__ uint64_t Threshold(int t, uint32_t step) const {
    return low + static_cast<uint64_t>(t + 1) * step;
  }
  // There is enough from the first `passed` thresholds on.
  __device__ void Narrow(int passed, uint32_t step) {
    const uint64_t next = Threshold(passed, step);
    low += static_cast<uint32_t>(passed) * step;
    if (next <= high) high = OrderBelow(static_cast<uint32_t>(next));
  }
};

// To scratch.counts: how many elements of each warp's segment the cut keeps from `low` to `high`.
// Returns the sum.
__device__ __forceinline__ int CountElements(const LogitRow& row, const Cut& within, float low,
                                             float high, LogitsScratch& scratch) {
  int own = 0;
  VisitSegments(row, [&](const float(&four)[kFour], int first) {
#pragma unroll
    for (int e = 0; e < kFour; ++e) {
      own += four[e] >= low && four[e] <= high && within.Keeps(four[e], first + e);
    }
  });
  return SumOfBlock(own, scratch.counts);
}

// The elements that scratch.counts counts.
template <typename WeightOf>
__device__ __forceinline__ void FillShortlist(const LogitRow& row, const Cut& within, float low,
                                              float high, WeightOf weight_of, Shortlist& list,
                                              const LogitsScratch& scratch) {
  int next = SumOfWarp(Lane() < Warp() ? scratch.counts[Lane()] : 0);
  const uint32_t lower_lanes = (1u << Lane()) - 1;
  VisitSegments(row, [&](const float(&four)[kFour], int first) {
    const float best = fmaxf(fmaxf(four[0], four[1]), fmaxf(four[2], four[3]));
    if (__ballot_sync(kAllLanes, best >= low) == 0) return;
    bool listed[kFour];
    int before = 0, all = 0;
#pragma unroll
    for (int e = 0; e < kFour; ++e) {
      listed[e] = four[e] >= low && four[e] <= high && within.Keeps(four[e], first + e);
      const uint32_t lanes = __ballot_sync(kAllLanes, listed[e]);
      before += __popc(lanes & lower_lanes);
      all += __popc(lanes);
    }
    int at = next + before;
#pragma unroll
    for (int e = 0; e < kFour; ++e) {
      if (!listed[e]) continue;
      list.values[at] = four[e];
      list.weights[at] = weight_of(four[e]);
      list.ids[at] = first + e;
      ++at;
    }
    next += all;
  });
  __syncthreads();
}

// How many elements of equal weight it takes until the amount is enough: 1 or more.
__device__ __forceinline__ double TiesFor(const CutRange& range, float weight,
                                          LogitsScratch& scratch) {
  if (threadIdx.x == 0) {
    const double missing = range.enough - range.above;
    scratch.rest = fmax(1.0, ceil(missing / weight));
  }
  __syncthreads();
  const double ties = scratch.rest;
  __syncthreads();
  return ties;
}

// The tightest cut of the list's first `count` elements, of those that `within` keeps, that has
// enough. An element's amount is its weight, or 1. There is enough from range.low on, or the cut is
// there.
__device__ __forceinline__ Cut CutShortlist(const Shortlist& list, int count, const Cut& within,
                                            bool by_weight, CutRange range,
                                            LogitsScratch& scratch) {
  const auto amount_of = [&](int i) {
    if (!within.Keeps(list.values[i], list.ids[i])) return 0.0f;
    return by_weight ? list.weights[i] : 1.0f;
  };
  while (range.low < range.high) {
    const uint32_t step = range.StepOf(Warps());
    const uint64_t order = range.Threshold(Warp(), step);
    float amount = 0;
    if (order <= range.high) {
      const float value = ValueOf(static_cast<uint32_t>(order));
      for (int i = Lane(); i < count; i += kWarpThreads) {
        if (list.values[i] >= value) amount += amount_of(i);
      }
    }
    amount = SumOfWarp(amount);
    if (Lane() == 0) {
      scratch.counts[Warp()] = order <= range.high && range.above + amount >= range.enough;
    }
    __syncthreads();
    const bool passed = Lane() < Warps() && scratch.counts[Lane()] != 0;
    range.Narrow(__popc(__ballot_sync(kAllLanes, passed)), step);
    __syncthreads();
  }
  const float value = ValueOf(range.low);
  float above = 0, weight = 0;
  int equal = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
    const float amount = amount_of(i);
    if (list.values[i] > value) above += amount;
    if (list.values[i] == value && within.Keeps(value, list.ids[i])) {
      weight = amount;
      ++equal;
    }
  }
  range.above += SumOfBlock(above, scratch.sums);
  equal = SumOfBlock(equal, scratch.counts);
  weight = ValueOf(static_cast<uint32_t>(LargestOfBlock(OrderOf(weight), scratch.ranks)));
  const double ties = TiesFor(range, weight, scratch);
  if (equal <= ties) return {value, within.value == value ? within.last_id : INT32_MAX};
  const int last = FirstAbove(
      count,
      [&](int i) {
        return list.values[i] == value && within.Keeps(value, list.ids[i]) ? 1.0f : 0.0f;
      },
      [ties](double) { return ties - 0.5; }, scratch);
  return {value, list.ids[last]};
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
