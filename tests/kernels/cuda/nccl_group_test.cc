// Groups by NCCL whose ranks come late, or never, or die: every wait ends in its time. (What groups
// compute: tests/kernels/collectives/group_test.)
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "kernels/collectives/group_maker.h"
#include "kernels/cuda/device/cuda_device.h"
#include "kernels/cuda/emulation/runtime.h"
#include "tests/kernels/cuda/driver/fake_nccl.h"

namespace tessera::kernels::cuda {
namespace {

using Catch::Contains;
using Clock = std::chrono::steady_clock;

constexpr double kPatienceSeconds = 20;

bool Never() { return false; }

double SecondsSince(Clock::time_point began) {
  return std::chrono::duration<double>(Clock::now() - began).count();
}

// Two ranks' devices, groups and streams; the emulated GPU plays both.
struct TwoRanks {
  explicit TwoRanks(double timeout_seconds = kPatienceSeconds, double max_wait_seconds = 60) {
    id = *Maker(0, max_wait_seconds).NewId();
    Maker(1, max_wait_seconds);
    std::thread second([&] { Join(1, timeout_seconds); });
    Join(0, timeout_seconds);
    second.join();
    for (int rank = 0; rank < 2; ++rank) {
      INFO(joined[rank]);
      REQUIRE(joined[rank].ok());
      streams[rank] = *devices[rank]->CreateStream();
      memory[rank] = *devices[rank]->Allocate(64 * sizeof(float));
    }
  }
  ~TwoRanks() {
    for (auto& stream : streams) stream.reset();
  }
  GroupMaker& Maker(int rank, double max_wait_seconds) {
    devices[rank] = *emulated::CreateCudaDevice({.memory_bytes = 1 << 20,
                                                 .max_wait_seconds = max_wait_seconds,
                                                 .nccl = &table,
                                                 .nccl_version = "2.28.9",
                                                 .uuid = "GPU-" + std::to_string(rank)});
    return *devices[rank]->group_maker();
  }
  void Join(int rank, double timeout_seconds) {
    auto group = devices[rank]->group_maker()->Join(
        rank, 2, id, {.timeout_seconds = timeout_seconds}, kPatienceSeconds, Never);
    joined[rank] = group.status();
    if (group.ok()) groups[rank] = *std::move(group);
  }
  absl::Status Sum(int rank) {
    const TensorView values(memory[rank].data(), DType::kF32, {64});
    absl::Status status = groups[rank]->AllReduceSum(values, *streams[rank]);
    return status.ok() ? streams[rank]->Synchronize() : status;
  }

