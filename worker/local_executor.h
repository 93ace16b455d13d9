// Steps of a replica that is one worker: copy the rows, run the model, sample, on one stream.
//
// Thread rule: one thread. Ownership: borrows model and device (KV memory is attached to the
// model); owns staging and stream. One step at a time.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "worker/model.h"
#include "worker/sampler.h"
#include "worker/step_executor.h"
#include "worker/step_inputs.h"

namespace tessera::worker {

class LocalExecutor final : public StepExecutor {
 public:
  // `limits` must be those that the model was loaded with.
  static absl::StatusOr<std::unique_ptr<StepExecutor>> Create(const StepLimits& limits,
                                                              const SamplerLimits& sampler_limits,
                                                              Model* model,
                                                              kernels::Device* device);

  absl::Status Begin(const StepWork& work) override;
  absl::Status Take(StepOutcome* outcome) override;
  int64_t device_bytes() const override {
    return upload_->device_bytes() + sampler_->device_bytes();
  }

 private:
  explicit LocalExecutor(Model* model) : model_(model) {}

  Model* const model_;
  std::unique_ptr<kernels::Stream> stream_;
  std::unique_ptr<StepUpload> upload_;
  std::unique_ptr<Sampler> sampler_;
  StepWork work_;  // of the step that began
};

}  // namespace tessera::worker
