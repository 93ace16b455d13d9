// Steps of a replica that is one worker: a stage that is first and last.
//
// A step that can run ahead (StageRunner) is enqueued by Begin, and Take reads its tokens; any
// other one is run by Take.
//
// Thread rule: one thread. Ownership: borrows model and device (KV memory is attached to the
// model); owns staging and stream.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "worker/model/model.h"
#include "worker/step/sampler.h"
#include "worker/step/stage_runner.h"
#include "worker/step/step_executor.h"

namespace tessera::worker {

class LocalExecutor final : public StepExecutor {
 public:
  // `limits` must be those that the model was loaded with; the last five as in StageOptions.
  static absl::StatusOr<std::unique_ptr<StepExecutor>> Create(
      const StepLimits& limits, const SamplerLimits& sampler_limits, Model* model,
      kernels::Device* device, std::atomic<int64_t>* busy_nanoseconds = nullptr,
      KvSender* kv_sender = nullptr, int64_t snapshots = 0,
      std::shared_ptr<StateExchange> exchange = nullptr, int64_t block_tokens = 0);

  bool runs_ahead() const override { return stage_->runs_ahead(); }
  bool MayRunAhead() const override { return in_flight_.size() == 1 && in_flight_[0].enqueued; }
  absl::Status Begin(const StepWork& work) override;
  absl::Status Take(StepOutcome* outcome) override;
  absl::Status Broken() override { return device_->Lost(); }
  int64_t device_bytes() const override { return stage_->device_bytes(); }

 private:
  LocalExecutor(std::unique_ptr<StageRunner> stage, const kernels::Device* device)
      : stage_(std::move(stage)), device_(device) {}

  const std::unique_ptr<StageRunner> stage_;
  const kernels::Device* const device_;
  struct Begun {
    StepWork work;
    bool enqueued = false;
  };
  std::deque<Begun> in_flight_;
};

}  // namespace tessera::worker
