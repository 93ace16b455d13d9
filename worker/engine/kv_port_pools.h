// What of a worker's share goes to other replicas, and comes from them: keys and values out of its
// pool, and states by way of an exchange.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "proto/model.pb.h"
#include "proto/plan.pb.h"
#include "worker/engine/kv_mover.h"
#include "worker/model/model.h"
#include "worker/step/state_exchange.h"

namespace tessera::worker {

// Null where the worker's layers keep no states.
absl::StatusOr<std::shared_ptr<StateExchange>> MakeExchange(const v1::Model& model,
                                                            const v1::WorkerShare& share,
                                                            int64_t places, const Model* loaded,
                                                            kernels::Device* device);

// `kv`: of the share's layers, all of them; its memory begins with the seats of a model that keeps
// states. `exchange` may be null.
KvPortPools PortPoolsOf(const v1::Model& model, kvcache::KvPool kv, int64_t seat_bytes,
                        const StateExchange* exchange);

}  // namespace tessera::worker
