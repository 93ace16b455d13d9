// Sums of ranks whose devices meet in memory that all of them reach: in each other's memory, where
// they are peers, else in pinned host memory that the processes of one machine share (who decides:
// rank_inboxes.h). Each rank writes its values there, raises a flag, waits for the others' flags
// and adds all values in rank order; or, instead of a sum, all take one rank's values. One launch;
// the host takes no part, so graphs may hold it. Which memory it is changes no bit.
//
// Where values go. An inbox holds flags and values as they come from each rank. In host memory one
// inbox serves all ranks. Between peers each rank has one in the memory of its own device: the
// others store into it, and it waits and reads there, since stores to a peer need no answer and
// loads from one do.
//
// Who waits for whom. A block takes the next number of its device's counter, which gives it a slice
// of the values and, in `turn`, the sum that it is part of. It waits only for the blocks of other
// devices that have the same slice of the same sum. Blocks begin with the lowest slice that none of
// their grid has begun, and what they wait for is published before anything is waited for; so the
// lowest slice that is not done makes progress on every device, however few blocks run at once. No
// block waits for another one of its own grid.
//
// Why no value is read too early (PTX ISA 9.0, "Memory Consistency Model": causality order). Values
// are relaxed stores of system scope, then a barrier of the block, then one thread's store-release
// of the flag, of system scope; each inbox has a flag of its own, and a thread that raises it. The
// other device's thread reads the flag by load-acquire of system scope, then comes a barrier of its
// block, then the relaxed loads. Barriers and the pair of release and acquire synchronize, program
// order joins them, and causality order is transitive: every load is behind the store whose value
// it must see. System scope holds for the memory of peers as for the host's: the model knows no
// owner of global memory. No atomics over the bus are needed (PCIe may lack them): each flag has
// one writer, and a store or load of 8 aligned bytes is single-copy atomic.
//
// Why no value is overwritten too early. Places of values alternate between sums, in every inbox. A
// rank writes its places of sum n + 2, in whichever inboxes, behind the end of its launch of sum
// n + 1, on one stream. That launch has seen every flag of sum n + 1, which the others raised in
// launches behind the end of their sum n: their reads of sum n are over, and causality order holds
// here too. All blocks take part in every sum, so this is so for every slice of any size.
//
// Waits end when a flag comes, when the group is ended (`ended_by`), or in max_wait_nanoseconds.
// Then values are left as they are, `failure` says why, the group is ended for all, and later sums
// of this device do nothing, in this group or another one of the same stream. These words are in
// host memory, whichever memory the inboxes are in.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch/mapped_sum_shape.h"
#include "kernels/cuda/runtime.h"

namespace tessera::kernels::cuda {

inline constexpr int kMaxMappedRanks = 16;
inline constexpr int64_t kMaxMappedSumValues = (256 << 10) / 4;

// Why a sum failed. With two other numbers: the rank that is meant, and its call.
enum class MappedSumFailure : uint64_t { kNone, kEnded, kLate, kOtherCall };

// At the start of the memory that the hosts share; zeros before the first rank begins.
struct MappedSumControl {
  struct alignas(64) Rank {
    uint64_t failure;             // MappedSumReport of the first one; written by its device
    uint64_t waited_nanoseconds;  // by the blocks of slice 0 in all sums; written by its device
  };
  alignas(64) uint32_t ended_by;  // 1 + a rank that ended the group
  Rank ranks[kMaxMappedRanks];
};

// Flags of ranks and slices; zeros before the first sum. Behind them, at kMappedSumFlagBytes, are
// the places of values: two for each rank, of kMaxMappedSumValues.
struct MappedSumInbox {
  struct alignas(64) Flag {
    uint64_t raised;  // MappedSumFlag of the newest sum
  };
  Flag flags[kMaxMappedRanks][kMappedSumBlocks];
};

// The inboxes as one rank's device has them: it waits for what comes into `from`, and puts its own
// into each of `to`. In host memory that is one and the same, and between peers `to` are the
// others'.
struct MappedSumInboxes {
  const MappedSumInbox* from = nullptr;
  MappedSumInbox* to[kMaxMappedRanks - 1] = {};
  int to_count = 0;
};

// What all ranks must ask for: as many values, and the same root; -1: the sum.
constexpr uint32_t MappedSumCall(int64_t count, int root) {
  return static_cast<uint32_t>(count) | static_cast<uint32_t>(root + 1) << 24;
}
constexpr int64_t CountOfCall(uint32_t call) { return call & 0xffffff; }
constexpr uint64_t MappedSumFlag(uint32_t turn, uint32_t call) {
  return static_cast<uint64_t>(turn) << 32 | call;
}
constexpr uint64_t MappedSumReport(MappedSumFailure failure, int rank, uint32_t call) {
  return static_cast<uint64_t>(failure) << 56 | static_cast<uint64_t>(rank) << 48 | call;
}

// Whole pages each: an inbox; and the memory that the hosts share: two controls, of which the
// second is a trial's, the hosts' meeting (peer_meeting.h), an inbox.
inline constexpr int64_t kMappedSumFlagBytes = 4 * 4096;
static_assert(sizeof(MappedSumInbox) <= kMappedSumFlagBytes);
inline constexpr int64_t kMappedSumControlBytes = 3 * 4096;
constexpr int64_t MappedSumInboxBytes(int ranks) {
  return kMappedSumFlagBytes +
         2 * ranks * kMaxMappedSumValues * static_cast<int64_t>(sizeof(float));
}
constexpr int64_t MappedSumBytes(int ranks) {
  return kMappedSumControlBytes + MappedSumInboxBytes(ranks);
}

// What a device keeps of its sums, in memory of its own; zeros at first.
struct MappedSumState {
  int32_t begun;   // blocks of all sums; wraps
  int32_t failed;  // not 0: a sum failed
  uint64_t waited_nanoseconds;
};

namespace TESSERA_CUDA_PLATFORM {

struct MappedSumParams {
  float* values = nullptr;              // [count]: becomes the sum, or the root's
  int64_t count = 0;                    // 1 to kMaxMappedSumValues
  int root = -1;                        // -1: a sum
  MappedSumControl* control = nullptr;  // of host memory, at this device's address
  MappedSumInboxes inboxes = {};
  MappedSumState* state = nullptr;
  // Shared by all launches of the device's stream, whichever groups they are of. Not 0: one of them
  // failed, and none publishes anything any more, as its values may be made of those that did not
  // come, but that its group is ended. Null: this group is alone.
  int32_t* stream_failed = nullptr;
  int rank = 0, ranks = 0;  // 2 to kMaxMappedRanks
  uint64_t max_wait_nanoseconds = 0;
};
cudaError_t LaunchMappedSum(const MappedSumParams& params, cudaStream_t stream);

}  // namespace TESSERA_CUDA_PLATFORM
}  // namespace tessera::kernels::cuda
