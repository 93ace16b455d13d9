// A worker's share of a model in memory, with KV blocks attached. It outlives the engine or member
// that computes with it, so that the next plan need not read the weights again.
//
// Thread rule: used by one engine or member at a time.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/device.h"
#include "proto/layers/kv_sizes.h"
#include "worker/model/model.h"

namespace tessera::worker {

struct LoadedShare {
  kernels::Buffer kv_memory;
  std::unique_ptr<Model> model;
  KvBlocks kv_blocks{0};  // of kv_memory, as the model has it attached
  bool packs = false;     // Model::PackWeights was called
};

}  // namespace tessera::worker
