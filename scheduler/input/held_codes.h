// How many bytes the devices of a cluster keep of MXFP4 codes: GPUs four bits and a scale of 32
// bits for 32 of them, CPUs, as models say it, a byte and that scale. Thread rule: pure functions.
#pragma once

#include "proto/cluster.pb.h"
#include "proto/model.pb.h"

namespace tessera::scheduler {

// Whether that is less than `model` says: it has such codes in bytes, and no device is a CPU.
bool KeepsFourBits(const v1::Cluster& cluster, const v1::Model& model);

// Says so in `model`, and of the model that drafts for it; once is enough.
void HoldFourBits(v1::Model* model);

}  // namespace tessera::scheduler