  tests::FakeNccl fake;
  const NcclTable table = TableOf(&fake);
  std::string id;
  std::unique_ptr<Device> devices[2];
  Buffer memory[2];
  absl::Status joined[2];
  std::unique_ptr<Group> groups[2];
  std::unique_ptr<Stream> streams[2];
};

TEST_CASE("a device without NCCL makes no groups; one with it says who it is") {
  const auto plain = emulated::CreateCudaDevice({.memory_bytes = 1 << 20});
  CHECK_FALSE((*plain)->group_maker()->has_library());
  CHECK((*plain)->group_maker()->NewId().status().code() == absl::StatusCode::kFailedPrecondition);
  const TwoRanks ranks;
  CHECK(ranks.devices[1]->group_maker()->device_id() == "GPU-1");
  CHECK(ranks.devices[1]->group_maker()->library() == "NCCL 2.28.9");
  CHECK(ranks.groups[0]->transport() == "NCCL 2.28.9");
  CHECK(ranks.groups[0]->takes_device_memory());
  CHECK(ranks.fake.max_ctas == kNcclUndefined);
}

TEST_CASE("a group that ends well is destroyed, not aborted, and calls allocate nothing") {
  TwoRanks ranks;
  const int64_t allocations = emulated::AllocationsMade();
  absl::Status summed;
  std::thread second([&] { summed = ranks.Sum(1); });
  CHECK(ranks.Sum(0).ok());
  second.join();
  CHECK(summed.ok());
  CHECK(emulated::AllocationsMade() == allocations);
  for (auto& group : ranks.groups) group.reset();
  CHECK(ranks.fake.destroyed == 2);
  CHECK(ranks.fake.aborted == 0);
  CHECK(ranks.fake.alive == 0);
}

TEST_CASE("sums are given the step's stream, other calls the communicator's") {
  TwoRanks ranks;
  const auto both = [&](auto call) {
    std::thread second([&] { call(1); });
    call(0);
    second.join();
    return ranks.fake.stream.load();
  };
  const auto sum = [&](int rank) { CHECK(ranks.Sum(rank).ok()); };
  const auto broadcast = [&](int rank) {
    const TensorView values(ranks.memory[rank].data(), DType::kF32, {64});
    CHECK(ranks.groups[rank]->Broadcast(values, 0, *ranks.streams[rank]).ok());
    CHECK(ranks.streams[rank]->Synchronize().ok());
  };
  std::set<void*> sums, broadcasts;
  for (int i = 0; i < 6; ++i) {
    sums.insert(both(sum));
    broadcasts.insert(both(broadcast));
  }
  for (void* const stream : sums) CHECK_FALSE(broadcasts.contains(stream));
}

TEST_CASE("a sum that the GPU does not finish ends the group long before the device is lost") {
  TwoRanks ranks(/*timeout_seconds=*/kPatienceSeconds, /*max_wait_seconds=*/3);
  emulated::Inject({.stalling_launch = 1});  // the addition of one rank
  const Clock::time_point began = Clock::now();
  absl::Status of[2];
  std::thread second([&] { of[1] = ranks.Sum(1); });
  std::thread first([&] { of[0] = ranks.Sum(0); });
  const auto ended = [&](int rank) { return !ranks.groups[rank]->status().ok(); };
  while (!ended(0) && !ended(1) && SecondsSince(began) < kPatienceSeconds)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(SecondsSince(began) < 2.5);
  const int stalled = ended(0) ? 0 : 1;
  CHECK(ranks.groups[stalled]->status().code() == absl::StatusCode::kDeadlineExceeded);
  first.join();
  second.join();
  emulated::Inject({});
  // The emulator's launch does not end with what it waits for, as a GPU's does.
  CHECK_FALSE(of[stalled].ok());
  CHECK(of[1 - stalled].ok());
}

TEST_CASE("a stream that ends behind a sum which the GPU does not finish ends the group") {
  TwoRanks ranks(/*timeout_seconds=*/kPatienceSeconds, /*max_wait_seconds=*/1);
  emulated::Inject({.stalling_launch = 1});  // the addition of one rank
  const auto end = [&](int rank) {
    const TensorView values(ranks.memory[rank].data(), DType::kF32, {64});
    CHECK(ranks.groups[rank]->AllReduceSum(values, *ranks.streams[rank]).ok());
    ranks.streams[rank].reset();
  };
  std::thread second([&] { end(1); });
  end(0);
  second.join();
  emulated::Inject({});
  const auto was_late = [](const auto& group) {
    return group->status().code() == absl::StatusCode::kDeadlineExceeded;
  };
  CHECK(std::count_if(std::begin(ranks.groups), std::end(ranks.groups), was_late) == 1);
}

TEST_CASE("a group that is aborted while a sum is enqueued gives its communicator up") {
  TwoRanks ranks(/*timeout_seconds=*/kPatienceSeconds, /*max_wait_seconds=*/kPatienceSeconds);
  for (int round = 0; round < 40; ++round) {  // more than are enqueued without a wait
    std::thread other([&] { CHECK(ranks.Sum(1).ok()); });
    CHECK(ranks.Sum(0).ok());
    other.join();
  }
  std::thread aborts(
      [&] { ranks.groups[0]->Abort(absl::UnavailableError("the formation ended")); });
  const absl::Status sum = ranks.Sum(0);  // before the abort, within or behind it: it ends
  aborts.join();
  CHECK_FALSE(sum.ok());
  CHECK(ranks.groups[0]->status().message() == "the formation ended");
}

TEST_CASE("a rank that does not join costs a bounded wait, or none once that is cancelled") {
  tests::FakeNccl fake;
  const NcclTable table = TableOf(&fake);
  const auto device = emulated::CreateCudaDevice(
      {.memory_bytes = 1 << 20, .nccl = &table, .nccl_version = "2.28.9", .uuid = "GPU-0"});
  REQUIRE(device.ok());
  GroupMaker& maker = *(*device)->group_maker();
  const auto id = maker.NewId();
  REQUIRE(id.ok());
  CHECK(id->size() == 128);
  const absl::Status late = maker.Join(0, 2, *id, {}, 0.1, Never).status();
  CHECK(late.code() == absl::StatusCode::kDeadlineExceeded);
  CHECK_THAT(std::string(late.message()), Contains("joining the ranks: another of the 2 ranks"));
  const Clock::time_point began = Clock::now();
  const absl::Status cancelled =
      maker.Join(0, 2, *maker.NewId(), {}, kPatienceSeconds, [] { return true; }).status();
  CHECK(cancelled.code() == absl::StatusCode::kCancelled);
  CHECK(SecondsSince(began) < kPatienceSeconds / 2);
  CHECK(maker.Join(0, 2, "short", {}, 1, Never).status().code() ==
        absl::StatusCode::kInvalidArgument);
  CHECK(fake.aborted == 2);
  CHECK(fake.alive == 0);
  CHECK((*device)->Lost().ok());
}

TEST_CASE("a rank that dies ends the others' call with NCCL's words") {
  TwoRanks ranks;
  std::thread dies([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    tests::KillRank(1);
  });
  const absl::Status status = ranks.Sum(0);
  dies.join();
  CHECK(status.code() == absl::StatusCode::kUnavailable);
  CHECK_THAT(std::string(status.message()),
             Contains("NCCL: a sum: remote process exited") && Contains("the fake's last words"));
  CHECK(ranks.groups[0]->status() == status);
  CHECK(ranks.fake.aborted == 1);
  // Later calls fail without waiting, and the GPU is as it was.
  CHECK(ranks.Sum(0) == status);
  CHECK(ranks.devices[0]->Lost().ok());
}

TEST_CASE("a slow rank is waited for, for as long as a call may take") {
  for (const double timeout_seconds : {kPatienceSeconds, 0.05}) {
    TwoRanks ranks(timeout_seconds);
    ranks.fake.delay_seconds = 0.3;
    absl::Status second;
    std::thread other([&] { second = ranks.Sum(1); });
    const absl::Status first = ranks.Sum(0);
    other.join();
    if (timeout_seconds == kPatienceSeconds) {
      CHECK(first.ok());
      CHECK(second.ok());
      continue;
    }
    CHECK_FALSE(first.ok());
    CHECK_FALSE(second.ok());
    CHECK((first.code() == absl::StatusCode::kDeadlineExceeded ||
           second.code() == absl::StatusCode::kDeadlineExceeded));
  }
}

TEST_CASE("an abort from another thread ends a call that waits") {
  TwoRanks ranks;
  std::thread aborts([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ranks.groups[0]->Abort(absl::UnavailableError("the formation ended"));
  });
  const Clock::time_point began = Clock::now();
  CHECK(ranks.Sum(0).message() == "the formation ended");
  CHECK(SecondsSince(began) < kPatienceSeconds / 2);
  aborts.join();
}

TEST_CASE("an abort that blocks loses the device, so that the process ends") {
  TwoRanks ranks(/*timeout_seconds=*/0.05, /*max_wait_seconds=*/0.2);
  ranks.fake.aborts_block = true;
  CHECK_FALSE(ranks.Sum(0).ok());
  const absl::Status lost = ranks.devices[0]->Lost();
  CHECK_THAT(std::string(lost.message()), Contains("NCCL: an abort did not end within 0.2 s") &&
                                              Contains("start the worker again"));
  CHECK(ranks.devices[1]->Lost().ok());
  tests::EndAborts();
}

}  // namespace
}  // namespace tessera::kernels::cuda
