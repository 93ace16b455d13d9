// Steps of a replica on several workers, as its leader runs them: the descriptor goes to every
// member, this worker does its own part on a thread of its own, and the member that samples
// answers. Several steps may be in flight: members run them in the order in which they began, so
// the stages of a replica work on different steps at the same time. Masks of grammars that another
// worker samples by are made when the descriptor is out, and follow it.
//
// Steps ahead (worker/step/stage.h), of one stage whose ranks' devices sum: Begin enqueues this
// worker's part itself, behind that of the step in flight, and Take waits for it. The members do
// the same with the descriptors that they get. Of several stages that hand on by their devices,
// where another worker draws, the stage's thread enqueues parts, and waits for each one step later.
//
// Failures: a step that fails on any worker breaks the formation for good. Every link is shut down,
// so that no member waits, Broken() says why, and later steps fail at once with the same reason.
// A loss is noticed at once, also by an idle replica: a thread reads the members' control links.
//
// Thread rule: one thread (the engine's) but for Abort and SetListener, which any may call.
// Ownership: borrows the links, owns its stage runner.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "kernels/collectives/device_sums.h"
#include "kernels/links/link.h"
#include "proto/worker.pb.h"
#include "worker/formation/formation.h"
#include "worker/step/stage.h"
#include "worker/step/stage_runner.h"
#include "worker/step/step_executor.h"

namespace tessera::worker {

struct GroupMember {
  std::string name;  // for errors: replica, stage and rank
  int peer = 0;      // its index in ConfigureRequest.peers
  kernels::Link* control = nullptr;
};

struct GroupOptions {
  v1::Fence fence;                          // of the formation
  std::vector<GroupMember> members;         // all but the leader
  int sampler = -1;                         // index into members; -1: the leader samples
  std::vector<kernels::Link*> bulk;         // of Formation::bulk; shut down with the others
  std::vector<kernels::DeviceSums*> waits;  // of the leader's device; aborted with the links
  int lanes = 1;                            // whose steps take turns: StepExecutor::lanes
  bool ahead = false;                       // a step may begin behind the only one in flight
  double step_seconds = 600;                // longest wait for the result of a step
};

// Options of the leader that `formation` belongs to. Ahead, but where another replica computes
// prompts or answers: it waits for what the engine hears.
GroupOptions GroupOptionsOf(const v1::ConfigureRequest& request, const Formation& formation);

class GroupExecutor;
// Says once whether steps of a formation of GPUs run ahead, or why each waits for the one before.
void LogStepsAhead(const v1::ConfigureRequest& request, const Formation& formation,
                   const GroupExecutor& executor);

class GroupExecutor final : public StepExecutor, public KvNotes {
 public:
  GroupExecutor(GroupOptions options, std::unique_ptr<Stage> stage);
  ~GroupExecutor() override;

  int lanes() const override { return options_.lanes; }
  bool runs_ahead() const override {
    return options_.ahead && stage_->runs_ahead() && (options_.lanes == 1 || draws_elsewhere());
  }
  bool MayRunAhead() const override;
  void SetWake(std::function<void()> wake) override;
  absl::Status Begin(const StepWork& work) override;
  bool Ready() override;
  absl::Status Take(StepOutcome* outcome) override;
  absl::Status Broken() override;
  int64_t device_bytes() const override { return stage_->device_bytes(); }

  // KvNotes.
  void Send(int peer, const v1::KvNote& note) override;
  void SetListener(Listener listener) override;

  // Ends the formation: shuts down all links, which ends the steps in flight on every worker.
  void Abort(const absl::Status& reason);

 private:
  using Clock = std::chrono::steady_clock;

  struct Pending {
    uint64_t number = 0;
    StepWork work;
    Clock::time_point deadline;
    bool enqueued = false;  // on this worker's stage, by Begin, and not collected
    bool feeds = false;     // the next step may take what it draws
  };

  bool draws_elsewhere() const { return options_.sampler >= 0; }
  void RunStage();  // of the stage's thread
  // Waits, with the mutex held, for a step to run or for the end of one of `enqueued` steps to be
  // awaited. False: the formation has ended.
  bool AwaitWork(std::unique_lock<std::mutex>& lock, int enqueued);
  // Runs the step, or enqueues it where that is this thread's, and counts that.
  absl::Status RunPart(const StepWork& work, int* enqueued);
  // Waits until so many steps at most are enqueued.
  absl::Status CollectTo(int left, int* enqueued);
  void ReadMembers();  // of the reader's thread
  // What the reader's thread need not learn from a link: this worker's part failed, a step is late.
  absl::Status OwnFailure();
  // Reads what a member's control link has: the result of the oldest step in flight, or an error.
  absl::Status ReadFrom(size_t member);
  absl::Status TakeNote(const GroupMember& from, const std::string& payload);
  // Sends the masks of the step that was begun last to the member that samples.
  absl::Status SendMasks(const StepWork& work);
  absl::Status SendStep(const StepWork& work, bool sends_masks);
  absl::Status SendBytes(int member, FrameType type);
  // Waits for the oldest step in flight, where it is enqueued. False: it is not.
  bool Collect();
  void Fail(const absl::Status& status);
  void Finish(StepOutcome outcome);

  const GroupOptions options_;
  const std::unique_ptr<Stage> stage_;
  v1::StepDescriptor descriptor_, masks_;
  std::string bytes_;   // of either
  uint64_t steps_ = 0;  // that began

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Pending> to_run_;     // of which this worker's part has not begun
  std::deque<Pending> in_flight_;  // that began and have no outcome
  std::deque<StepOutcome> done_;
  absl::Status failure_;  // of this worker's part; the reader's thread may learn a better reason
  absl::Status broken_;
  bool stage_ended_ = false;  // RunStage borrows nothing any more
  std::function<void()> wake_;

  std::mutex listener_mutex_;  // held while the listener is called
  Listener listener_;

  std::thread reader_, stage_thread_;
};

}  // namespace tessera::worker
