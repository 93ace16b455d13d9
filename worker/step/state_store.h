// States of prompts that one worker keeps in host memory: of all its layers, as they stand in a
// seat. The replica's leader says what is saved in which place, what is restored from there, and
// under which name (kvcache/snapshot_index.h); a copy that does not agree with what the place holds
// is refused, because a wrong state gives wrong tokens without any other sign.
//
// Thread rule: one thread (the one that runs steps). Ownership: borrows the model, whose KV memory
// is attached; owns the host memory, which is allocated by Create only. Copies are enqueued: the
// store outlives the stream's work.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "worker/model/model.h"
#include "worker/step/state_copy.h"
#include "worker/step/state_exchange.h"
#include "worker/step/step_arrays.h"

namespace tessera::worker {

class StateStore {
 public:
  // Room for `snapshots` states of a model with seats. `exchange`: of the same model; null: no
  // states come from other replicas, or go there. ResourceExhausted where the system does not
  // give that memory.
  static absl::StatusOr<std::unique_ptr<StateStore>> Create(
      int64_t snapshots, const Model* model, kernels::Device* device,
      std::shared_ptr<StateExchange> exchange = nullptr);

  // FailedPrecondition, naming the place, where a step restores or saves what is not or cannot be
  // there.
  absl::Status Check(const StepArrays& step, std::span<const StateCopy> restores,
                     std::span<const StateCopy> saves) const;
  // Before the step's layers; of copies that Check accepted.
  absl::Status Restore(const StepArrays& step, std::span<const StateCopy> restores,
                       kernels::Stream& stream) const;
  // Behind them.
  absl::Status Save(const StepArrays& step, std::span<const StateCopy> saves,
                    kernels::Stream& stream);

 private:
  struct Place {
    uint64_t name = 0;  // 0: nothing
    int32_t position = 0;
  };

  StateStore(int64_t snapshots, const Model* model, kernels::HostBuffer memory,
             std::shared_ptr<StateExchange> exchange)
      : places_(static_cast<size_t>(snapshots)),
        model_(model),
        memory_(std::move(memory)),
        exchange_(std::move(exchange)) {}

  // Calls copy(host, device, bytes) for each part of a seat and its place in the store.
  template <typename Copy>
  absl::Status ForParts(const StepArrays& step, const StateCopy& state, const Copy& copy) const;

  std::vector<Place> places_;
  const Model* const model_;
  kernels::HostBuffer memory_;  // by place, then as Model::states()
  const std::shared_ptr<StateExchange> exchange_;
};

}  // namespace tessera::worker
