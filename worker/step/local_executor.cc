#include "worker/step/local_executor.h"

#include <utility>

namespace tessera::worker {

absl::StatusOr<std::unique_ptr<StepExecutor>> LocalExecutor::Create(
    const StepLimits& limits, const SamplerLimits& sampler_limits, Model* model,
    kernels::Device* device, std::atomic<int64_t>* busy_nanoseconds, KvSender* kv_sender,
    int64_t snapshots, std::shared_ptr<StateExchange> exchange, int64_t block_tokens) {
  auto stage = StageRunner::Create({.limits = limits,
                                    .sampler = sampler_limits,
                                    .first = true,
                                    .samples = true,
                                    .block_tokens = block_tokens,
                                    .snapshots = snapshots,
                                    .exchange = std::move(exchange),
                                    .kv_sender = kv_sender,
                                    .busy_nanoseconds = busy_nanoseconds},
                                   {}, model, device);
  if (!stage.ok()) return stage.status();
  return std::unique_ptr<StepExecutor>(new LocalExecutor(*std::move(stage), device));
}

absl::Status LocalExecutor::Begin(const StepWork& work) {
  const bool enqueued = stage_->RunsAhead(work);
  if (enqueued) {
    if (absl::Status status = stage_->Enqueue(work); !status.ok()) return status;
  }
  in_flight_.push_back({work, enqueued});
  return absl::OkStatus();
}

absl::Status LocalExecutor::Take(StepOutcome* outcome) {
  const Begun step = in_flight_.front();
  in_flight_.pop_front();
  return step.enqueued ? stage_->Collect(step.work.samples.size(), outcome)
                       : stage_->Run(step.work, outcome);
}

}  // namespace tessera::worker
