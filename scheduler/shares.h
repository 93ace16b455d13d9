// What each worker holds, as plain ranges, computed once here and only read elsewhere (weights,
// kv_layout). Thread rule: pure functions.
#pragma once

#include "proto/model.pb.h"
#include "proto/plan.pb.h"

namespace tessera::scheduler {

// The share of a worker that holds the whole model alone.
v1::WorkerShare WholeModelShare(const v1::Model& model);

}  // namespace tessera::scheduler
