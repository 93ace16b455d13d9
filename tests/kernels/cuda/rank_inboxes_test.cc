// Where the inboxes of ranks lie: in the memory of their devices if all of them reach all others',
// of one process or of several, else in host memory, with the reason, in bounded time; and that
// memory is freed when nobody reaches it any more.
#include "kernels/cuda/sums/rank_inboxes.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "kernels/cuda/emulation/devices.h"
#include "kernels/cuda/emulation/peers.h"
#include "tests/kernels/links/shared_mappings.h"

namespace tessera::kernels::cuda::emulated {
namespace {

using Catch::Contains;

int64_t FreeBytes() {
  size_t free_bytes = 0, total_bytes = 0;
  cudaMemGetInfo(&free_bytes, &total_bytes);
  return static_cast<int64_t>(free_bytes);
}

// Ranks on devices of their own, until the end of the test case.
class Ranks {
 public:
  explicit Ranks(int size, Peers peers = {}) : size_(size), free_before_(FreeBytes()) {
    peers.devices = size;
    SetPeers(peers);
    mappings_ = tests::MapForRanks(size, MappedSumBytes(size));
    REQUIRE(mappings_.size() == static_cast<size_t>(size));
    inboxes_.resize(mappings_.size());
  }
  ~Ranks() {
    Inject({});
    inboxes_.clear();
    CHECK(FreeBytes() == free_before_);
    CHECK(OpenHandles() == 0);
    CHECK(GivenBackWhileOpen() == 0);
    CHECK(CheckMemoryGuards().message() == "");
    SetPeers({});
    cudaSetDevice(0);
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  int64_t bytes_taken() const { return free_before_ - FreeBytes(); }
  std::byte* memory(int rank) const { return mappings_[rank].get(); }
  const std::vector<std::shared_ptr<std::byte>>& mappings() const { return mappings_; }
  RankInboxes& operator[](int rank) { return *inboxes_[rank]; }
  void Leave(int rank) { inboxes_[rank].reset(); }

  std::unique_ptr<RankInboxes> MeetAs(int rank, double wait_seconds, uint64_t process = 0) const {
    cudaSetDevice(rank);
    return RankInboxes::Meet({.rank = rank,
                              .size = size_,
                              .memory = mappings_[rank],
                              .on_device = memory(rank),
                              .device_index = rank,
                              .wait_seconds = wait_seconds,
                              .process = process});
  }
  // All but those from `come` on; `processes`: what each says that it is of.
  void Meet(double wait_seconds = 60, const std::vector<uint64_t>& processes = {}, int come = -1) {
    AtOnce(come < 0 ? size_ : come, [&](int rank) {
      inboxes_[rank] = MeetAs(rank, wait_seconds, processes.empty() ? 0 : processes[rank]);
    });
  }
  // A sum by all ranks, enqueued as one behind those that were tried. Returns rank 0's.
  float Sum(int count) {
    std::vector<std::vector<float>> values(static_cast<size_t>(size_));
    AtOnce(size_, [&](int rank) {
      cudaSetDevice(rank);
      values[rank].assign(static_cast<size_t>(count), static_cast<float>(rank + 1));
      MappedSumState state = {
          .begun = inboxes_[rank]->begun(), .failed = 0, .waited_nanoseconds = 0};
      EmulatedStream stream;
      LaunchMappedSum({.values = values[rank].data(),
                       .count = count,
                       .control = reinterpret_cast<MappedSumControl*>(memory(rank)),
                       .inboxes = inboxes_[rank]->get(),
                       .state = &state,
                       .rank = rank,
                       .ranks = size_,
                       .max_wait_nanoseconds = 60'000'000'000},
                      &stream);
      if (!stream.failure().ok() || state.failed != 0) values[rank].assign(1, -1);
    });
    for (const auto& of_rank : values) {
      if (of_rank != values[0]) return -1;
    }
    return values[0] == std::vector<float>(values[0].size(), values[0][0]) ? values[0][0] : -1;
  }
  // That none is in the memory of peers, and the reason, the same for all.
  std::string WhyHost(int come = -1) {
    const std::string why = inboxes_[0]->why_host();
    for (int rank = 0; rank < (come < 0 ? size_ : come); ++rank) {
      CHECK_FALSE(inboxes_[rank]->in_peers());
      CHECK(inboxes_[rank]->why_host() == why);
      CHECK(inboxes_[rank]->begun() == 0);
    }
    return why;
  }

 private:
  static void AtOnce(int ranks, const std::function<void(int)>& play) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) threads.emplace_back([&play, rank] { play(rank); });
    for (std::thread& thread : threads) thread.join();
  }

