// How large a worker's KV pool is, and how it is cut into blocks (proto/layers/kv_sizes.h).
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "proto/layers/kv_sizes.h"
#include "proto/worker.pb.h"
#include "worker/engine/engine_admission.h"
#include "worker/model/model.h"

namespace tessera::worker {

KvLimits KvLimitsOf(const v1::Model& model, const EngineOptions& options);

// Whether replicas of a model keep windows apart: sequences may be longer than a window.
bool KeepsWindowsApart(const v1::Model& model, const EngineOptions& options);

// Bytes of a block of `loaded`, which was loaded with `model`; windows are apart where
// options.window says so.
KvBlockBytes PoolBlockBytes(const Model& loaded, const ModelOptions& model,
                            const EngineOptions& options);

// Bytes for KV where nobody said: half of what the device and its machine have left, or, where it
// `takes_rest`, all of it; at most what max_sequences sequences of full length need.
int64_t KvPoolBytes(int64_t left_bytes, const KvBlockBytes& block, const KvLimits& limits,
                    bool takes_rest);

// How `bytes` are cut, in common blocks alone where windows are not apart and nobody needs seats.
// A share of layers without a window, in a replica that keeps windows apart, has window blocks
// without bytes: as many as can be of use.
KvBlocks CutPool(int64_t bytes, const KvBlockBytes& block, const KvLimits& limits,
                 bool windows_apart);

}  // namespace tessera::worker
