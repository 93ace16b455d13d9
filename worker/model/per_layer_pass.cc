#include "worker/model/per_layer_pass.h"

#include <cmath>

#include "proto/layers/layer_sizes.h"

namespace tessera::worker {
namespace {

using kernels::SizeInBytes;
using kernels::TensorView;

// Columns [first, first + count) of rows.
TensorView Columns(const TensorView& rows, int64_t first, int64_t count) {
  TensorView view(rows.data + first * SizeInBytes(rows.dtype), rows.dtype, {rows.rows(), count});
  view.row_stride = rows.row_stride;
  return view;
}

}  // namespace

absl::Status PerLayerPass::Linear(const kernels::PackedWeights& weights, const TensorView& in,
                                  const TensorView& out, kernels::Stream& stream) {
  return ops_.Linear({.out = out,
                      .in = in,
                      .weights = &weights,
                      .workspace = buffers_.workspace,
                      .products = options_.product_dtype},
                     stream);
}

absl::Status PerLayerPass::Norm(const NormWeights& norm, const TensorView& rows,
                                kernels::Stream& stream) {
  return ops_.RmsNorm({.out = rows,
                       .in = rows,
                       .weight = norm.weight,
                       .epsilon = static_cast<float>(options_.model.norm_epsilon())},
                      stream);
}

absl::Status PerLayerPass::Scale(const TensorView& rows, double factor, kernels::Stream& stream) {
  return ops_.Scale({.rows = rows, .factor = static_cast<float>(factor)}, stream);
}

absl::Status PerLayerPass::Prepare(const StepInputs& step, kernels::Group* group,
                                   kernels::Stream& stream) {
  const v1::Model& model = options_.model;
  const int64_t tokens = step.token_ids.rows(), width = model.per_layer_width();
  const int64_t columns = PerLayerColumns(model);
  const TensorView looked_up = Matrix(buffers_.wide, tokens, columns);
  const TensorView all = buffers_.per_layer.Rows(tokens);
  const TensorView by_layer(all.data, all.dtype, {tokens, columns / width, width});
  absl::Status status =
      ops_.Embedding({.out = looked_up,
                      .table = weights_.per_layer_table,
                      .ids = step.token_ids,
                      .vocabulary_begin = options_.share.vocabulary_rows().begin()},
                     stream);
  if (status.ok() && group != nullptr) status = group->AllReduceSum(looked_up, stream);
  if (status.ok()) status = Scale(looked_up, model.per_layer_scale(), stream);
  if (status.ok()) {
    status = Linear(weights_.per_layer_context.matrix, buffers_.hidden.Rows(tokens), all, stream);
  }
  const double root = std::sqrt(static_cast<double>(model.hidden()));
  if (status.ok()) status = Scale(all, 1 / root, stream);
  if (status.ok()) status = Norm(weights_.per_layer_norm, by_layer, stream);
  if (status.ok()) status = ops_.Add({.out = all, .in = looked_up}, stream);
  return status.ok() ? Scale(all, std::sqrt(0.5), stream) : status;
}

absl::Status PerLayerPass::Add(int64_t index, kernels::Activation activation, const Rows& rows,
                               kernels::Group* group, kernels::Stream& stream) {
  const PerLayerWeights& weights = weights_.layers[index].per_layer;
  const int64_t count = rows.hidden.rows(), width = options_.model.per_layer_width();
  const TensorView pair = Matrix(buffers_.wide, count, 2 * width);
  const TensorView inner = Matrix(buffers_.inner, count, width);
  absl::Status status = Linear(weights.gate.matrix, rows.hidden, Columns(pair, 0, width), stream);
  if (status.ok()) {
    status = ops_.GatherRows({.out = Columns(pair, width, width),
                              .in = Columns(buffers_.per_layer, index * width, width),
                              .rows = rows.numbers},
                             stream);
  }
  if (status.ok()) {
    status = ops_.GatedActivate({.out = inner, .gate_up = pair, .kind = activation}, stream);
  }
  if (status.ok()) status = Linear(weights.output.matrix, inner, rows.scratch, stream);
  if (status.ok()) status = Norm(weights.after, rows.scratch, stream);
  // All ranks compute the same, but perhaps not to the last bit.
  if (status.ok() && group != nullptr) status = group->Broadcast(rows.scratch, 0, stream);
  return status.ok() ? ops_.Add({.out = rows.hidden, .in = rows.scratch}, stream) : status;
}

}  // namespace tessera::worker
