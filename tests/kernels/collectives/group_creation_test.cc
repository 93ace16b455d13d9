#include <catch2/catch.hpp>
#include <set>
#include <utility>
#include <vector>

#include "kernels/collectives/loopback_group.h"
#include "kernels/collectives/shm_group.h"
#include "kernels/collectives/socket_group.h"
#include "kernels/collectives/staged_group.h"
#include "kernels/cpu/device/cpu_device.h"
#include "tests/kernels/collectives/cpu_streams.h"
#include "tests/kernels/collectives/group_kinds.h"

namespace tessera::kernels {
namespace {

bool IsInvalid(const absl::Status& status) {
  return status.code() == absl::StatusCode::kInvalidArgument;
}

TEST_CASE("in a tournament every two ranks meet once, and both know it") {
  for (int size = 2; size <= kMaxGroupSize; ++size) {
    std::set<std::pair<int, int>> met;
    for (int round = 0; round < TournamentRounds(size); ++round) {
      for (int rank = 0; rank < size; ++rank) {
        const int partner = TournamentPartner(rank, size, round);
        if (partner < 0) continue;
        REQUIRE(partner < size);
        REQUIRE(partner != rank);
        REQUIRE(TournamentPartner(partner, size, round) == rank);
        REQUIRE(met.emplace(rank, partner).second);
      }
    }
    CHECK(met.size() == static_cast<size_t>(size * (size - 1)));
  }
}

TEST_CASE("groups of impossible sizes and with wrong links are refused") {
  CHECK(IsInvalid(CreateLoopbackGroups(0).status()));
  CHECK(IsInvalid(CreateLoopbackGroups(kMaxGroupSize + 1).status()));
  CHECK(IsInvalid(CreateLoopbackGroups(2, {.slot_bytes = 100}).status()));
  CHECK(IsInvalid(CreateLoopbackGroups(2, {.slot_bytes = 0}).status()));
  const auto mesh = tests::ConnectMesh(3, "pair");
  CHECK(IsInvalid(CreateSocketGroup(3, mesh[0], {}).status()));
  CHECK(IsInvalid(CreateSocketGroup(-1, mesh[0], {}).status()));
  CHECK(IsInvalid(CreateSocketGroup(1, mesh[0], {}).status()));
  CHECK(IsInvalid(CreateSocketGroup(0, {}, {}).status()));
  CHECK(IsInvalid(CreateShmGroup(1, mesh[0], {}).status()));
  CHECK(IsInvalid(CreateShmGroup(0, mesh[0], {.slot_bytes = 32}).status()));
  CHECK(IsInvalid(
      CreateShmGroup(0, std::vector<std::shared_ptr<Link>>(kMaxGroupSize + 1), {}).status()));
}

TEST_CASE("a group in shared memory waits for rank 0 in bounded time") {
  auto mesh = tests::ConnectMesh(2, "pair");
  CHECK(
      CreateShmGroup(1, std::move(mesh[1]), {.group = {.timeout_seconds = 0.05}}).status().code() ==
      absl::StatusCode::kDeadlineExceeded);
}

TEST_CASE("memory of another machine is not shared") {
  auto mesh = tests::ConnectMesh(2, "tcp");
  CHECK(CreateShmGroup(0, std::move(mesh[0]), {}).status().code() ==
        absl::StatusCode::kUnimplemented);
}

TEST_CASE("what does not fit the staging is refused at once, and says how much does") {
  auto groups = CreateLoopbackGroups(1);
  REQUIRE(groups.ok());
  const auto device = CreateCpuDevice({.memory_bytes = 1, .cores_shared = true});
  REQUIRE(device.ok());
  const auto staged = StagedGroup::Create((*groups)[0].get(), **device, 128);
  REQUIRE(staged.ok());
  CHECK((*staged)->transport() == "staged through 128 bytes of host memory, then shared memory");
  const tests::CpuStreams streams(1);
  std::vector<float> values(33);
  const auto view = [&](int64_t count) { return TensorView(values.data(), DType::kF32, {count}); };
  CHECK((*staged)->AllReduceSum(view(32), streams[0]).ok());
  const absl::Status refused = (*staged)->AllReduceSum(view(33), streams[0]);
  CHECK(IsInvalid(refused));
  CHECK(refused.message() == "AllReduceSum: 132 bytes; the staging of this group has room for 128");
  // A gather's input and output, each at an aligned address.
  CHECK(StagedGroup::StagingBytes(4, 68) == 64 + 128);
  CHECK(IsInvalid((*staged)->AllGather(view(1), view(17), streams[0])));
  CHECK(streams[0].Synchronize().ok());
}

}  // namespace
}  // namespace tessera::kernels
