// A rank that waits on its device for another, in a stage that the leader is not in, hears that the
// other one has gone: from the leader's heartbeats, as its only thread reads no link meanwhile.
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/links/link.h"
#include "worker/formation/formation.h"
#include "worker/formation/group_executor.h"

namespace tessera::worker {
namespace {

using Clock = std::chrono::steady_clock;

// Sums that say when they are aborted, and whose abort no other rank sees: a process that dies
// aborts nothing.
class FakeSums final : public kernels::DeviceSums {
 public:
  FakeSums(int rank, int size, std::atomic<bool>* aborted)
      : rank_(rank), size_(size), aborted_(aborted) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int64_t max_bytes() const override { return 256 << 10; }
  std::string transport() const override { return "the devices"; }
  absl::Status AllReduceSum(const kernels::TensorView&, kernels::Stream&) override {
    return absl::UnimplementedError("");
  }
  absl::Status Broadcast(const kernels::TensorView&, int, kernels::Stream&) override {
    return absl::UnimplementedError("");
  }
  void Abort(const absl::Status&) override { *aborted_ = true; }
  absl::Status status() const override { return absl::OkStatus(); }
  std::chrono::nanoseconds wait_time() const override { return {}; }

 private:
  const int rank_, size_;
  std::atomic<bool>* const aborted_;
};

class FakeMaker final : public kernels::GroupMaker {
 public:
  std::string device_id() const override { return ""; }
  std::string library() const override { return ""; }
  absl::StatusOr<std::string> NewId() override { return absl::UnimplementedError(""); }
  absl::StatusOr<std::unique_ptr<kernels::Group>> Join(int, int, const std::string&,
                                                       const kernels::GroupOptions&, double,
                                                       const std::function<bool()>&) override {
    return absl::UnimplementedError("");
  }
  absl::StatusOr<std::unique_ptr<kernels::DevicePair>> JoinPair(
      int, const std::string&, int64_t, double, const std::function<bool()>&) override {
    return absl::UnimplementedError("");
  }
  std::string sums_kind() const override { return "fake"; }
  int64_t SumsMemoryBytes(int) const override { return 4096; }
  absl::StatusOr<std::unique_ptr<kernels::DeviceSums>> MapSums(
      int rank, int size, std::shared_ptr<std::byte>, const kernels::GroupOptions&) override {
    return std::unique_ptr<kernels::DeviceSums>(new FakeSums(rank, size, &aborted));
  }

  std::atomic<bool> aborted{false};
};

class NoStage final : public Stage {
 public:
  absl::Status Run(const StepWork&, StepOutcome*) override { return absl::OkStatus(); }
  bool samples() const override { return false; }
  int64_t device_bytes() const override { return 0; }
};

// Member 0 leads; members 1 and 2 are the ranks of the second stage.
struct ThreeMembers {
  ThreeMembers() {
    for (int i = 0; i < 3; ++i) {
      v1::ConfigureRequest& request = requests.emplace_back();
      request.set_replica("r0");
      request.set_stage(i == 0 ? 0 : 1);
      request.set_rank(i == 2 ? 1 : 0);
      for (int j = 0; j < 3; ++j) {
        v1::Peer& peer = *request.add_peers();
        peer.set_stage(j == 0 ? 0 : 1);
        peer.set_rank(j == 2 ? 1 : 0);
        peer.set_address("worker/" + std::to_string(j));
      }
    }
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([this, i] {
        const auto open = [this, i](int member, v1::LinkKind kind) {
          return Open(i, member, kind);
        };
        auto joined = Formation::Join(
            requests[i], KvBlocks{8}, open, {.silence_seconds = 2, .ping_interval_seconds = 0.1},
            [] { return false; }, &makers[i]);
        if (joined.ok()) formations[i] = *std::move(joined);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const auto& formation : formations) REQUIRE(formation != nullptr);
  }

  absl::StatusOr<std::unique_ptr<kernels::Link>> Open(int self, int member, v1::LinkKind kind) {
    const std::lock_guard<std::mutex> lock(mutex);
    auto& waiting = ends[{std::min(self, member), std::max(self, member), kind}];
    if (waiting == nullptr) {
      auto pair = kernels::CreateLinkPair("first", "second");
      if (!pair.ok()) return pair.status();
      waiting = std::move(pair->second);
      links[self].push_back(pair->first.get());
      return std::move(pair->first);
    }
    links[self].push_back(waiting.get());
    return std::move(waiting);
  }

  // As when the process is gone: its sockets close.
  void Vanish(int member) {
    for (kernels::Link* link : links[member]) link->Shutdown(absl::CancelledError("gone"));
  }

  bool Aborted(int member, double seconds) const {
    const auto end = Clock::now() + std::chrono::duration<double>(seconds);
    while (!makers[member].aborted && Clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return makers[member].aborted;
  }

  std::vector<v1::ConfigureRequest> requests;
  FakeMaker makers[3];
  std::mutex mutex;
  std::map<std::tuple<int, int, v1::LinkKind>, std::unique_ptr<kernels::Link>> ends;
  std::map<int, std::vector<kernels::Link*>> links;
  std::unique_ptr<Formation> formations[3];
};

TEST_CASE("a rank of a later stage that is gone ends the wait of the other rank's device") {
  ThreeMembers members;
  CHECK(members.formations[1]->DescribeSums() ==
        "the devices, up to 256 KiB, above by their hosts (shared memory)");
  CHECK(members.formations[0]->DescribeSums() == "");
  CHECK_FALSE(members.Aborted(1, 0.3));
  members.Vanish(2);
  CHECK(members.Aborted(1, 2));
}

TEST_CASE("a leader that gives its formation up ends the waits of the other stages' devices") {
  ThreeMembers members;
  GroupExecutor executor(GroupOptionsOf(members.requests[0], *members.formations[0]),
                         std::make_unique<NoStage>());
  CHECK_FALSE(members.Aborted(1, 0.3));
  executor.Abort(absl::DeadlineExceededError("a step is late"));
  CHECK(members.Aborted(1, 2));
  CHECK(members.Aborted(2, 2));
}

}  // namespace
}  // namespace tessera::worker
