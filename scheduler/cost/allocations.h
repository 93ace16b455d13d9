// What a worker allocates beside the parameters and the KV pool: upper bounds of its buffers, which
// worker/model/model_buffers, worker/step/step_inputs and worker/step/sampler size, and of what the
// packed layout of its weights adds to their parameters. tests/worker/allocations_test holds them
// against workers.
//
// Thread rule: pure functions of plain values. Units: bytes, of a rank with
// that share of the stage.
#pragma once

#include "scheduler/cost/cost_model.h"

namespace tessera::scheduler {

// Activations of the largest step, workspaces of its ops, and logits where the head is.
double ActivationBytes(const ModelShape& model, const StageSpec& stage, const RankShare& share,
                       const MemoryOptions& options);

// Hidden rows on their way to and from other workers: one buffer each way between stages
// (`pipeline`), two between the ranks of a stage.
double CommunicationBytes(const ModelShape& model, const StageSpec& stage,
                          const MemoryOptions& options, bool pipeline);

// What counting parameters leaves out: norms, biases, padding, scales, tables of another type, the
// arrays that describe a step, and sampling.
double LeftOutBytes(const ModelShape& model, const StageSpec& stage, const RankShare& share,
                    const MemoryOptions& options);

}  // namespace tessera::scheduler
