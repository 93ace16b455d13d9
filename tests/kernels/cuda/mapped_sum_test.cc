// The kernel of sums in mapped memory, with ranks that take turns in every order: bits of the sum
// in rank order, whatever comes first; bounded waits; counters that wrap.
#include "kernels/cuda/sums/mapped_sum.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "kernels/collectives/rank_order_sum.h"
#include "kernels/cuda/emulation/device_turns.h"
#include "kernels/cuda/emulation/runtime.h"

namespace tessera::kernels::cuda::emulated {
namespace {

constexpr uint64_t kMinute = 60'000'000'000;

struct Memory {
  explicit Memory(int ranks) : ranks(ranks), bytes(static_cast<size_t>(MappedSumBytes(ranks))) {
    data.reset(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{4096})));
    // Places hold what nobody stored.
    std::memset(data.get(), 0xff, bytes);
    std::memset(data.get(), 0, sizeof(MappedSumControl));
  }
  MappedSumControl* control() { return reinterpret_cast<MappedSumControl*>(data.get()); }

  struct Delete {
    void operator()(std::byte* at) const { ::operator delete (at, std::align_val_t{4096}); }
  };
  const int ranks;
  const size_t bytes;
  std::unique_ptr<std::byte, Delete> data;
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
                     .state = &state,
                     .rank = rank,
                     .ranks = memory.ranks,
                     .max_wait_nanoseconds = kMinute},
                    &stream);
    if (!stream.failure().ok()) return std::string(stream.failure().message());
    const bool right = SameBits(
        values, RootOf(sum) < 0 ? Expected(memory.ranks, static_cast<int>(sum), counts[sum])
                                : Contribution(1, static_cast<int>(sum), counts[sum]));
    if (wrong.empty() && (!right || values[own.size()] != behind)) {
      wrong = "sum " + std::to_string(sum) + " of rank " + std::to_string(rank);
    }
  }
  return wrong;
}

void CheckSums(int ranks, const std::vector<int64_t>& counts, int seeds, int32_t begun = 0,
               int offset = 0) {
  for (int seed = 0; seed < seeds; ++seed) {
    Memory memory(ranks);
    for (auto& of_rank : memory.control()->flags) {
      for (auto& flag : of_rank) flag.raised = MappedSumFlag(static_cast<uint32_t>(begun), 0);
    }
    std::vector<std::string> wrong(static_cast<size_t>(ranks));
    std::vector<std::function<void()>> devices;
    for (int rank = 0; rank < ranks; ++rank) {
      devices.emplace_back([&, rank] {
        wrong[rank] = RunRank(memory, rank, counts, static_cast<uint64_t>(seed), begun, offset);
      });
    }
    DeviceTurns::RunTogether(devices, static_cast<uint64_t>(seed));
    INFO(ranks << " ranks, seed " << seed);
    for (const std::string& of_rank : wrong) CHECK(of_rank == "");
  }
}

TEST_CASE("sums of ranks have the bits of the rank-order sum, whoever runs when") {
  CheckSums(2, {1, 3, 64, 501, 4, 129, 1024}, 10);
  CheckSums(3, {70, 5}, 6);
  CheckSums(5, {9, 66}, 4);
}

TEST_CASE("sums of the largest size, and of values that are not aligned") {
  CheckSums(2, {kMaxMappedSumValues, 17}, 1);
  CheckSums(2, {37, 130, 2}, 3, 0, 1);
}

TEST_CASE("the count of blocks may wrap") {
  CheckSums(2, {20, 21, 22, 23, 24}, 4, -2 * kMappedSumBlocks);
}

// One rank's launch, alone.
uint64_t Report(Memory& memory, MappedSumState& state, uint64_t max_wait_nanoseconds, float* values,
                int64_t count) {
  EmulatedStream stream;
  LaunchMappedSum({.values = values,
                   .count = count,
                   .control = memory.control(),
                   .state = &state,
                   .rank = 0,
                   .ranks = 2,
                   .max_wait_nanoseconds = max_wait_nanoseconds},
                  &stream);
  CHECK(stream.failure().message() == "");
  return memory.control()->ranks[0].failure;
}

TEST_CASE("a rank that does not come ends the sum, all later ones, and the others'") {
  Memory memory(2);
  MappedSumState state = {};
  std::vector<float> values = {1, 2, 3};
  CHECK(Report(memory, state, 1'000'000, values.data(), 3) ==
        MappedSumReport(MappedSumFailure::kLate, 1, 0));
  CHECK(values == std::vector<float>{1, 2, 3});
  CHECK(memory.control()->ended_by == 1);
  CHECK(state.failed == 1);
  CHECK(state.waited_nanoseconds >= 1'000'000);
  // Nothing is published any more, nor waited for.
  const uint64_t raised = memory.control()->flags[0][0].raised;
  Report(memory, state, kMinute, values.data(), 3);
  CHECK(memory.control()->flags[0][0].raised == raised);
}

TEST_CASE("a host that ends the group ends the waits") {
  Memory memory(2);
  MappedSumState state = {};
  memory.control()->ended_by = 2;
  std::vector<float> values = {1, 2, 3};
  CHECK(Report(memory, state, kMinute, values.data(), 3) ==
        MappedSumReport(MappedSumFailure::kEnded, 1, 0));
  CHECK(memory.control()->ended_by == 2);
}

TEST_CASE("ranks with unlike numbers of values fail, and say so") {
  Memory memory(2);
  MappedSumState state = {};
  for (auto& flag : memory.control()->flags[1]) {
    flag.raised = MappedSumFlag(kMappedSumBlocks, MappedSumCall(4, -1));
  }
  std::vector<float> values = {1, 2, 3};
  CHECK(Report(memory, state, kMinute, values.data(), 3) ==
        MappedSumReport(MappedSumFailure::kOtherCall, 1, MappedSumCall(4, -1)));
}

}  // namespace
}  // namespace tessera::kernels::cuda::emulated
