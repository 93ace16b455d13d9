// One sum of ranks in memory that their devices reach; mapped_sum.h says why it is right.
#include "kernels/cuda/platform.h"
#include "kernels/cuda/sums/mapped_sum.h"
#include "kernels/cuda/system_ops.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

constexpr int kRanksAtOnce = 4;         // whose values a thread loads before it adds
constexpr int kPollsBetweenLooks = 32;  // at what may end a wait, beside the flag

struct Slice {
  int64_t begin, end;  // begin is a multiple of 4
};

__device__ __forceinline__ Slice SliceOf(int64_t count, int block) {
  const int64_t values = 4 * MappedSumFours(count);
  return {min(count, block * values), min(count, (block + 1) * values)};
}

__device__ __forceinline__ int64_t FirstOfThread(const Slice& slice) {
  return slice.begin + 4 * static_cast<int64_t>(threadIdx.x);
}
__device__ __forceinline__ int64_t StepOfThreads() { return 4 * static_cast<int64_t>(blockDim.x); }

// Up to four values, zeros behind `left` of them.
__device__ __forceinline__ float4 LoadFour(const float* at, int64_t left, bool aligned) {
  if (aligned && left >= 4) return *reinterpret_cast<const float4*>(at);
  float4 four = {0, 0, 0, 0};
  four.x = at[0];
  if (left > 1) four.y = at[1];
  if (left > 2) four.z = at[2];
  if (left > 3) four.w = at[3];
  return four;
}

__device__ __forceinline__ void StoreFour(float* at, float4 four, int64_t left, bool aligned) {
  if (aligned && left >= 4) {
    *reinterpret_cast<float4*>(at) = four;
    return;
  }
  at[0] = four.x;
  if (left > 1) at[1] = four.y;
  if (left > 2) at[2] = four.z;
  if (left > 3) at[3] = four.w;
}

// Byte offset in an inbox of what comes from this rank.
__device__ __forceinline__ int64_t PlaceOf(const MappedSumParams& p, int rank, uint32_t turn) {
  const int64_t parity = turn / kMappedSumBlocks % 2;
  return kMappedSumFlagBytes +
         (parity * p.ranks + rank) * kMaxMappedSumValues * static_cast<int64_t>(sizeof(float));
}

__device__ __forceinline__ const float4* ComesFrom(const MappedSumParams& p, int rank,
                                                   uint32_t turn, int64_t i) {
  const char* const inbox = reinterpret_cast<const char*>(p.inboxes.from);
  return reinterpret_cast<const float4*>(
      reinterpret_cast<const float*>(inbox + PlaceOf(p, rank, turn)) + i);
}

__device__ __forceinline__ void Fail(const MappedSumParams& p, MappedSumFailure failure, int rank,
                                     uint32_t call) {
  // A block that sees how another one ended the group comes second here.
  __threadfence();
  if (p.stream_failed != nullptr) atomicAdd(p.stream_failed, 1);
  if (atomicAdd(&p.state->failed, 1) != 0) return;
  StoreSystem(&p.control->ranks[p.rank].failure, MappedSumReport(failure, rank, call));
  if (failure == MappedSumFailure::kEnded) return;
  __threadfence();
  StoreSystem(&p.control->ended_by, static_cast<uint32_t>(p.rank) + 1);
}

__device__ __forceinline__ bool HasCome(uint64_t raised, uint32_t turn) {
  return static_cast<int32_t>(static_cast<uint32_t>(raised >> 32) - turn) >= 0;
}

// Until the rank's flag of this turn is raised. False: it was not, or for another call.
__device__ __forceinline__ bool WaitForRank(const MappedSumParams& p, int rank, int block,
                                            uint32_t turn) {
  const uint64_t* const flag = &p.inboxes.from->flags[rank][block].raised;
  uint64_t raised = LoadAcquireSystem(flag), begin = 0;
  for (int polls = 1; !HasCome(raised, turn); ++polls) {
    bool ended = false, late = false;
    if (polls % kPollsBetweenLooks == 0) {
      const uint64_t now = SystemNanoseconds();
      if (begin == 0) begin = now;
      ended = LoadSystem(&p.control->ended_by) != 0;
      late = now - begin > p.max_wait_nanoseconds;
    } else {
      LetOtherDevicesRun();
    }
    raised = LoadAcquireSystem(flag);  // what came before the end counts
    if ((ended || late) && !HasCome(raised, turn)) {
      Fail(p, ended ? MappedSumFailure::kEnded : MappedSumFailure::kLate, rank, 0);
      return false;
    }
  }
  const auto call = static_cast<uint32_t>(raised);
  // A rank that is one sum ahead has seen this sum's call.
  if (call == MappedSumCall(p.count, p.root) || static_cast<uint32_t>(raised >> 32) != turn) {
    return true;
  }
  Fail(p, MappedSumFailure::kOtherCall, rank, call);
  return false;
}

