// Which experts a row uses, and the order of their slots: a warp per row, then one block that
// counts and sorts.
#include "kernels/cuda/launch/plain_shapes.h"
#include "kernels/cuda/plain/moe_kernels.h"
#include "kernels/cuda/plain/sums.h"
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

// The row's scores, for softmax alone: the largest, and the sum of powers. All lanes have both.
struct Powers {
  float largest, total;

  __device__ __forceinline__ static Powers Of(const float* scores, int64_t count, int lane) {
    float largest = -INFINITY;
    for (int64_t e = lane; e < count; e += kWarpThreads) largest = fmaxf(largest, scores[e]);
    for (int mask = kWarpThreads / 2; mask > 0; mask /= 2) {
      largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, mask));
    }
    float total = 0;
    for (int64_t e = lane; e < count; e += kWarpThreads) total += expf(scores[e] - largest);
    return {largest, SumOfWarp(total)};
  }
  __device__ __forceinline__ float SoftmaxOf(float score) const {
    return expf(score - largest) / total;
  }
};

__device__ __forceinline__ int64_t RowOfWarp() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
}

// A warp per row.
__global__ void ScoresKernel(MoeScoresParams p) {
  const int64_t row = RowOfWarp();
  if (row >= p.rows) return;
  const int lane = static_cast<int>(threadIdx.x);
  float* scores = p.scores + row * p.stride;
  if (p.sparse_mixer) {
    if (lane == 0) MixSparsely(p, scores);
    return;
  }
  Powers powers = {};
  if (p.softmax) powers = Powers::Of(scores, p.experts, lane);
  for (int64_t e = lane; e < p.experts; e += kWarpThreads) {
    scores[e] = p.softmax ? powers.SoftmaxOf(scores[e]) : 1.0f / (1.0f + expf(-scores[e]));
  }
}

__device__ __forceinline__ float ChoiceOf(const MoeRouteParams& p, const float* scores, int64_t e) {
  return p.choice_bias == nullptr ? scores[e] : scores[e] + p.choice_bias[e];
}

// On the weight of an expert, at last.
__device__ __forceinline__ float ScaleOf(const MoeRouteParams& p, int32_t expert) {
  return p.expert_scales == nullptr ? 1.0f : p.expert_scales[expert];
}

// Experts, or groups, as a row chooses them: a larger value has a larger rank, and of equal values
// the smaller number. No two have the same; what is no number has a rank as well.
__device__ __forceinline__ uint64_t RankOf(float value, int64_t number) {
  const uint32_t bits = __float_as_uint(value + 0.0f);  // 0 for -0
  const uint32_t ascending = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return uint64_t{ascending} << 32 | (0xfffffffeu - static_cast<uint32_t>(number));
}
__device__ __forceinline__ int32_t NumberOf(uint64_t rank) {
  return static_cast<int32_t>(0xfffffffeu - static_cast<uint32_t>(rank & 0xffffffffu));
}
constexpr uint64_t kAboveAll = ~uint64_t{0};

__device__ __forceinline__ uint64_t LargestOfWarp(uint64_t rank) {
  for (int mask = kWarpThreads / 2; mask > 0; mask /= 2) {
    const uint64_t other = __shfl_xor_sync(kAllLanes, rank, mask);
    rank = other > rank ? other : rank;
  }
  return rank;
}

constexpr float kLowest = -3.402823466e38f;

__device__ uint64_t RankOfGroup(const MoeRouteParams& p, const float* scores, int64_t group) {
  const int64_t members = p.experts / p.groups;
  float best = kLowest, second = kLowest;
  for (int64_t e = group * members; e < (group + 1) * members; ++e) {
    const float choice = ChoiceOf(p, scores, e);
    second = fmaxf(second, fminf(best, choice));
    best = fmaxf(best, choice);
  }
  return RankOf(p.groups_by_best ? best : best + second, group);
}

// Which groups a row chooses from, a bit for each: up to 64, two of a lane.
__device__ uint64_t KeptGroups(const MoeRouteParams& p, const float* scores, int lane) {
  if (p.groups == 1) return 1;
  uint64_t ranks[2] = {};
  for (int i = 0; i < 2; ++i) {
    const int64_t group = lane + i * kWarpThreads;
    if (group < p.groups) ranks[i] = RankOfGroup(p, scores, group);
  }
  uint64_t kept = 0, last = kAboveAll;
  for (int64_t n = 0; n < p.groups_per_row; ++n) {
    uint64_t next = 0;
    for (const uint64_t rank : ranks) {
      if (rank < last && rank > next) next = rank;
    }
    last = LargestOfWarp(next);
    kept |= uint64_t{1} << NumberOf(last);
  }
  return kept;
}

// The highest rank below `last`, of the row's experts in groups that are kept.
__device__ __forceinline__ uint64_t NextExpert(const MoeRouteParams& p, const float* scores,
                                               uint64_t kept, uint64_t last, int lane) {
  const auto members = static_cast<int>(p.experts / p.groups);
  uint64_t next = 0;
  for (int e = lane; e < p.experts; e += kWarpThreads) {
    if (p.groups > 1 && ((kept >> (e / members)) & 1) == 0) continue;
    const uint64_t rank = RankOf(ChoiceOf(p, scores, e), e);
    if (rank < last && rank > next) next = rank;
  }
  return LargestOfWarp(next);
}

