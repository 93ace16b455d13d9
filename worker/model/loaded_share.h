// A worker's share of a model in memory, with KV blocks attached. It outlives the engine or member
// that computes with it, so that the next plan need not read the weights again.
//
// Thread rule: used by one engine or member at a time.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/device.h"
#include "worker/model/model.h"

namespace tessera::worker {

struct LoadedShare {
  kernels::Buffer kv_memory;
  std::unique_ptr<Model> model;
  int64_t kv_blocks = 0;  // in kv_memory
  bool packs = false;     // Model::PackWeights was called
};

}  // namespace tessera::worker
