// The part of a forward pass that gives layers embeddings of their own (v1::Model::per_layer_width;
// Gemma 4 E2B and E4B). Of a token, all layers' beside each other:
//   (norm(context(embedding) / sqrt(hidden)) + per_layer_scale * table[token]) / sqrt(2)
// and behind a layer's ffn, with its part of that:
//   h += norm(output(activation(gate(h)) * part)).
//
// Every rank computes all of it, but for the table, whose rows they share. Thread rule: one thread.
// Borrows everything it is given.
#pragma once

#include "absl/status/status.h"
#include "kernels/collectives/group.h"
#include "kernels/device.h"
#include "kernels/ops.h"
#include "worker/model/model.h"
#include "worker/model/model_buffers.h"
#include "worker/weights/weights.h"

namespace tessera::worker {

class PerLayerPass {
 public:
  PerLayerPass(const ModelOptions& options, const ModelWeights& weights,
               const ModelBuffers& buffers, kernels::Ops& ops)
      : options_(options), weights_(weights), buffers_(buffers), ops_(ops) {}

  // Before the first layer, from the embeddings in `hidden`. `group`: null, or the stage's ranks.
  absl::Status Prepare(const StepInputs& step, kernels::Group* group, kernels::Stream& stream);

  // Rows behind a layer's ffn.
  struct Rows {
    kernels::TensorView hidden;   // [rows, hidden], in place
    kernels::TensorView scratch;  // [rows, hidden]
    kernels::TensorView numbers;  // [rows] i32: which of the step's rows these are
  };
  // `index` counts from the first layer.
  absl::Status Add(int64_t index, kernels::Activation activation, const Rows& rows,
                   kernels::Group* group, kernels::Stream& stream);

 private:
  absl::Status Linear(const kernels::PackedWeights& weights, const kernels::TensorView& in,
                      const kernels::TensorView& out, kernels::Stream& stream);
  // In place.
  absl::Status Norm(const NormWeights& norm, const kernels::TensorView& rows,
                    kernels::Stream& stream);
  absl::Status Scale(const kernels::TensorView& rows, double factor, kernels::Stream& stream);

  const ModelOptions& options_;
  const ModelWeights& weights_;
  const ModelBuffers& buffers_;
  kernels::Ops& ops_;
};

}  // namespace tessera::worker
