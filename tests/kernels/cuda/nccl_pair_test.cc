// Pairs by NCCL: the bytes that were sent come, and where the other end is late, or never comes, or
// dies, or gives up, every wait ends in its time.
#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "kernels/collectives/group_maker.h"
#include "kernels/cuda/device/cuda_device.h"
#include "kernels/cuda/emulation/runtime.h"
#include "tests/kernels/cuda/driver/fake_nccl.h"

namespace tessera::kernels::cuda {
namespace {

using Catch::Contains;

constexpr double kPatienceSeconds = 20;
constexpr int64_t kBytes = 1000;

bool Never() { return false; }

// The emulated GPU plays both; its memory is the host's.
struct TwoDevices {
  TwoDevices() {
    for (int rank = 0; rank < 2; ++rank) {
      devices[rank] = *emulated::CreateCudaDevice({.memory_bytes = 1 << 20,
                                                   .nccl = &table,
                                                   .nccl_version = "2.28.9",
                                                   .uuid = "GPU-" + std::to_string(rank)});
    }
    REQUIRE(Join().message() == "");
  }
  absl::Status Join() {
    const auto id = devices[0]->group_maker()->NewId();
    REQUIRE(id.ok());
    absl::Status joined[2];
    const auto join = [&](int rank) {
      auto pair = devices[rank]->group_maker()->JoinPair(rank, *id, kBytes, 0.5, Never);
      joined[rank] = pair.status();
      if (pair.ok()) pairs[rank] = *std::move(pair);
    };
    std::thread second([&] { join(1); });
    join(0);
    second.join();
    joined[0].Update(joined[1]);
    return joined[0];
  }
  // Both calls, each on a thread of its own.
  void Exchange(int64_t bytes, absl::Status* sent, absl::Status* received,
                const std::function<bool()>& cancelled = Never) {
    std::thread second([&] { *received = pairs[1]->Receive(bytes, kPatienceSeconds, cancelled); });
    *sent = pairs[0]->Send(bytes, kPatienceSeconds, cancelled);
    second.join();
  }

  tests::FakeNccl fake;
  const NcclTable table = TableOf(&fake);
  std::unique_ptr<Device> devices[2];
  std::unique_ptr<DevicePair> pairs[2];
};

TEST_CASE(
    "a pair sends what stands in its memory, as often as it is asked, and allocates nothing") {
  TwoDevices two;
  CHECK(two.fake.max_ctas == 4);  // most of the GPU is left to steps
  const int64_t allocations = emulated::AllocationsMade();
  for (const int64_t bytes : {kBytes, int64_t{1}, int64_t{700}}) {
    std::memset(two.pairs[0]->memory().data(), static_cast<int>(bytes), kBytes);
    std::memset(two.pairs[1]->memory().data(), 0, kBytes);
    absl::Status sent, received;
    two.Exchange(bytes, &sent, &received);
    CHECK(sent.message() == "");
    CHECK(received.message() == "");
    CHECK(std::memcmp(two.pairs[0]->memory().data(), two.pairs[1]->memory().data(), bytes) == 0);
    if (bytes < kBytes) CHECK(two.pairs[1]->memory()[bytes] == std::byte{0});
  }
  CHECK(emulated::AllocationsMade() == allocations);
  CHECK(two.pairs[0]->Send(kBytes + 1, 1, Never).code() == absl::StatusCode::kInvalidArgument);
  CHECK(two.pairs[1]->Receive(0, 1, Never).code() == absl::StatusCode::kInvalidArgument);
  CHECK(two.pairs[0]->usable());
  for (auto& pair : two.pairs) pair.reset();
  CHECK(two.fake.alive == 0);
}

TEST_CASE("one end alone joins nobody, in bounded time") {
  TwoDevices two;
  GroupMaker& maker = *two.devices[0]->group_maker();
  CHECK(maker.JoinPair(0, *maker.NewId(), kBytes, 0.1, Never).status().code() ==
        absl::StatusCode::kDeadlineExceeded);
  CHECK(maker.JoinPair(0, *maker.NewId(), kBytes, kPatienceSeconds, [] { return true; })
            .status()
            .code() == absl::StatusCode::kCancelled);
  CHECK(maker.JoinPair(2, *maker.NewId(), kBytes, 1, Never).status().code() ==
        absl::StatusCode::kInvalidArgument);
}

TEST_CASE("an end that never comes ends the other's wait, and the pair is of no more use") {
  TwoDevices two;
  for (const bool sends : {true, false}) {
    REQUIRE(two.Join().message() == "");
    DevicePair& pair = *two.pairs[sends ? 0 : 1];
    const auto call = [&](double seconds) {
      return sends ? pair.Send(kBytes, seconds, Never) : pair.Receive(kBytes, seconds, Never);
    };
    const absl::Status late = call(0.05);
    CHECK(late.code() == absl::StatusCode::kDeadlineExceeded);
    CHECK_THAT(std::string(late.message()), Contains(sends ? "NCCL: a send" : "NCCL: a receive"));
    CHECK_FALSE(pair.usable());
    CHECK_THAT(std::string(call(kPatienceSeconds).message()), Contains("was aborted"));
    CHECK(two.devices[sends ? 0 : 1]->Lost().ok());
  }
}

TEST_CASE("an end that dies, or gives up, ends the other's wait with NCCL's words") {
  TwoDevices two;
  for (const bool dies : {true, false}) {
    REQUIRE(two.Join().message() == "");
    std::thread ends([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      if (dies) tests::KillRank(1);
      if (!dies) two.pairs[1].reset();
    });
    const absl::Status status = two.pairs[0]->Send(kBytes, kPatienceSeconds, Never);
    ends.join();
    CHECK(status.code() == absl::StatusCode::kUnavailable);
    CHECK_THAT(std::string(status.message()), Contains("remote process exited"));
  }
  // Joined again, it works.
  REQUIRE(two.Join().message() == "");
  absl::Status sent, received;
  two.Exchange(kBytes, &sent, &received);
  CHECK(sent.message() == "");
  CHECK(received.message() == "");
}

TEST_CASE("a slow end is waited for, unless the wait is cancelled") {
  TwoDevices two;
  two.fake.delay_seconds = 0.2;
  absl::Status sent, received;
  two.Exchange(kBytes, &sent, &received);
  CHECK(sent.message() == "");
  CHECK(received.message() == "");
  two.fake.delay_seconds = kPatienceSeconds;
  two.Exchange(kBytes, &sent, &received, [] { return true; });
  CHECK_FALSE(sent.ok());
  CHECK_FALSE(received.ok());
  CHECK((sent.code() == absl::StatusCode::kCancelled ||
         received.code() == absl::StatusCode::kCancelled));
}

}  // namespace
}  // namespace tessera::kernels::cuda