// A warp per row: its experts, best first, into `slots` for now, and their weights: of logits by
// softmax, of scores as they are.
__global__ void ChooseExpertsKernel(MoeRouteParams p) {
  const int64_t row = RowOfWarp();
  if (row >= p.rows) return;
  const int lane = static_cast<int>(threadIdx.x);
  const float* scores = p.logits + row * p.logits_stride;
  float* weights = p.weights + row * p.weights_stride;
  int32_t* chosen = p.slots + row * p.k;
  Powers powers = {};
  if (!p.scored) powers = Powers::Of(scores, p.experts, lane);
  const uint64_t kept = KeptGroups(p, scores, lane);
  uint64_t last = kAboveAll;
  float total = 0;
  for (int64_t j = 0; j < p.k; ++j) {
    last = NextExpert(p, scores, kept, last, lane);
    const int32_t expert = NumberOf(last);
    const float weight = p.scored ? scores[expert] : powers.SoftmaxOf(scores[expert]);
    total += weight;
    if (lane != 0) continue;
    chosen[j] = expert;
    weights[j] = weight;
  }
  __syncwarp();
  for (int64_t j = lane; j < p.k; j += kWarpThreads) {
    float weight = weights[j];
    if (p.scored) {
      weight *= (p.renormalise ? p.factor / total : p.factor) * ScaleOf(p, chosen[j]);
    } else {
      if (p.renormalise) weight /= total;
      weight *= p.factor * ScaleOf(p, chosen[j]);
    }
    weights[j] = weight;
  }
}

// Among the lanes of a warp that have the same expert.
struct Alike {
  int before = 0, all = 0;

  __device__ __forceinline__ static Alike Of(int32_t expert, int lane) {
    Alike alike;
    for (int i = 0; i < kWarpThreads; ++i) {
      const int same = __shfl_sync(kAllLanes, expert, i) == expert ? 1 : 0;
      alike.all += same;
      alike.before += i < lane ? same : 0;
    }
    return alike;
  }
};

// One block: from experts in `slots` to slots sorted by expert, then by choice. Each warp has a
// part of the choices and counts them for itself.
__global__ void SortByExpertKernel(MoeRouteParams p) {
  TESSERA_DYNAMIC_SHARED(memory);
  const auto experts = static_cast<int>(p.experts), choices = static_cast<int>(p.rows * p.k);
  const auto warps = static_cast<int>(blockDim.y), warp = static_cast<int>(threadIdx.y);
  const auto lane = static_cast<int>(threadIdx.x);
  const int thread = warp * kWarpThreads + lane, threads = warps * kWarpThreads;
  // For each warp and expert: how many choices, then how many of the warps before.
  auto* const counts = reinterpret_cast<int32_t*>(memory);
  int32_t* const own = counts + warp * experts;
  int32_t* const starts = counts + warps * experts;  // of each expert: its choices, its first slot
  for (int i = thread; i < warps * experts; i += threads) counts[i] = 0;
  __syncthreads();
  const int turns = (choices + threads - 1) / threads;
  const int begin = warp * turns * kWarpThreads;
  for (int turn = 0; turn < turns; ++turn) {
    const int choice = begin + turn * kWarpThreads + lane;
    const int32_t expert = choice < choices ? p.slots[choice] : -1;
    const Alike alike = Alike::Of(expert, lane);
    if (expert >= 0 && alike.before == 0) own[expert] += alike.all;
    __syncwarp();
  }
  __syncthreads();
  for (int e = thread; e < experts; e += threads) {
    int32_t sum = 0;
    for (int w = 0; w < warps; ++w) {
      const int32_t count = counts[w * experts + e];
      counts[w * experts + e] = sum;
      sum += count;
    }
    starts[e] = sum;
  }
  __syncthreads();
  if (warp == 0) {
    int32_t before = 0;  // of the experts of earlier turns
    for (int first = 0; first < experts; first += kWarpThreads) {
      const int e = first + lane;
      const int32_t count = e < experts ? starts[e] : 0;
      int32_t sum = count;  // up to this lane's
      for (int step = 1; step < kWarpThreads; step *= 2) {
        const int32_t other = __shfl_up_sync(kAllLanes, sum, step);
        sum += lane >= step ? other : 0;
      }
      if (e < experts) {
        starts[e] = before + sum - count;
        p.expert_offsets[e] = before + sum - count;
      }
      before += __shfl_sync(kAllLanes, sum, kWarpThreads - 1);
    }
    if (lane == 0) p.expert_offsets[experts] = before;
  }
  __syncthreads();
  for (int turn = 0; turn < turns; ++turn) {
    const int choice = begin + turn * kWarpThreads + lane;
    const int32_t expert = choice < choices ? p.slots[choice] : -1;
    const Alike alike = Alike::Of(expert, lane);
    const int32_t slot = expert < 0 ? 0 : starts[expert] + own[expert] + alike.before;
    __syncwarp();  // all lanes have read it
    if (expert >= 0) {
      if (alike.before == 0) own[expert] += alike.all;
      p.slots[choice] = slot;
      p.source_rows[slot] = choice / static_cast<int>(p.k);
    }
    __syncwarp();
  }
}

}  // namespace

cudaError_t LaunchMoeScores(const MoeScoresParams& params, cudaStream_t stream) {
  if (params.rows == 0) return cudaSuccess;
  return Launch(ScoresKernel, WarpRowsShape(params.rows), stream, params);
}

cudaError_t LaunchMoeRoute(const MoeRouteParams& params, cudaStream_t stream) {
  if (params.rows > 0) {
    const cudaError_t error =
        Launch(ChooseExpertsKernel, WarpRowsShape(params.rows), stream, params);
    if (error != cudaSuccess) return error;
  }
  return Launch(SortByExpertKernel, SortShape(params.rows * params.k, params.experts), stream,
                params);
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