  const int size_;
  const int64_t free_before_;
  std::vector<std::shared_ptr<std::byte>> mappings_;
  std::vector<std::unique_ptr<RankInboxes>> inboxes_;
};

// Ids of processes that live.
std::vector<uint64_t> Processes(int count) {
  const std::vector<uint64_t> all = {static_cast<uint64_t>(getpid()),
                                     static_cast<uint64_t>(getppid()), 1};
  return {all.begin(), all.begin() + count};
}

void CheckInPeers(Ranks& ranks, int size) {
  for (int rank = 0; rank < size; ++rank) {
    CHECK(ranks[rank].why_host() == "");
    CHECK(ranks[rank].in_peers());
    CHECK(OwnerOf(ranks[rank].get().from) == rank);
    CHECK(ranks[rank].get().to_count == size - 1);
    // Each rank begins with another one.
    CHECK(OwnerOf(ranks[rank].get().to[0]) == (rank + 1) % size);
  }
  CHECK(ranks.Sum(70) == static_cast<float>(size * (size + 1) / 2));
}

TEST_CASE("devices of one process meet in each other's memory, again and again") {
  for (const int size : {2, 3, 4, 2}) {
    Ranks ranks(size);
    ranks.Meet();
    CheckInPeers(ranks, size);
  }
}

TEST_CASE("devices of several processes open each other's handles") {
  for (const int size : {2, 3}) {
    Ranks ranks(size, {.opens_own_handles = true});
    ranks.Meet(60, Processes(size));
    CheckInPeers(ranks, size);
    CHECK(OpenHandles() == size * (size - 1));
  }
}

TEST_CASE("memory is freed when the last rank that reaches it has left") {
  Ranks ranks(3, {.opens_own_handles = true});
  ranks.Meet(60, Processes(3));
  const int64_t all = ranks.bytes_taken();
  CHECK(all > 0);
  ranks.Leave(1);
  ranks.Leave(0);
  CHECK(ranks.bytes_taken() == all);
  ranks.Leave(2);
  CHECK(ranks.bytes_taken() == 0);
}

TEST_CASE("one pair without access takes all ranks to host memory") {
  Ranks ranks(3, {.can_access = [](int device, int peer) { return device + peer != 2; }});
  ranks.Meet();
  CHECK_THAT(ranks.WhyHost(), Catch::Equals("rank 0: its device cannot access the memory of rank "
                                            "2's") ||
                                  Catch::Equals("rank 2: its device cannot access the memory of "
                                                "rank 0's"));
  CHECK(ranks.Sum(5) == 6);
}

TEST_CASE("whichever opening fails, all ranks are in host memory") {
  for (int failing = 1; failing <= 6; ++failing) {
    for (const bool handles : {false, true}) {
      Ranks ranks(3, {.failing_open = failing, .opens_own_handles = true});
      ranks.Meet(60, handles ? Processes(3) : std::vector<uint64_t>{});
      INFO(failing);
      CHECK_THAT(ranks.WhyHost(),
                 Contains(handles ? ": CUDA IPC with rank " : ": peer access to rank "));
      CHECK(ranks.Sum(5) == 6);
    }
  }
}

TEST_CASE("without handles, ranks of one process are peers, those of several are not") {
  {
    Ranks ranks(2, {.gives_handles = false});
    ranks.Meet();
    CheckInPeers(ranks, 2);
  }
  Ranks ranks(2, {.gives_handles = false, .opens_own_handles = true});
  ranks.Meet(60, Processes(2));
  CHECK_THAT(ranks.WhyHost(), Contains("there is no CUDA IPC on rank "));
}

TEST_CASE("no memory, or a trial that fails or gives wrong values: host memory") {
  {
    Ranks ranks(2);
    Inject({.memory_bytes = 1 << 20});
    ranks.Meet();
    CHECK_THAT(ranks.WhyHost(), Contains(": memory for its peers: out of memory"));
    CHECK(ranks.Sum(5) == 3);
  }
  {
    Ranks ranks(2);
    Inject({.failing_launch = 2, .launch_error = cudaErrorLaunchOutOfResources});
    ranks.Meet();
    CHECK_THAT(ranks.WhyHost(), Contains(": a trial: too many resources"));
    CHECK(ranks.Sum(5) == 3);
  }
  {
    Ranks ranks(2);
    Inject({.runs_nothing = true});
    ranks.Meet();
    CHECK_THAT(ranks.WhyHost(), Contains("in the memory of its peers is wrong"));
    Inject({});
    CHECK(ranks.Sum(5) == 3);
  }
}

TEST_CASE("a rank that never comes is named, in bounded time; a late one stays in host memory") {
  Ranks ranks(3);
  ranks.Meet(0.2, {}, 2);
  CHECK_THAT(ranks.WhyHost(2), Contains("rank 2 did not come within 0.2 s"));
  CHECK(ranks.MeetAs(2, 60)->why_host() == ranks[0].why_host());
}

TEST_CASE("a rank that may not be a peer, and says so at once, keeps nobody waiting") {
  Ranks ranks(2);
  KeepInHostMemory(ranks.memory(1), 1, "it maps no memory");
  ranks.Meet(60, {}, 1);
  CHECK(ranks.WhyHost(1) == "rank 1: it maps no memory");
}

TEST_CASE("a process that offers its memory and dies keeps nobody waiting") {
  Ranks ranks(2);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    PeerMeeting(1, 2, ranks.mappings()[1], 60)
        .Offer({.process = static_cast<uint64_t>(getpid()),
                .process_namespace = ProcessNamespace(),
                .has_handle = 1});
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  const auto begin = std::chrono::steady_clock::now();
  ranks.Meet(60, {}, 1);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(30));
  // Which of both it finds first is open: that the handle is no good, or that nobody is there.
  CHECK_THAT(ranks.WhyHost(1), Contains("rank 0: ") && Contains("rank 1"));
}

TEST_CASE("the emulated memory of another process is not opened: both meet on the host") {
  Ranks ranks(2);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const auto inboxes = ranks.MeetAs(1, 60);
    _exit(inboxes->in_peers() || inboxes->begun() != 0 ? 1 : 0);
  }
  ranks.Meet(60, {}, 1);
  CHECK_THAT(ranks.WhyHost(1), Contains(": CUDA IPC with rank ") && Contains("(CUDA error 801)"));
  int status = -1;
  waitpid(child, &status, 0);
  CHECK(status == 0);
}

