// Runs the steps that an engine plans, on all workers of its replica.
//
// LocalExecutor: one worker holds the whole model. GroupExecutor: the stages and ranks of a replica
// on several workers, this one included.
//
// Thread rule: one thread (the engine's). Steps come back in the order in which they began.
// Lanes: how many steps may be in flight at once. With one step in flight, a second of the same
// lane may follow ahead, where the device takes the tokens that the first draws from the first
// itself.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "proto/worker.pb.h"
#include "worker/step/kv_push.h"
#include "worker/step/sampler.h"
#include "worker/step/state_copy.h"
#include "worker/step/step_arrays.h"

namespace tessera::worker {

// Borrowed from Begin until Take has returned. Logit rows: those to sample, then those to score.
struct StepWork {
  const StepArrays* arrays = nullptr;  // sealed
  std::span<const SampleRequest> samples;
  std::span<const ScoreRequest> scores;
  std::span<const KvPush> pushes = {};
  std::span<const StateCopy> restores = {};  // before the first layer, in this order
  std::span<const StateCopy> saves = {};     // behind the last one
  // Tokens that draft_runner.h, where there is one, proposes behind each sequence, at most; 0: its
  // keys and values keep up; -1: nobody wants these either.
  int32_t draft_tokens = 0;
  // Not null: masks of `samples` are not filled yet, nor is it certain what they ban. Called once,
  // on any thread, while the step is in flight, before either is read.
  const std::function<void()>* make_masks = nullptr;

  void MakeMasks() const {
    if (make_masks != nullptr) (*make_masks)();
  }
};

// One entry per request.
struct StepOutcome {
  std::vector<SampleResult> samples;
  std::vector<v1::PositionLogprobs> scores;
  std::vector<std::vector<float>> row_sums;  // ScoreRequest::sum names them
};

class StepExecutor {
 public:
  virtual ~StepExecutor() = default;
  virtual int lanes() const { return 1; }
  // Whether MayRunAhead is ever true.
  virtual bool runs_ahead() const { return false; }
  // Whether another step may begin behind the only one in flight, with fed rows (SequenceRows)
  // whose tokens that one draws. Their order is that of its samples.
  virtual bool MayRunAhead() const { return false; }
  // `wake` is called, on any thread, each time a step that was in flight gets its outcome.
  virtual void SetWake(std::function<void()> /*wake*/) {}
  // Starts a step and does not wait for its results; one that does not run ahead may wait for the
  // step before it. An error: it did not start, Take is not due.
  virtual absl::Status Begin(const StepWork& work) = 0;
  // Whether Take, for the oldest step in flight, waits for no other worker, but for its devices
  // where steps run ahead.
  virtual bool Ready() { return true; }
  // Waits for the oldest step that began. An error: the step gave nothing.
  virtual absl::Status Take(StepOutcome* outcome) = 0;
  // Not OK: no step can be run any more, and why. Asked between steps, also of an idle replica.
  virtual absl::Status Broken() { return absl::OkStatus(); }
  // Bytes of staging and sampling on this worker's device.
  virtual int64_t device_bytes() const = 0;
};

}  // namespace tessera::worker
