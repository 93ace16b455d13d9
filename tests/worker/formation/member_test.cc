// When a member takes the ends of its steps ahead: as soon as they end, however late the leader
// says more, for what a step takes counts as the member's own time; and not before it has begun the
// next one, where that came in time.
#include "worker/formation/member.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/links/link.h"
#include "worker/step/step_arrays.h"

namespace tessera::worker {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr StepLimits kLimits = {
    .max_tokens = 3, .max_sequences = 2, .max_logit_rows = 2, .max_blocks_per_sequence = 1};
constexpr uint64_t kEpoch = 7;

// What the stage noted, for the test's thread.
class Notes {
 public:
  void Enqueued() {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++enqueued_;
  }
  void Collected(Seconds late) {
    const std::lock_guard<std::mutex> lock(mutex_);
    late_.push_back(late.count());
    enqueued_then_.push_back(enqueued_);
    changed_.notify_all();
  }
  void WaitCollected(size_t steps) {
    std::unique_lock<std::mutex> lock(mutex_);
    REQUIRE(changed_.wait_for(lock, Seconds(30), [&] { return late_.size() >= steps; }));
  }
  // Seconds from each step's end until it was collected. After WaitCollected.
  const std::vector<double>& late() const { return late_; }
  // How many were enqueued when each was collected.
  const std::vector<int>& enqueued_then() const { return enqueued_then_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int enqueued_ = 0;
  std::vector<double> late_;
  std::vector<int> enqueued_then_;
};

// Steps that take a time by the clock, one after the other.
class TimedStage final : public Stage {
 public:
  TimedStage(double step_seconds, Notes* notes) : step_(step_seconds), notes_(*notes) {}

  absl::Status Run(const StepWork&, StepOutcome*) override {
    return absl::InternalError("every step runs ahead");
  }
  bool runs_ahead() const override { return true; }
  bool RunsAhead(const StepWork&) const override { return true; }
  absl::Status Enqueue(const StepWork&) override {
    const auto now = Clock::now();
    const auto began = ends_.empty() ? now : std::max(now, ends_.back());
    ends_.push_back(began + std::chrono::duration_cast<Clock::duration>(step_));
    notes_.Enqueued();
    return absl::OkStatus();
  }
  bool Ended() const override { return Clock::now() >= ends_.front(); }
  absl::Status Collect(size_t, StepOutcome*) override {
    const auto end = ends_.front();
    ends_.pop_front();
    std::this_thread::sleep_until(end);
    notes_.Collected(Clock::now() - end);
    return absl::OkStatus();
  }
  bool samples() const override { return false; }
  int64_t device_bytes() const override { return 0; }

 private:
  const Seconds step_;
  Notes& notes_;
  std::deque<Clock::time_point> ends_;
};

// Links between two members of a stage.
class Pairs {
 public:
  absl::StatusOr<std::unique_ptr<kernels::Link>> Open(v1::LinkKind kind) {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto& waiting = ends_[kind];
    if (waiting != nullptr) return std::move(waiting);
    auto pair = kernels::CreateLinkPair("first", "second");
    if (!pair.ok()) return pair.status();
    waiting = std::move(pair->second);
    return std::move(pair->first);
  }

 private:
  std::mutex mutex_;
  std::map<v1::LinkKind, std::unique_ptr<kernels::Link>> ends_;
};

// A leader, which the test plays, and a member of the same stage.
class LedMember {
 public:
  explicit LedMember(double step_seconds) {
    std::unique_ptr<Formation> formations[2];
    Pairs pairs;
    std::vector<std::thread> threads;
    for (int self = 0; self < 2; ++self) {
      threads.emplace_back([&, self] {
        v1::ConfigureRequest request;
        request.mutable_fence()->set_plan_epoch(kEpoch);
        request.set_replica("r0");
        request.set_rank(self);
        for (int rank = 0; rank < 2; ++rank) {
          v1::Peer& peer = *request.add_peers();
          peer.set_rank(rank);
          peer.set_address("worker/" + std::to_string(rank));
        }
        const auto open = [&pairs](int, v1::LinkKind kind) { return pairs.Open(kind); };
        auto joined = Formation::Join(request, KvBlocks{8}, open, {}, [] { return false; });
        if (joined.ok()) formations[self] = *std::move(joined);
      });
    }
    for (std::thread& thread : threads) thread.join();
    REQUIRE(formations[0] != nullptr);
    REQUIRE(formations[1] != nullptr);
    leader_ = std::move(formations[0]);
    MemberOptions options;
    options.fence.set_plan_epoch(kEpoch);
    options.limits = kLimits;
    options.kv_blocks = KvBlocks{8};
    options.block_tokens = 1;
    options.control = formations[1]->control(0);
    options.bulk = formations[1]->bulk();
    member_ = std::make_unique<Member>(std::move(options), nullptr, std::move(formations[1]),
                                       std::make_unique<TimedStage>(step_seconds, &notes_));
  }

  // One step of two tokens.
  void SendStep() {
    const std::vector<int32_t> zeros = {0, 0}, ones = {1, 1}, starts = {0, 1, 2};
    StepArrays arrays(kLimits);
    REQUIRE(arrays
                .Assign({.token_ids = zeros,
                         .positions = zeros,
                         .rope_lengths = ones,
                         .slots = zeros,
                         .query_starts = starts,
                         .context_lengths = ones,
                         .table_widths = ones,
                         .tables = zeros,
                         .logit_rows = {}},
                        /*kv_blocks=*/8, /*block_tokens=*/1)
                .message() == "");
    v1::StepDescriptor step;
    WriteDescriptor({&arrays, {}, {}, {}}, &step);
    step.mutable_fence()->set_plan_epoch(kEpoch);
    step.set_step(++steps_);
    const std::string bytes = step.SerializeAsString();
    const auto sent = leader_->control(1)->Send(
        static_cast<uint16_t>(FrameType::kStepDescriptor),
        {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}, 10);
    REQUIRE(sent.message() == "");
  }

  Notes& notes() { return notes_; }
  bool ended() const { return member_->ended(); }

 private:
  Notes notes_;
  std::unique_ptr<Formation> leader_;
  std::unique_ptr<Member> member_;  // ends before the notes of its stage
  uint64_t steps_ = 0;
};

}  // namespace

TEST_CASE("a step that ends while the leader is silent is collected at its end") {
  LedMember led(/*step_seconds=*/0.002);
  constexpr size_t kSteps = 10;
  for (size_t step = 1; step <= kSteps; ++step) {
    led.SendStep();
    led.notes().WaitCollected(step);
  }
  CHECK_FALSE(led.ended());
  // Whoever waits for the leader's next word takes 48 ms more each time; a busy machine, at times.
  std::vector<double> late = led.notes().late();
  std::sort(late.begin(), late.end());
  CHECK(late[kSteps / 2] < 0.02);
}

TEST_CASE("a step that comes while one runs is begun before that one is collected") {
  LedMember led(/*step_seconds=*/0.3);
  for (int step = 0; step < 3; ++step) led.SendStep();
  led.notes().WaitCollected(3);
  CHECK_FALSE(led.ended());
  CHECK(led.notes().enqueued_then() == std::vector<int>{2, 3, 3});
}

}  // namespace tessera::worker
