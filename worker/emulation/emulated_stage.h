// A worker's part of a step on a device that computes nothing: it waits for the rows of the stage
// before, lets the time pass that the cost model gives the stage, hands on, and on the last stage
// answers with seeded tokens.
//
// Rows go over the real links as a tag of a few bytes; the time that they take on the planned link
// passes at the receiver, so that a stage may begin its next step meanwhile. The first rank of a
// stage stands for all of it: the other ranks take their descriptors and have computed at once. A
// prompt's KV is reported layer by layer while the step runs, as it is written on a real device.
//
// Thread rule: one thread. Borrows links, KV sender and clock.
#pragma once

#include <memory>
#include <utility>

#include "worker/emulation/emulated_clock.h"
#include "worker/emulation/lateness.h"
#include "worker/emulation/step_cost.h"
#include "worker/step/stage.h"
#include "worker/step/stage_runner.h"

namespace tessera::worker {

struct EmulatedStageOptions {
  std::shared_ptr<const StepCost> cost;
  int stage = 0;         // of cost's stages
  bool is_first = true;  // rank of the stage
  int layers = 0;        // that it holds keys and values of
  int64_t vocabulary = 0;
  int64_t embedding_width = 0;
  double speed = 1;  // model's seconds that pass in one second
  EmulatedClock* clock = &SystemClock();
  Lateness* lateness = nullptr;  // null: nobody asks
};

class EmulatedStage final : public Stage {
 public:
  EmulatedStage(EmulatedStageOptions emulated, const StageOptions& options, const StageLinks& links)
      : emulated_(std::move(emulated)), options_(options), links_(links) {}

  absl::Status Run(const StepWork& work, StepOutcome* outcome) override;
  bool samples() const override { return options_.samples; }
  int64_t device_bytes() const override { return 0; }

 private:
  absl::Status TakeRows();
  absl::Status HandOn(double hop_seconds);
  // Waits until `end`; reports each layer whose KV is to be sent when its time has come.
  void Pass(const StepWork& work, double begin, double end);
  void Answer(const StepWork& work, StepOutcome* outcome) const;

  const EmulatedStageOptions emulated_;
  const StageOptions options_;
  const StageLinks links_;
  double hop_free_seconds_ = 0;  // when the link to the next stage is free
};

}  // namespace tessera::worker
