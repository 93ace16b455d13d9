// Memory of the device that steps take beside the model, measured before the KV pool takes what is
// left: staging and sampling, by making them; what the stream keeps of steps that come again (CUDA
// graphs), by steps that compute nothing anyone reads.
//
// Thread rule: one thread; blocks while the steps run. Gives back all that it took, but for the
// model's attention workspace.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "worker/model/model.h"
#include "worker/step/stage_runner.h"

namespace tessera::worker {

struct StepMemory {
  int64_t staging_bytes = 0;
  // Bytes of as many as the stream may keep, or as there are kinds of steps, by the mean of those
  // tried.
  int64_t kept_bytes = 0;
};

// For a StageRunner of these options. `runs`: the model computes its layers without other ranks, so
// that its steps can be tried; else nothing of them is kept. The model's KV memory must be attached
// afterwards, also where it was before.
absl::StatusOr<StepMemory> MeasureStepMemory(const StageOptions& options, bool runs,
                                             int64_t block_tokens, Model* model,
                                             kernels::Device* device);

}  // namespace tessera::worker
