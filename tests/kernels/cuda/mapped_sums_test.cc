// Ranks of one process, each with a device and a stream of its own, that sum in memory which their
// devices reach, their own or the host's: alone and in graphs, and what happens to waits. (All
// orders of their kernels: mapped_sum_test; what any group does:
// tests/kernels/collectives/group_test.)
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "kernels/collectives/device_sums.h"
#include "kernels/collectives/group_maker.h"
#include "kernels/cuda/device/cuda_device.h"
#include "kernels/cuda/sums/peer_meeting.h"
#include "kernels/graph_stream.h"
#include "tests/kernels/cuda/test_device.h"
#include "tests/kernels/links/shared_mappings.h"
#ifdef TESSERA_CUDA_EMULATED
#include "kernels/cuda/emulation/host_memory.h"
#endif

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

using Catch::Contains;

constexpr int64_t kCount = 4096;  // 16 KiB

struct Rank {
  std::unique_ptr<Device> device;
  std::unique_ptr<DeviceSums> sums;
  Buffer memory;
  std::unique_ptr<Stream> stream;

  TensorView values(int64_t count = kCount) const {
    return TensorView(memory.data(), DType::kF32, {1, count});
  }
  absl::Status Set(float value) {
    const std::vector<float> values(kCount, value);
    absl::Status status = stream->CopyToDevice(memory.data(), values.data(), memory.size_bytes());
    return status.ok() ? stream->Synchronize() : status;
  }
  // All values, which are alike; -1: they are not.
  float Read() {
    std::vector<float> values(kCount);
    absl::Status status = stream->CopyToHost(values.data(), memory.data(), memory.size_bytes());
    if (status.ok()) status = stream->Synchronize();
    const bool alike = status.ok() && values == std::vector<float>(kCount, values[0]);
    return alike ? values[0] : -1;
  }
  absl::Status Sum(int64_t count = kCount) {
    absl::Status status = sums->AllReduceSum(values(count), *stream);
    return status.ok() ? stream->Synchronize() : status;
  }
};

// play(rank) for all at once; returns what each said.
template <typename Play>
std::vector<absl::Status> AtOnce(std::vector<Rank>& ranks, const Play& play) {
  std::vector<absl::Status> said(ranks.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < ranks.size(); ++r) {
    threads.emplace_back([&, r] { said[r] = play(ranks[r]); });
  }
  for (std::thread& thread : threads) thread.join();
  return said;
}

// In the devices' own memory, as those of one process can, or in host memory.
std::vector<Rank> MakeRanks(int size, bool in_peers, double timeout_seconds = 20) {
  std::vector<Rank> ranks(static_cast<size_t>(size));
  for (Rank& rank : ranks) {
    auto device = CreateCudaDevice({.memory_bytes = 64 << 20});
    REQUIRE(device.status().message() == "");
    rank.device = *std::move(device);
    rank.memory = *rank.device->Allocate(kCount * 4);
    rank.stream = *rank.device->CreateStream();
  }
  const auto mappings =
      tests::MapForRanks(size, ranks[0].device->group_maker()->SumsMemoryBytes(size));
  REQUIRE(mappings.size() == static_cast<size_t>(size));
  if (!in_peers) KeepInHostMemory(mappings[0].get(), 0, "the test wants it");
  const auto said = AtOnce(ranks, [&](Rank& rank) {
    const auto r = static_cast<int>(&rank - ranks.data());
    auto sums = rank.device->group_maker()->MapSums(r, size, mappings[r],
                                                    {.timeout_seconds = timeout_seconds});
    if (!sums.ok()) return sums.status();
    rank.sums = *std::move(sums);
    return rank.Set(static_cast<float>(r + 1));
  });
  for (const absl::Status& status : said) REQUIRE(status.message() == "");
  for (const Rank& rank : ranks) {
    CHECK(rank.sums->transport() == (in_peers ? "the devices, in each other's memory"
                                              : "the devices, in memory that all of them map"));
    CHECK(rank.sums->wait_time().count() == 0);
  }
  return ranks;
}

TEST_CASE("devices sum without their hosts, many times in a row") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  const int size = GENERATE(2, 3);
  std::vector<Rank> ranks = MakeRanks(size, GENERATE(true, false));
  const auto said = AtOnce(ranks, [](Rank& rank) {
    for (int i = 0; i < 5; ++i) {
      absl::Status enqueued = rank.sums->AllReduceSum(rank.values(), *rank.stream);
      if (!enqueued.ok()) return enqueued;
    }
    return rank.stream->Synchronize();
  });
  for (const absl::Status& status : said) CHECK(status.message() == "");
  const float wanted = size == 2 ? 3 * 16 : 6 * 81;
  for (Rank& rank : ranks) CHECK(rank.Read() == wanted);
  CHECK(ranks[0].sums->wait_time().count() > 0);
}