// The sum over the ranks of the four values at `i`, in rank order; `own` are this rank's.
__device__ __forceinline__ float4 AddRanks(const MappedSumParams& p, uint32_t turn, int64_t i,
                                           float4 own) {
  float4 sum = {0, 0, 0, 0};
  for (int first = 0; first < p.ranks; first += kRanksAtOnce) {
    float4 fours[kRanksAtOnce] = {};
#pragma unroll
    for (int k = 0; k < kRanksAtOnce; ++k) {
      const int rank = first + k;
      if (rank >= p.ranks) continue;
      fours[k] = rank == p.rank ? own : LoadSystem(ComesFrom(p, rank, turn, i));
    }
#pragma unroll
    for (int k = 0; k < kRanksAtOnce; ++k) {
      if (first + k >= p.ranks) continue;
      const float4 four = fours[k];
      sum = first + k == 0 ? four
                           : float4{sum.x + four.x, sum.y + four.y, sum.z + four.z, sum.w + four.w};
    }
  }
  return sum;
}

// This rank's slice, then its flag, into each inbox. A thread raises one flag, so that they go out
// at once: the first warp has as many threads.
__device__ __forceinline__ void Publish(const MappedSumParams& p, const Slice& slice, int block,
                                        uint32_t turn, bool aligned) {
  const int64_t place = PlaceOf(p, p.rank, turn);
  const bool is_read = p.root < 0 || p.root == p.rank;
  for (int64_t i = FirstOfThread(slice); is_read && i < slice.end; i += StepOfThreads()) {
    const float4 four = LoadFour(p.values + i, slice.end - i, aligned);
    for (int k = 0; k < p.inboxes.to_count; ++k) {
      char* const inbox = reinterpret_cast<char*>(p.inboxes.to[k]);
      StoreSystem(reinterpret_cast<float4*>(reinterpret_cast<float*>(inbox + place) + i), four);
    }
  }
  __syncthreads();  // all are stored
  if (static_cast<int>(threadIdx.x) < p.inboxes.to_count) {
    StoreReleaseSystem(&p.inboxes.to[threadIdx.x]->flags[p.rank][block].raised,
                       MappedSumFlag(turn, MappedSumCall(p.count, p.root)));
  }
  __syncwarp();  // before a lane of the first warp waits
}

__global__ void MappedSumKernel(MappedSumParams p) {
  TESSERA_SHARED(uint32_t, number, 1);
  TESSERA_SHARED(int, failed, 1);
  if (threadIdx.x == 0) {
    number[0] = static_cast<uint32_t>(atomicAdd(&p.state->begun, 1));
    failed[0] = p.state->failed | (p.stream_failed == nullptr ? 0 : *p.stream_failed);
  }
  __syncthreads();
  if (failed[0] != 0) {
    // The ranks of this group need not wait for what was another group's fault.
    if (threadIdx.x == 0 && p.state->failed == 0)
      StoreSystem(&p.control->ended_by, static_cast<uint32_t>(p.rank) + 1);
    return;
  }
  const int block = static_cast<int>(number[0] % kMappedSumBlocks);
  const uint32_t turn = number[0] - static_cast<uint32_t>(block) + kMappedSumBlocks;
  const Slice slice = SliceOf(p.count, block);
  const bool aligned = reinterpret_cast<uintptr_t>(p.values) % sizeof(float4) == 0;
  Publish(p, slice, block, turn, aligned);

  const uint64_t begin = block == 0 && threadIdx.x == 0 ? SystemNanoseconds() : 0;
  const int other = static_cast<int>(threadIdx.x);
  if (other < p.ranks && other != p.rank && !WaitForRank(p, other, block, turn)) failed[0] = 1;
  __syncthreads();  // all flags were seen
  if (block == 0 && threadIdx.x == 0) {
    const uint64_t waited = p.state->waited_nanoseconds + (SystemNanoseconds() - begin);
    p.state->waited_nanoseconds = waited;
    StoreSystem(&p.control->ranks[p.rank].waited_nanoseconds, waited);
  }
  if (failed[0] != 0 || p.root == p.rank) return;
  for (int64_t i = FirstOfThread(slice); i < slice.end; i += StepOfThreads()) {
    const int64_t left = slice.end - i;
    const float4 result = p.root < 0 ? AddRanks(p, turn, i, LoadFour(p.values + i, left, aligned))
                                     : LoadSystem(ComesFrom(p, p.root, turn, i));
    StoreFour(p.values + i, result, left, aligned);
  }
}

}  // namespace

cudaError_t LaunchMappedSum(const MappedSumParams& params, cudaStream_t stream) {
  return Launch(MappedSumKernel, MappedSumShape(params.count), stream, params);
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
