// One worker's part of the steps of its replica, behind an interface: StageRunner computes it,
// worker/emulation only lets its time pass.
//
// Thread rule: one call at a time, but for what says what can be enqueued, which any thread may
// ask.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/worker.pb.h"
#include "worker/step/step_executor.h"

namespace tessera::worker {

struct StageOptions;
struct StageLinks;

class Stage {
 public:
  virtual ~Stage() = default;
  // Blocks until this worker's part is done. Fills `outcome` where this worker samples.
  virtual absl::Status Run(const StepWork& work, StepOutcome* outcome) = 0;

  // Steps ahead: whether some can be enqueued, to be awaited later, and whether this one can.
  virtual bool runs_ahead() const { return false; }
  virtual bool RunsAhead(const StepWork& /*work*/) const { return false; }
  // Whether the tokens that this step draws may feed the next one: it RunsAhead, here and on the
  // worker that draws.
  virtual bool FeedsNext(const StepWork& /*work*/) const { return false; }
  // Enqueues a step that RunsAhead. At most two of them are enqueued and not collected, and none
  // when Run is called. An error: nothing of it is enqueued any more.
  virtual absl::Status Enqueue(const StepWork& /*work*/) {
    return absl::UnimplementedError("this stage runs no steps ahead");
  }
  // Whether Collect of the oldest one would not wait.
  virtual bool Ended() const { return true; }
  // Blocks until the oldest one is done, which had so many samples. Fills `outcome` as Run does.
  virtual absl::Status Collect(size_t /*samples*/, StepOutcome* /*outcome*/) {
    return absl::UnimplementedError("this stage runs no steps ahead");
  }

  virtual bool samples() const = 0;
  // Bytes of staging and sampling on this worker's device.
  virtual int64_t device_bytes() const = 0;
};

// Makes the stage of a worker that is configured so.
using StageMaker = std::function<absl::StatusOr<std::unique_ptr<Stage>>(
    const v1::ConfigureRequest& request, const StageOptions& options, const StageLinks& links)>;

}  // namespace tessera::worker