TEST_CASE("a device whose meeting failed publishes nothing to others by the same stream") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  const bool in_peers = GENERATE(true, false);
  // The second device of one pair is the first of another one.
  std::vector<Rank> before = MakeRanks(2, in_peers, 1), behind = MakeRanks(2, in_peers, 1);
  const auto mappings = tests::MapForRanks(2, before[1].device->group_maker()->SumsMemoryBytes(2));
  std::vector<std::unique_ptr<DeviceSums>> pair(2);
  const auto map = [&](int rank, Rank& of) {
    auto sums = of.device->group_maker()->MapSums(rank, 2, mappings[rank], {.timeout_seconds = 1});
    if (sums.ok()) pair[rank] = *std::move(sums);
  };
  std::thread other([&] { map(1, behind[1]); });
  map(0, before[1]);
  other.join();
  REQUIRE(pair[0] != nullptr);
  REQUIRE(pair[1] != nullptr);
  absl::Status status = before[1].Set(5), took = behind[1].Set(6);
  REQUIRE(status.ok());
  REQUIRE(took.ok());
  // The first device does not come, and no host knows it before both are enqueued.
  status = before[1].sums->Broadcast(before[1].values(), 0, *before[1].stream);
  if (status.ok()) status = pair[0]->Broadcast(before[1].values(), 0, *before[1].stream);
  CHECK(status.ok());
  CHECK_FALSE(before[1].stream->Synchronize().ok());
  took = pair[1]->Broadcast(behind[1].values(), 0, *behind[1].stream);
  if (took.ok()) took = behind[1].stream->Synchronize();
  CHECK(absl::IsAborted(took));
}

TEST_CASE("a graph holds sums of ranks") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  std::vector<Rank> ranks = MakeRanks(2, GENERATE(true, false));
  constexpr int kSteps = 5, kKept = 3;  // the third one is the first that was kept
  const auto said = AtOnce(ranks, [](Rank& rank) {
    GraphStream& stream = *rank.stream->repeating();
    absl::Status status;
    for (int step = 1; status.ok() && step <= kSteps; ++step) {
      const bool kept = stream.Replay({1});
      if (kept != (step >= kKept)) return absl::InternalError("step " + std::to_string(step));
      if (!kept) {
        stream.BeginRecording({1});
        status = rank.sums->AllReduceSum(rank.values(), *rank.stream);
        if (status.ok()) status = rank.sums->AllReduceSum(rank.values(), *rank.stream);
        stream.EndRecording(status.ok());
      }
      if (status.ok()) status = rank.stream->Synchronize();
    }
    return status;
  });
  for (const absl::Status& status : said) CHECK(status.message() == "");
  for (Rank& rank : ranks) CHECK(rank.Read() == 3 * (1 << (2 * kSteps - 1)));
}

TEST_CASE("a rank that does not come is named, and host work behind its sum is skipped") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  std::vector<Rank> ranks = MakeRanks(2, GENERATE(true, false), 0.05);
  bool ran = false;
  REQUIRE(ranks[0].sums->AllReduceSum(ranks[0].values(), *ranks[0].stream).ok());
  REQUIRE(EnqueueHost<bool*>(
              *ranks[0].stream,
              +[](bool* const& flag) {
                *flag = true;
                return absl::OkStatus();
              },
              &ran)
              .ok());
  const absl::Status late = ranks[0].stream->Synchronize();
  CHECK(late.code() == absl::StatusCode::kDeadlineExceeded);
  CHECK_THAT(std::string(late.message()), Contains("rank 1 did not come to rank 0 within 0.05 s"));
  CHECK_FALSE(ran);
  CHECK(ranks[0].sums->status() == late);
  // It is final, and the other rank's too.
  CHECK(ranks[0].Sum() == late);
  CHECK(ranks[1].Sum().code() == absl::StatusCode::kAborted);
  CHECK(ranks[0].device->Lost().ok());
}

TEST_CASE("an abort ends a wait of the device at once, and says why") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  std::vector<Rank> ranks = MakeRanks(2, GENERATE(true, false));
  REQUIRE(ranks[0].sums->AllReduceSum(ranks[0].values(), *ranks[0].stream).ok());
  const absl::Status reason = absl::UnavailableError("the formation ends");
  ranks[0].sums->Abort(reason);
  CHECK(ranks[0].stream->Synchronize() == reason);
  CHECK(ranks[1].sums->status().message() == "rank 0 ended the group");
}

TEST_CASE("what is wrong with a call is an error at once") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  std::vector<Rank> ranks = MakeRanks(2, true);
  const auto invalid = [&](const TensorView& values, Stream& stream) {
    return ranks[0].sums->AllReduceSum(values, stream).code() == absl::StatusCode::kInvalidArgument;
  };
  CHECK(invalid(ranks[0].values(ranks[0].sums->max_bytes() / 4 + 1), *ranks[0].stream));
  CHECK(invalid(TensorView(ranks[0].memory.data(), DType::kF16, {8}), *ranks[0].stream));
  CHECK(invalid(ranks[0].values(), *ranks[1].stream));
  CHECK(ranks[0].sums->status().ok());
}

#ifdef TESSERA_CUDA_EMULATED
TEST_CASE("memory that cannot be pinned is an error with the limit's name; all is given back") {
  {
    std::vector<Rank> ranks = MakeRanks(2, true);
    CHECK(RegisteredBytes() == 2 * ranks[0].device->group_maker()->SumsMemoryBytes(2));
    LimitRegistered(RegisteredBytes());
    GroupMaker& maker = *ranks[0].device->group_maker();
    const auto mapping = tests::MapForRanks(1, maker.SumsMemoryBytes(2))[0];
    const auto refused = maker.MapSums(0, 2, mapping, {});
    LimitRegistered(int64_t{1} << 60);
    CHECK(refused.status().code() == absl::StatusCode::kResourceExhausted);
    CHECK_THAT(std::string(refused.status().message()), Contains("ulimit -l"));
  }
  CHECK(RegisteredBytes() == 0);
  const auto off = CreateCudaDevice({.memory_bytes = 1 << 20, .maps_sums = false});
  CHECK((*off)->group_maker()->sums_kind() == "");
}
#endif

}  // namespace
}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
