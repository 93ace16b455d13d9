// States of one worker on their way between replicas: places in host memory, whose layout is the
// same on every rank (kvcache/state_layout.h). What sends KV reads them, what takes it writes them.
//
// Thread rule: one thread (the one that runs steps); the leader's places say who else uses the
// memory of one meanwhile. Ownership: borrows the model, whose KV memory is attached; owns the host
// memory, which is allocated by Create only. Copies are enqueued: it outlives the stream's work.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "kvcache/state_layout.h"
#include "worker/model/model.h"

namespace tessera::worker {

class StateExchange {
 public:
  // `pool` without memory, of the model's share. ResourceExhausted where the system does not give
  // that memory.
  static absl::StatusOr<std::shared_ptr<StateExchange>> Create(const kvcache::StateShape& shape,
                                                               kvcache::KvPool pool,
                                                               const Model* model,
                                                               kernels::Device* device);

  const kvcache::KvPool& pool() const { return pool_; }
  int64_t places() const { return pool_.blocks; }

  // From the seat to the place, and back.
  absl::Status Fill(int32_t seat, int32_t place, kernels::Stream& stream);
  absl::Status Restore(int32_t place, int32_t seat, kernels::Stream& stream);

 private:
  StateExchange(const kvcache::StateShape& shape, const Model* model)
      : shape_(shape), model_(model) {}

  // Between `staged_`, which has a state as it stands in a seat, and a place.
  void Convert(int32_t place, bool pack);
  absl::Status EnqueueConvert(int32_t place, bool pack, kernels::Stream& stream);

  const kvcache::StateShape shape_;
  const Model* const model_;
  kvcache::KvPool pool_;
  kernels::HostBuffer memory_, staged_;
};

}  // namespace tessera::worker
