// What a worker holds of a model's keys, values and states, as other replicas see it.
// Thread rule: pure functions.
#pragma once

#include "proto/plan.pb.h"
#include "proto/worker.pb.h"

namespace tessera {

v1::KvShare KvShareOf(const v1::Model& model, const v1::WorkerShare& share);

}  // namespace tessera
