// Passes of a block over a row of logits, and where in it a sum is reached. For .cu files.
//
// Each element costs a few instructions in f32. Sums have an order that depends on the width alone:
// rows whose fours are not aligned are read one by one, in the same order.
//
// All threads of the block call these functions; blockDim is that of LogitsShape.
#pragma once

#include "kernels/cuda/launch/plain_shapes.h"
#include "kernels/cuda/plain/fours.h"
#include "kernels/cuda/plain/order_keys.h"
#include "kernels/cuda/plain/sums.h"
#include "kernels/cuda/platform.h"
#include "kernels/cuda/warp_ops.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {

inline constexpr float kLargestFloat = 3.402823466e38f;
inline constexpr float kLog2OfE = 1.44269504f;

__device__ __forceinline__ int Lane() { return static_cast<int>(threadIdx.x) % kWarpThreads; }
__device__ __forceinline__ int Warp() { return static_cast<int>(threadIdx.x) / kWarpThreads; }
__device__ __forceinline__ int Warps() { return static_cast<int>(blockDim.x) / kWarpThreads; }

// Shared memory of a block.
struct LogitsScratch {
  uint64_t ranks[kMaxLogitsWarps];
  float sums[kMaxLogitsWarps];
  int counts[kMaxLogitsWarps];
  double rest;
  float least;
  int warp, index;
};

// The sum over the threads; `sums` keeps those of the warps.
template <typename T>
__device__ __forceinline__ T SumOfBlock(T value, T* sums) {
  value = SumOfWarp(value);
  if (Lane() == 0) sums[Warp()] = value;
  __syncthreads();
  const T sum = SumOfWarp(Lane() < Warps() ? sums[Lane()] : T{0});
  __syncthreads();
  return sum;
}

__device__ __forceinline__ uint64_t LargestOfWarp(uint64_t value) {
  for (int mask = kWarpThreads / 2; mask > 0; mask /= 2) {
    const uint64_t other = __shfl_xor_sync(kAllLanes, value, mask);
    value = other > value ? other : value;
  }
  return value;
}

__device__ __forceinline__ uint64_t LargestOfBlock(uint64_t value, uint64_t* largest_of_warps) {
  value = LargestOfWarp(value);
  if (Lane() == 0) largest_of_warps[Warp()] = value;
  __syncthreads();
  const uint64_t largest = LargestOfWarp(Lane() < Warps() ? largest_of_warps[Lane()] : 0);
  __syncthreads();
  return largest;
}

struct LogitRow {
  const float* data;
  int width;
  int whole_fours;  // that can be read at once

  __device__ LogitRow(const float* row, int64_t width_of_row)
      : data(row),
        width(static_cast<int>(width_of_row)),
        whole_fours(reinterpret_cast<uintptr_t>(row) % sizeof(float4) == 0 ? width / kFour : 0) {}
  __device__ int fours() const { return (width + kFour - 1) / kFour; }
  // Ids of the warp's segment: fours [begin, end). A segment begins with a sector.
  __device__ int FoursOfSegment() const {
    constexpr int kFoursOfSector = 8;
    const int each = (fours() + Warps() - 1) / Warps();
    return (each + kFoursOfSector - 1) / kFoursOfSector * kFoursOfSector;
  }
  __device__ int SegmentBegin(int warp) const { return min(fours(), warp * FoursOfSegment()); }
  __device__ int SegmentEnd(int warp) const { return SegmentBegin(warp + 1); }
};

// visit(four, first id) for the fours `own`, `own` + threads, ... of [begin, end), four of them in
// flight. Each of `threads` threads visits equally often: what lies behind the row or `end` is
// -inf, with ids from the width on.
template <typename Visit>
__device__ __forceinline__ void VisitFours(const LogitRow& row, int begin, int end, int own,
                                           int threads, Visit visit) {
  constexpr int kInFlight = 4;
  for (int base = begin; base < end; base += kInFlight * threads) {
    const int last = base + kInFlight * threads;
    float fours[kInFlight][kFour];
    int ids[kInFlight];
    if (last <= end && last <= row.whole_fours) {
#pragma unroll
      for (int f = 0; f < kInFlight; ++f) {
        ids[f] = kFour * (base + f * threads + own);
        LoadFour(row.data + ids[f], fours[f]);
      }
    } else {
#pragma unroll
      for (int f = 0; f < kInFlight; ++f) {
        const int four = base + f * threads + own;
        ids[f] = four < end ? kFour * four : row.width;
#pragma unroll
        for (int e = 0; e < kFour; ++e) {
          fours[f][e] = ids[f] + e < row.width ? row.data[ids[f] + e] : -INFINITY;
        }
      }
    }
#pragma unroll
    for (int f = 0; f < kInFlight; ++f) visit(fours[f], ids[f]);
  }
}

// Each warp visits a segment of its own, in the order of ids; the lanes equally often.
template <typename Visit>
__device__ __forceinline__ void VisitSegments(const LogitRow& row, Visit visit) {
  VisitFours(row, row.SegmentBegin(Warp()), row.SegmentEnd(Warp()), Lane(), kWarpThreads, visit);
}

struct BestLogit {
  bool finite;  // no element is NaN or infinite, where that was asked
  uint64_t rank;
  // The least of the best of the block's groups of 8 threads: in a wide row 128 elements or more,
  // and some 700 where its best are anywhere, are no less.
  float common;
};

