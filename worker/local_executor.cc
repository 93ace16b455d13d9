#include "worker/local_executor.h"

#include <utility>

namespace tessera::worker {

absl::StatusOr<std::unique_ptr<StepExecutor>> LocalExecutor::Create(
    const StepLimits& limits, const SamplerLimits& sampler_limits, Model* model,
    kernels::Device* device) {
  std::unique_ptr<LocalExecutor> executor(new LocalExecutor(model));
  auto upload = StepUpload::Create(limits, *device);
  if (!upload.ok()) return upload.status();
  executor->upload_ = *std::move(upload);
  auto sampler = Sampler::Create(sampler_limits, *device);
  if (!sampler.ok()) return sampler.status();
  executor->sampler_ = *std::move(sampler);
  auto stream = device->CreateStream();
  if (!stream.ok()) return stream.status();
  executor->stream_ = *std::move(stream);
  return executor;
}

absl::Status LocalExecutor::Begin(const StepWork& work) {
  work_ = work;
  auto inputs = upload_->Copy(*work.arrays, *stream_);
  absl::Status status = inputs.status();
  if (status.ok()) status = model_->Forward(*inputs, *stream_);
  // Also after a failure: what was enqueued still reads the staging.
  if (!status.ok()) stream_->Synchronize().IgnoreError();
  return status;
}

absl::Status LocalExecutor::Take(StepOutcome* outcome) {
  absl::Status status;
  if (const int64_t rows = work_.arrays->logit_count(); rows > 0) {
    status = sampler_->Run(model_->logits().Rows(rows), work_.samples, work_.scores, *stream_,
                           &outcome->samples, &outcome->scores);
  } else {
    outcome->samples.clear();
    outcome->scores.clear();
  }
  status.Update(stream_->Synchronize());
  return status;
}

}  // namespace tessera::worker
