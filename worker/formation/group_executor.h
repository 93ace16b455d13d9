// Steps of a replica on several workers, as its leader runs them: the descriptor goes to every
// member, this worker does its own part, and the member that samples answers.
//
// Failures: a step that fails on any worker breaks the formation for good. Every link is shut down,
// so that no member waits, Broken() says why, and later steps fail at once with the same reason.
//
// Thread rule: one thread (the engine's) but for Abort, which any may call. Ownership: borrows the
// links, owns its stage runner. One step at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/links/link.h"
#include "proto/worker.pb.h"
#include "worker/formation/formation.h"
#include "worker/step/stage_runner.h"
#include "worker/step/step_executor.h"

namespace tessera::worker {

struct GroupMember {
  std::string name;  // for errors: replica, stage and rank
  kernels::Link* control = nullptr;
};

struct GroupOptions {
  v1::Fence fence;                   // of the formation
  std::vector<GroupMember> members;  // all but the leader
  int sampler = -1;                  // index into members; -1: the leader samples
  std::vector<kernels::Link*> bulk;  // of the leader; shut down with the others
  double step_seconds = 600;         // longest wait for the result of a step
};

// Of the leader that `formation` belongs to.
GroupOptions GroupOptionsOf(const v1::ConfigureRequest& request, const Formation& formation);

class GroupExecutor final : public StepExecutor {
 public:
  GroupExecutor(GroupOptions options, std::unique_ptr<StageRunner> stage);
  ~GroupExecutor() override { Abort(absl::UnavailableError("the replica is taken down")); }

  absl::Status Begin(const StepWork& work) override;
  absl::Status Take(StepOutcome* outcome) override;
  absl::Status Broken() override;
  int64_t device_bytes() const override { return stage_->device_bytes(); }

  // Ends the formation: shuts down all links, which ends a step in progress on every worker.
  void Abort(const absl::Status& reason);

 private:
  absl::Status BrokenReason();
  absl::Status Fail(const absl::Status& status);
  absl::Status AwaitResult(StepOutcome* outcome);
  // Reads what a member's control link has. True: the result of this step.
  absl::StatusOr<bool> ReadFrom(size_t member, StepOutcome* outcome);

  const GroupOptions options_;
  const std::unique_ptr<StageRunner> stage_;
  StepWork work_;  // of the step that began
  uint64_t step_ = 0;
  v1::StepDescriptor descriptor_;
  std::string bytes_;

  std::mutex mutex_;
  absl::Status broken_;
};

}  // namespace tessera::worker
