// The sizes of a share of a model, without the model: what a worker needs to know of it that
// computes nothing. Nothing is read or allocated.
//
// Thread rule: as Model's. Forward is never called: an EmulatedStage runs the steps.
#pragma once

#include <memory>

#include "worker/model/model.h"

namespace tessera::worker {

// `weight_bytes` and `activation_bytes`: as the plan has them.
std::unique_ptr<Model> MakeEmulatedModel(const ModelOptions& options, int64_t weight_bytes,
                                         int64_t activation_bytes);

}  // namespace tessera::worker
