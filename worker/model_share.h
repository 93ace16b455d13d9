// Checks of a v1::WorkerShare against the model it is a share of. Pure, thread-safe.
#pragma once

#include "absl/status/status.h"
#include "proto/model.pb.h"
#include "proto/plan.pb.h"

namespace tessera::worker {

// Ranges are not empty and lie within the model; query heads and kv heads belong together. Names
// the range and both numbers.
absl::Status CheckShare(const v1::Model& model, const v1::WorkerShare& share);

// Unimplemented, naming what is missing, for a share that is not the whole model: such a worker
// would have to exchange activations with others.
absl::Status CheckIsWhole(const v1::Model& model, const v1::WorkerShare& share);

}  // namespace tessera::worker
