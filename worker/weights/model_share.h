// Checks of a v1::WorkerShare against the model it is a share of. Pure, thread-safe.
#pragma once

#include "absl/status/status.h"
#include "proto/model.pb.h"
#include "proto/plan.pb.h"

namespace tessera::worker {

// The model's layers can be computed (CheckLayers), and are all there where it NeedsOneStage;
// ranges are not empty and lie within the model; query heads and kv heads belong together. Names
// the range and both numbers.
absl::Status CheckShare(const v1::Model& model, const v1::WorkerShare& share);

// Whether the share has all heads, columns, ids and experts of its layers: what it computes needs
// no sum with other ranks.
bool IsWholeStage(const v1::Model& model, const v1::WorkerShare& share);

}  // namespace tessera::worker
