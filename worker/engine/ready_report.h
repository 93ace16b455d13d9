// What a worker that was configured says of itself: to its coordinator, and in its log.
//
// Thread rule: pure functions, but for the log.
#pragma once

#include <cstdint>

#include "kernels/device.h"
#include "proto/worker.pb.h"
#include "worker/engine/engine_admission.h"
#include "worker/model/loaded_share.h"
#include "worker/weights/model_options.h"

namespace tessera::worker {

// Device, types and sizes; the rest of `ready` stays. `staging_bytes`: of activations, beside the
// model's own.
void DescribeWorker(const kernels::Device& device, const ModelOptions& model,
                    const EngineOptions& options, const LoadedShare& share, int64_t staging_bytes,
                    v1::WorkerReady* ready);

void LogReady(const v1::ConfigureRequest& request, const EngineOptions& options,
              const v1::WorkerReady& ready);

}  // namespace tessera::worker
