// The kernel of sums of ranks, in host memory and in the devices' own, with ranks that take turns
// in every order: bits of the sum in rank order, whatever comes first; bounded waits; counters that
// wrap.
#include "kernels/cuda/sums/mapped_sum.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "kernels/collectives/rank_order_sum.h"
#include "kernels/cuda/emulation/device_turns.h"
#include "kernels/cuda/emulation/devices.h"
#include "kernels/cuda/emulation/peers.h"
#include "kernels/cuda/emulation/runtime.h"

namespace tessera::kernels::cuda::emulated {
namespace {

using Catch::Contains;

constexpr uint64_t kMinute = 60'000'000'000;

// Of ranks on devices of their own, with a control in host memory; their inboxes are one in host
// memory, or one in the memory of each device, which the others have access to.
class Memory {
 public:
  explicit Memory(int ranks, bool in_peers = false) : ranks_(ranks), in_peers_(in_peers) {
    if (in_peers) SetPeers({.devices = ranks});
    for (int rank = 0; rank < (in_peers ? ranks : 1); ++rank) {
      void* inbox = nullptr;
      const auto bytes = static_cast<size_t>(MappedSumInboxBytes(ranks));
      if (in_peers) {
        REQUIRE(cudaSetDevice(rank) == cudaSuccess);
        REQUIRE(cudaMalloc(&inbox, bytes) == cudaSuccess);
      } else {
        inbox = ::operator new (bytes, std::align_val_t{4096});
      }
      std::memset(inbox, 0xff, bytes);  // places hold what nobody stored
      std::memset(inbox, 0, sizeof(MappedSumInbox));
      inboxes_.push_back(static_cast<MappedSumInbox*>(inbox));
    }
    cudaSetDevice(0);
  }
  ~Memory() {
    for (MappedSumInbox* inbox : inboxes_) {
      if (in_peers_) {
        cudaFree(inbox);
      } else {
        ::operator delete (inbox, std::align_val_t{4096});
      }
    }
    if (in_peers_) SetPeers({});
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  int ranks() const { return ranks_; }
  MappedSumControl* control() { return &control_; }
  // That which comes to rank 0.
  MappedSumInbox& first() { return *inboxes_[0]; }
  const std::vector<MappedSumInbox*>& all() const { return inboxes_; }
  MappedSumInboxes Of(int rank) const {
    MappedSumInboxes of_rank;
    of_rank.from = inboxes_[in_peers_ ? rank : 0];
    for (int other = 0; in_peers_ && other < ranks_; ++other) {
      if (other != rank) of_rank.to[of_rank.to_count++] = inboxes_[other];
    }
    if (!in_peers_) of_rank.to[of_rank.to_count++] = inboxes_[0];
    return of_rank;
  }
  // The calling thread runs the rank's device.
  void Begin(int rank) const {
    if (!in_peers_) return;
    cudaSetDevice(rank);
    for (int other = 0; other < ranks_; ++other) {
      if (other != rank) cudaDeviceEnablePeerAccess(other, 0);
    }
  }

 private:
  const int ranks_;
  const bool in_peers_;
  MappedSumControl control_ = {};
  std::vector<MappedSumInbox*> inboxes_;
};

std::vector<float> Contribution(int rank, int sum, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  uint32_t state = 7919u * static_cast<uint32_t>(rank) + 104729u * static_cast<uint32_t>(sum) + 1;
  for (float& value : values) {
    state = state * 1664525u + 1013904223u;
    // Of very unlike sizes, so that another order of additions gives other bits.
    value = std::ldexp(static_cast<float>(state >> 8) - 8388608.0f, static_cast<int>(state % 24));
  }
  return values;
}

std::vector<float> Expected(int ranks, int sum, int64_t count) {
  std::vector<std::vector<float>> values;
  std::vector<const float*> contributions;
  for (int r = 0; r < ranks; ++r) values.push_back(Contribution(r, sum, count));
  for (const auto& of_rank : values) contributions.push_back(of_rank.data());
  std::vector<float> out(static_cast<size_t>(count));
  SumInRankOrder(contributions, count, out.data());
  return out;
}

bool SameBits(const float* a, const std::vector<float>& b) {
  return std::memcmp(a, b.data(), b.size() * sizeof(float)) == 0;
}

int RootOf(size_t sum) { return sum % 3 == 2 ? 1 : -1; }

struct alignas(16) Four {
  float values[4] = {};
};

// Sums of these counts, of which every third is rank 1's values instead, one after another, at an
// address that is `offset` floats from an aligned one. Returns what is wrong.
std::string RunRank(Memory& memory, int rank, const std::vector<int64_t>& counts, uint64_t seed,
                    int32_t begun, int offset) {
  memory.Begin(rank);
  EmulatedStream stream;
  stream.set_schedule(ScheduleFromSeed(seed + static_cast<uint64_t>(rank)));
  MappedSumState state = {.begun = begun, .failed = 0, .waited_nanoseconds = 0};
  std::string wrong;
  for (size_t sum = 0; sum < counts.size(); ++sum) {
    const std::vector<float> own = Contribution(rank, static_cast<int>(sum), counts[sum]);
    std::vector<Four> room((own.size() + 3) / 4 + 2);
    float* const values = room[0].values + offset;
    std::memcpy(values, own.data(), own.size() * sizeof(float));
    const float behind = values[own.size()];
    LaunchMappedSum({.values = values,
                     .count = counts[sum],
                     .root = RootOf(sum),
                     .control = memory.control(),
                     .inboxes = memory.Of(rank),
                     .state = &state,
                     .rank = rank,
                     .ranks = memory.ranks(),
                     .max_wait_nanoseconds = kMinute},
                    &stream);
    if (!stream.failure().ok()) return std::string(stream.failure().message());
    const bool right = SameBits(
        values, RootOf(sum) < 0 ? Expected(memory.ranks(), static_cast<int>(sum), counts[sum])
                                : Contribution(1, static_cast<int>(sum), counts[sum]));
    if (wrong.empty() && (!right || values[own.size()] != behind)) {
      wrong = "sum " + std::to_string(sum) + " of rank " + std::to_string(rank);
    }
  }
  return wrong;
}

// With these seeds of turns, in memory of both kinds.
void CheckSums(int ranks, const std::vector<int64_t>& counts, int seeds, int32_t begun = 0,
               int offset = 0) {
  for (int run = 0; run < 2 * seeds; ++run) {
    const bool in_peers = run % 2 == 1;
    const auto seed = static_cast<uint64_t>(run / 2);
    Memory memory(ranks, in_peers);
    for (MappedSumInbox* inbox : memory.all()) {
      for (auto& of_rank : inbox->flags) {
        for (auto& flag : of_rank) flag.raised = MappedSumFlag(static_cast<uint32_t>(begun), 0);
      }
    }
    std::vector<std::string> wrong(static_cast<size_t>(ranks));
    std::vector<std::function<void()>> devices;
    for (int rank = 0; rank < ranks; ++rank) {
      devices.emplace_back(
          [&, rank] { wrong[rank] = RunRank(memory, rank, counts, seed, begun, offset); });
    }
    DeviceTurns::RunTogether(devices, seed);
    INFO(ranks << " ranks, seed " << seed << (in_peers ? ", in peers' memory" : ""));
    for (const std::string& of_rank : wrong) CHECK(of_rank == "");
    CHECK(CheckMemoryGuards().message() == "");
  }
}

TEST_CASE("sums of ranks have the bits of the rank-order sum, whoever runs when") {
  CheckSums(2, {1, 3, 64, 501, 4, 129, 1024}, 10);
  CheckSums(3, {70, 5}, 6);
  CheckSums(4, {9, 130, 9}, 6);
  CheckSums(5, {9, 66}, 4);
}

TEST_CASE("sums of the largest size, and of values that are not aligned") {
  CheckSums(2, {kMaxMappedSumValues, 17}, 1);
  CheckSums(2, {37, 130, 2}, 3, 0, 1);
}

TEST_CASE("the count of blocks may wrap") {
  CheckSums(2, {20, 21, 22, 23, 24}, 4, -2 * kMappedSumBlocks);
}

TEST_CASE("a kernel that stores into a peer's memory without access is reported by name") {
  Memory memory(2, true);
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  MappedSumState state = {};
  std::vector<float> values = {1, 2, 3};
  EmulatedStream stream;
  LaunchMappedSum({.values = values.data(),
                   .count = 3,
                   .control = memory.control(),
                   .inboxes = memory.Of(0),
                   .state = &state,
                   .rank = 0,
                   .ranks = 2,
                   .max_wait_nanoseconds = 1},
                  &stream);
  const std::string failure(stream.failure().message());
  CHECK_THAT(failure, Contains("device 0 has no access to the memory of device 1") &&
                          Contains("StoreSystem") && Contains("mapped_sum.cu:"));
}

// One rank's launch, alone.
uint64_t Report(Memory& memory, MappedSumState& state, uint64_t max_wait_nanoseconds, float* values,
                int64_t count, int32_t* stream_failed = nullptr) {
  memory.Begin(0);
  EmulatedStream stream;
  LaunchMappedSum({.values = values,
                   .count = count,
                   .control = memory.control(),
                   .inboxes = memory.Of(0),
                   .state = &state,
                   .stream_failed = stream_failed,
                   .rank = 0,
                   .ranks = 2,
                   .max_wait_nanoseconds = max_wait_nanoseconds},
                  &stream);
  CHECK(stream.failure().message() == "");
  return memory.control()->ranks[0].failure;
}

TEST_CASE("a rank that does not come ends the sum, all later ones, and the others'") {
  for (const bool in_peers : {false, true}) {
    Memory memory(2, in_peers);
    MappedSumState state = {};
    std::vector<float> values = {1, 2, 3};
    CHECK(Report(memory, state, 1'000'000, values.data(), 3) ==
          MappedSumReport(MappedSumFailure::kLate, 1, 0));
    CHECK(values == std::vector<float>{1, 2, 3});
    CHECK(memory.control()->ended_by == 1);
    CHECK(state.failed == 1);
    CHECK(state.waited_nanoseconds >= 1'000'000);
    // Nothing is published any more, nor waited for.
    const MappedSumInbox* const to = memory.Of(0).to[0];
    const uint64_t raised = to->flags[0][0].raised;
    CHECK(raised != 0);
    Report(memory, state, kMinute, values.data(), 3);
    CHECK(to->flags[0][0].raised == raised);
  }
}

TEST_CASE("a rank whose stream met another group in vain publishes nothing") {
  for (const bool in_peers : {false, true}) {
    Memory one(2, in_peers), other(2, in_peers);
    MappedSumState state = {}, of_other = {};
    int32_t stream_failed = 0;
    std::vector<float> values = {1, 2, 3};
    Report(one, state, 1'000'000, values.data(), 3, &stream_failed);
    CHECK(stream_failed > 0);
    Report(other, of_other, kMinute, values.data(), 3, &stream_failed);
    CHECK(other.Of(0).to[0]->flags[0][0].raised == 0);
    CHECK(other.control()->ended_by == 1);  // nobody waits for it
    CHECK(other.control()->ranks[0].failure == 0);
  }
}

TEST_CASE("a host that ends the group ends the waits") {
  for (const bool in_peers : {false, true}) {
    Memory memory(2, in_peers);
    MappedSumState state = {};
    memory.control()->ended_by = 2;
    std::vector<float> values = {1, 2, 3};
    CHECK(Report(memory, state, kMinute, values.data(), 3) ==
          MappedSumReport(MappedSumFailure::kEnded, 1, 0));
    CHECK(memory.control()->ended_by == 2);
  }
}

TEST_CASE("ranks with unlike numbers of values fail, and say so") {
  for (const bool in_peers : {false, true}) {
    Memory memory(2, in_peers);
    MappedSumState state = {};
    for (auto& flag : memory.first().flags[1]) {
      flag.raised = MappedSumFlag(kMappedSumBlocks, MappedSumCall(4, -1));
    }
    std::vector<float> values = {1, 2, 3};
    CHECK(Report(memory, state, kMinute, values.data(), 3) ==
          MappedSumReport(MappedSumFailure::kOtherCall, 1, MappedSumCall(4, -1)));
  }
}

}  // namespace
}  // namespace tessera::kernels::cuda::emulated