TEST_CASE("ranks decide once: who comes too late takes what was decided") {
  const auto mappings = tests::MapForRanks(2, MappedSumBytes(2));
  const PeerOffer offer = {.process = static_cast<uint64_t>(getpid()),
                           .process_namespace = ProcessNamespace()};
  PeerMeeting first(0, 2, mappings[0], 60), second(1, 2, mappings[1], 0);
  first.Offer(offer);
  second.Offer(offer);
  CHECK_FALSE(first.OthersLeft());
  for (PeerMeeting* meeting : {&first, &second}) {
    CHECK(meeting->AwaitAll(PeerStep::kOffered));
    meeting->Take(PeerStep::kReaches);
  }
  SECTION("for the peers, though one of them is late") {
    for (PeerMeeting* meeting : {&first, &second}) meeting->Take(PeerStep::kTried);
    CHECK(first.AwaitAll(PeerStep::kTried));
    CHECK(first.Agree());
    second.Refuse("it is too late");
    CHECK(second.AwaitAll(PeerStep::kTried));
    CHECK(second.Agree());
    CHECK(second.WhyHost() == "");
  }
  SECTION("for the host, though all have tried it") {
    second.Take(PeerStep::kTried);
    CHECK_FALSE(second.AwaitAll(PeerStep::kTried));
    first.Take(PeerStep::kTried);
    CHECK_FALSE(first.AwaitAll(PeerStep::kTried));
    CHECK_FALSE(first.Agree());
    CHECK(first.WhyHost() == "rank 1: rank 0 did not answer within 0 s");
  }
  CHECK_FALSE(first.OthersLeft());
  second.Take(PeerStep::kLeft);
  CHECK(first.OthersLeft());
}

}  // namespace
}  // namespace tessera::kernels::cuda::emulated