template <bool asks_finite>
__device__ __forceinline__ BestLogit BestOf(const LogitRow& row, LogitsScratch& scratch) {
  constexpr int kLanesOfGroup = 8;
  float best = -INFINITY, zero = 0;
  int best_id = 0;
  // Groups take elements from everywhere: in vocabularies, what is frequent stands together.
  VisitFours(row, 0, row.fours(), static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x),
             [&](const float(&four)[kFour], int first) {
#pragma unroll
               for (int e = 0; e < kFour; ++e) {
                 if (asks_finite && (first + kFour <= row.width || first + e < row.width)) {
                   zero = fmaf(four[e], 0.0f, zero);  // NaN from what is not finite
                 }
                 if (four[e] > best) {
                   best = four[e];
                   best_id = first + e;
                 }
               }
             });
  float common = best;
  for (int mask = 1; mask < kLanesOfGroup; mask *= 2) {
    common = fmaxf(common, __shfl_xor_sync(kAllLanes, common, mask));
  }
  // Above every rank, which ends in an id's complement.
  constexpr uint64_t kNotFinite = ~uint64_t{0};
  const uint64_t rank = zero == 0 ? RankOf(best, best_id) : kNotFinite;
  BestLogit result;
  result.rank = LargestOfBlock(rank, scratch.ranks);
  result.finite = result.rank != kNotFinite;
  result.common = ValueOf(~static_cast<uint32_t>(
      LargestOfBlock(static_cast<uint32_t>(~OrderOf(common)), scratch.ranks)));
  return result;
}

// The lowest lane with a hit; if there is none, the highest that has something.
__device__ __forceinline__ int LaneOfHit(bool hit, bool something) {
  const uint32_t hits = __ballot_sync(kAllLanes, hit);
  if (hits != 0) return __ffs(static_cast<int>(hits)) - 1;
  const uint32_t some = __ballot_sync(kAllLanes, something);
  return some == 0 ? 0 : kWarpThreads - 1 - __clz(static_cast<int>(some));
}

template <typename T>
__device__ __forceinline__ T SumUpToLane(T value) {
  for (int step = 1; step < kWarpThreads; step *= 2) {
    const T below = __shfl_up_sync(kAllLanes, value, step);
    if (Lane() >= step) value += below;
  }
  return value;
}

// Looks at the warps' sums in `scratch`: scratch.warp is the first with which the total of the
// warps up to it is above target_of(total of all), scratch.rest what of the target is left for it.
template <typename TargetOf>
__device__ __forceinline__ void ChooseWarp(LogitsScratch& scratch, TargetOf target_of) {
  __syncthreads();
  if (threadIdx.x < kWarpThreads) {
    const double own = Lane() < Warps() ? static_cast<double>(scratch.sums[Lane()]) : 0.0;
    const double upto = SumUpToLane(own);
    const double target = target_of(__shfl_sync(kAllLanes, upto, kWarpThreads - 1));
    const int chosen = LaneOfHit(own > 0 && upto > target, own > 0);
    if (Lane() == chosen) {
      scratch.warp = chosen;
      scratch.rest = target - (upto - own);
    }
  }
  __syncthreads();
}

// The first of `count` items, in their order, with which the sum of their weights (0 or more, of
// which one is above 0) is above target_of(sum of all); the last of weight where none is.
template <typename WeightOf, typename TargetOf>
__device__ __forceinline__ int FirstAbove(int count, WeightOf weight_of, TargetOf target_of,
                                          LogitsScratch& scratch) {
  const auto threads = static_cast<int>(blockDim.x);
  const int each = (count + threads - 1) / threads;
  const int begin = min(count, static_cast<int>(threadIdx.x) * each);
  const int end = min(count, begin + each);
  float own = 0;
  for (int i = begin; i < end; ++i) own += weight_of(i);
  const float upto = SumUpToLane(own);
  if (Lane() == kWarpThreads - 1) scratch.sums[Warp()] = upto;
  ChooseWarp(scratch, target_of);
  if (Warp() == scratch.warp) {
    const auto rest = static_cast<float>(scratch.rest);
    const int chosen = LaneOfHit(own > 0 && upto > rest, own > 0);
    if (Lane() == chosen) {
      float sum = upto - own;
      int found = -1;
      for (int i = begin; i < end && (sum <= rest || found < 0); ++i) {
        const float weight = weight_of(i);
        if (weight == 0) continue;
        found = i;
        sum += weight;
      }
      scratch.index = found;
    }
  }
  __syncthreads();
  return scratch.index;
}

// The same for the ids of a row; weight_of(value, id).
template <typename WeightOf, typename TargetOf>
__device__ __forceinline__ int FirstIdAbove(const LogitRow& row, WeightOf weight_of,
                                            TargetOf target_of, LogitsScratch& scratch) {
  float own[kFour] = {};
  VisitSegments(row, [&](const float(&four)[kFour], int first) {
#pragma unroll
    for (int e = 0; e < kFour; ++e) own[e] += weight_of(four[e], first + e);
  });
  const float sum = SumOfWarp((own[0] + own[1]) + (own[2] + own[3]));
  if (Lane() == 0) scratch.sums[Warp()] = sum;
  ChooseWarp(scratch, target_of);
  const int begin = kFour * row.SegmentBegin(scratch.warp);
  const int end = min(row.width, kFour * row.SegmentEnd(scratch.warp));
  const double rest = scratch.rest;
  return begin + FirstAbove(
                     end - begin, [&](int i) { return weight_of(row.data[begin + i], begin + i); },
                     [rest](double) { return rest; }, scratch);
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
