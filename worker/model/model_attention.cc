// The first block of a layer: attention (projections, norms of heads, rotation, cache, attention,
// gates), or a gated delta net.
#include <algorithm>
#include <cmath>
#include <utility>

#include "proto/layers/layer_sizes.h"
#include "proto/layers/layers.h"
#include "worker/model/model_forward.h"

namespace tessera::worker {
namespace {

using kernels::SizeInBytes;
using kernels::TensorView;

// Columns [first, first + heads * head_dim) of a matrix, as heads.
TensorView Heads(const TensorView& matrix, int64_t first, int64_t heads, int64_t head_dim) {
  TensorView view(matrix.data + first * SizeInBytes(matrix.dtype), matrix.dtype,
                  {matrix.rows(), heads, head_dim});
  view.row_stride = matrix.row_stride;
  return view;
}

// All heads of a row as one.
TensorView Flat(const TensorView& heads) {
  TensorView view(heads.data, heads.dtype, {heads.rows(), heads.shape[1] * heads.shape[2]});
  view.row_stride = heads.row_stride;
  return view;
}

// Columns [first, first + width) of the rows that heads have, each a row of its own.
TensorView HeadRows(const TensorView& heads, int64_t first, int64_t width) {
  TensorView view(heads.data + first * SizeInBytes(heads.dtype), heads.dtype,
                  {heads.rows() * heads.shape[1], width});
  view.row_stride = heads.shape[2];
  return view;
}

// A norm of q and k that Ops::PrepareAttention does.
bool IsPreparedNorm(const v1::Model& model, const v1::Attention& attention) {
  return attention.qk_norm() && model.norm() == v1::NORM_KIND_RMS && !attention.qk_norm_by_head() &&
         !attention.qk_norm_full_width() && !attention.qk_norm_after_rope() &&
         !attention.borrows_kv() && attention.qkv_limit() == 0;
}

// Queries that grow with their position.
kernels::ScaleArgs GrowthOf(const v1::Attention& attention, const StepInputs& step,
                            const TensorView& queries) {
  return {.rows = Flat(queries),
          .positions = step.positions,
          .position_gain = static_cast<float>(attention.query_gain()),
          .position_period = attention.query_gain_period(),
          .position_offset = attention.query_gain_offset()};
}

}  // namespace

ForwardPass::Projections ForwardPass::ProjectionsOf(int64_t index, int64_t tokens) const {
  const int64_t d = Kind(index).attention().head_dim();
  const LayerPart held = PartOf(Held(index));
  const bool borrows = Kind(index).attention().borrows_kv();
  const int64_t heads = held.query_heads, kv_heads = borrows ? 0 : held.kv_heads;
  const int64_t gates = (heads + 2 * kv_heads) * d;
  const bool gated = Kind(index).attention().output_gate();
  TensorView all = Matrix(buffers_.wide, tokens, gates + (gated ? 2 * heads * d : 0));
  Projections made = {.all = all,
                      .q = Heads(all, 0, heads, d),
                      .k = Heads(all, heads * d, kv_heads, d),
                      .v = Heads(all, (heads + kv_heads) * d, kv_heads, d)};
  if (!gated) return made;
  made.all.shape[1] = gates + heads * d;
  made.gated = Flat(Heads(all, gates, 2 * heads, d));
  made.read = Heads(all, gates + heads * d, heads, d);
  return made;
}

ForwardPass::StepBlocks ForwardPass::BlocksOf(int64_t index, const StepInputs& step) const {
  const bool apart = step.window_slots.data != nullptr && Kind(index).attention().window() > 0;
  return apart ? StepBlocks{step.window_slots, step.window_block_tables}
               : StepBlocks{step.slots, step.block_tables};
}

absl::Status ForwardPass::WriteKv(int64_t index, const StepInputs& step, const Residual& rows,
                                  kernels::Stream& stream) {
  const AttentionWeights& attention = weights_.layers[index].attention;
  const int64_t tokens = step.token_ids.rows();
  Residual typed = rows;
  if (!Kind(index).attention().has_latent()) {
    typed.normed = InputsFor(attention.qkv.matrix, buffers_.normed, tokens, model_.hidden());
  }
  TensorView in;
  absl::Status status = BeginBlock(attention.norms, PendingBefore(index), typed, stream, &in);
  if (!status.ok()) return status;

  if (Kind(index).attention().has_latent()) return WriteLatent(index, step, in, stream);
  const Projections projected = ProjectionsOf(index, tokens);
  status = Linear(attention.qkv.matrix, attention.qkv.bias, in, projected.all, stream);
  return status.ok() ? PrepareAttention(index, step, projected, stream) : status;
}

absl::Status ForwardPass::PrepareAttention(int64_t index, const StepInputs& step,
                                           const Projections& projected, kernels::Stream& stream) {
  const v1::Attention& attention = Kind(index).attention();
  kernels::PrepareAttentionArgs args = {.q = projected.q,
                                        .k = projected.k,
                                        .v = projected.v,
                                        .cache = kv_[index],
                                        .slots = BlocksOf(index, step).slots};
  const int rope = ropes_.of_kind[KindIndexOf(model_, share_.layers().begin() + index)];
  if (rope >= 0) args.cos_sin = buffers_.ropes[rope].cos_sin.Rows(step.token_ids.rows());
  absl::Status status;
  if (IsPreparedNorm(model_, attention)) {
    args.q_norm = HeadNorms(index).q;
    args.k_norm = HeadNorms(index).k;
    args.epsilon = static_cast<float>(model_.norm_epsilon());
  } else if (attention.qk_norm()) {
    if (attention.qk_norm_after_rope() && rope >= 0) {
      status = ops_.Rope({.q = args.q, .k = args.k, .cos_sin = args.cos_sin}, stream);
      args.cos_sin = {};
    }
    if (status.ok()) status = NormHeads(index, projected, stream);
  }
  if (status.ok() && attention.qkv_limit() != 0) {
    status = ops_.Scale({.rows = projected.all, .limit = static_cast<float>(attention.qkv_limit())},
                        stream);
  }
  if (status.ok() && attention.value_norm() && !attention.borrows_kv()) {
    const TensorView weight = buffers_.ones.Rows(attention.head_dim());
    status = Norm({.weight = weight, .bias = {}}, projected.v, {}, projected.v, stream);
  }
  if (status.ok() && attention.borrows_kv()) {
    if (rope >= 0 && !args.cos_sin.empty()) {
      status = ops_.Rope({.q = args.q, .k = args.k, .cos_sin = args.cos_sin}, stream);
    }
  } else if (status.ok()) {
    status = ops_.PrepareAttention(args, stream);
  }
  if (!status.ok() || attention.query_gain() == 0) return status;
  return ops_.Scale(GrowthOf(attention, step, projected.q), stream);
}

ForwardPass::QkNorms ForwardPass::HeadNorms(int64_t index) const {
  const AttentionWeights& weights = weights_.layers[index].attention;
  const v1::Attention& attention = Kind(index).attention();
  if (!attention.qk_norm_without_weights()) return {weights.q_norm, weights.k_norm};
  const TensorView ones = buffers_.ones.Rows(attention.head_dim());
  return {ones, ones};
}

absl::Status ForwardPass::NormHeads(int64_t index, const Projections& projected,
                                    kernels::Stream& stream) {
  const v1::Attention& attention = Kind(index).attention();
  if (attention.qk_norm_full_width()) return NormFullWidth(index, projected, stream);
  const QkNorms norms = HeadNorms(index);
  absl::Status status;
  for (const auto& [heads, stored] :
       {std::pair(projected.q, norms.q), std::pair(projected.k, norms.k)}) {
    if (heads.shape[1] == 0) continue;
    TensorView weight = stored;
    if (attention.qk_norm_by_head()) {
      weight = TensorView(stored.data, stored.dtype, {heads.shape[1], heads.shape[2]});
    }
    if (status.ok()) status = Norm({.weight = weight, .bias = {}}, heads, {}, heads, stream);
  }
  return status;
}

absl::Status ForwardPass::NormFullWidth(int64_t index, const Projections& projected,
                                        kernels::Stream& stream) {
  const AttentionWeights& weights = weights_.layers[index].attention;
  const v1::Attention& attention = Kind(index).attention();
  const v1::LayerShare& held = Held(index);
  const int64_t tokens = projected.q.rows(), d = attention.head_dim();
  const TensorView squares = Matrix(buffers_.block_out, tokens, 2);
  const auto column = [&](int64_t at) {
    TensorView view(squares.data + at * SizeInBytes(squares.dtype), squares.dtype, {tokens, 1});
    view.row_stride = 2;
    return view;
  };
  // Several ranks may have a kv head: it counts where the first of its query heads is.
  const int64_t group = attention.heads() / attention.kv_heads();
  const int64_t first_counted = (held.query_heads().begin() + group - 1) / group;
  const int64_t skipped = std::min(first_counted - held.kv_heads().begin(), projected.k.shape[1]);
  const TensorView counted =
      Flat(Heads(Flat(projected.k), skipped * d, projected.k.shape[1] - skipped, d));
  absl::Status status = ops_.SumSquares({.out = column(0), .in = Flat(projected.q)}, stream);
  if (status.ok()) status = ops_.SumSquares({.out = column(1), .in = counted}, stream);
  if (status.ok()) status = Sum(squares, stream);
  const auto normalise = [&](const TensorView& heads, const TensorView& weight, int64_t at,
                             int64_t all_heads) {
    const TensorView rows = Flat(heads);
    return ops_.RmsNorm({.out = rows,
                         .in = rows,
                         .weight = weight,
                         .epsilon = static_cast<float>(model_.norm_epsilon()),
                         .squares = column(at),
                         .whole_width = all_heads * d},
                        stream);
  };
  if (status.ok()) status = normalise(projected.q, weights.q_norm, 0, attention.heads());
  if (status.ok()) status = normalise(projected.k, weights.k_norm, 1, attention.kv_heads());
  return status;
}

absl::Status ForwardPass::Attend(int64_t index, const StepInputs& step, kernels::Stream& stream,
                                 TensorView* attended) {
  const v1::Attention& attention = Kind(index).attention();
  if (attention.has_latent()) return AttendLatent(index, step, stream, attended);
  const int64_t d = attention.head_dim();
  const double scale =
      attention.scale() != 0 ? attention.scale() : 1.0 / std::sqrt(static_cast<double>(d));
  const Projections projected = ProjectionsOf(index, step.token_ids.rows());
  const TensorView& q = projected.q;
  const bool gated = attention.output_gate();
  *attended = InputsFor(weights_.layers[index].attention.output.matrix, buffers_.inner, q.rows(),
                        q.shape[1] * d);
  const absl::Status status =
      ops_.Attention({.out = gated ? projected.read : Heads(*attended, 0, q.shape[1], d),
                      .q = q,
                      .cache = kv_[index],
                      .query_starts = step.query_starts,
                      .context_lengths = step.context_lengths,
                      .block_tables = BlocksOf(index, step).tables,
                      .scale = static_cast<float>(scale),
                      .window = attention.window(),
                      .chunked = attention.chunked(),
                      .soft_cap = static_cast<float>(attention.soft_cap()),
                      .sinks = weights_.layers[index].attention.sinks,
                      .workspace = attention_workspace_,
                      .products = products_,
                      .rows_per_sequence = step.rows_per_sequence},
                     stream);
  if (!status.ok() || !gated) return status;
  return ops_.GatedActivate(
      {.out = *attended, .gate_up = projected.gated, .kind = kernels::Activation::kSigmoid},
      stream);
}

ForwardPass::LatentRows ForwardPass::LatentRowsOf(int64_t index, int64_t tokens) const {
  const LayerShape shape = ShapeOf(model_, Kind(index));
  const int64_t heads = PartOf(Held(index)).query_heads, d = shape.head_dim;
  const auto rows = [this](int64_t first, int64_t count, int64_t columns) {
    TensorView all = buffers_.wide;
    all.data += first * SizeInBytes(all.dtype);
    return Matrix(all, count, columns);
  };
  const int64_t behind = tokens * heads * d;
  const int64_t queries = behind + tokens * shape.latent_columns;
  return {.in = rows(behind, tokens, shape.latent_columns),
          .queries = rows(queries, tokens, heads * shape.query_dim),
          .absorbed = Heads(rows(0, tokens, heads * d), 0, heads, d),
          .read = Heads(rows(behind, tokens, heads * d), 0, heads, d)};
}

absl::Status ForwardPass::WriteLatent(int64_t index, const StepInputs& step, const TensorView& in,
                                      kernels::Stream& stream) {
  const AttentionWeights& weights = weights_.layers[index].attention;
  const LayerShape shape = ShapeOf(model_, Kind(index));
  const LatentRows rows = LatentRowsOf(index, in.rows());
  const auto columns = [&rows](int64_t first, int64_t width) {
    return Flat(Heads(rows.in, first, 1, width));
  };
  const auto norm = [&](const NormWeights& with, const TensorView& of) {
    const double epsilon = Kind(index).attention().latent().norm_epsilon();
    return ops_.RmsNorm(
        {.out = of, .in = of, .weight = with.weight, .epsilon = static_cast<float>(epsilon)},
        stream);
  };
  const int64_t rotated = shape.head_dim - shape.latent_rank;
  absl::Status status =
      Linear(weights.latent_in.matrix, weights.latent_in.bias, in, rows.in, stream);
  if (status.ok()) status = norm(weights.latent_norm, columns(rotated, shape.latent_rank));
  TensorView query_in = in;
  if (status.ok() && shape.latent_columns > shape.head_dim) {
    query_in = columns(shape.head_dim, shape.query_inputs);
    status = norm(weights.query_norm, query_in);
  }
  if (status.ok()) status = ProjectQueries(index, rows, query_in, stream);
  const TensorView key = Heads(rows.in, 0, 1, shape.head_dim);
  const int rope = ropes_.of_kind[KindIndexOf(model_, share_.layers().begin() + index)];
  if (status.ok()) {
    status = ops_.Rope(
        {.q = rows.absorbed, .k = key, .cos_sin = buffers_.ropes[rope].cos_sin.Rows(in.rows())},
        stream);
  }
  const v1::Attention& attention = Kind(index).attention();
  if (status.ok() && attention.query_gain() != 0) {
    status = ops_.Scale(GrowthOf(attention, step, rows.absorbed), stream);
  }
  if (!status.ok()) return status;
  return ops_.KvWrite(
      {.cache = kv_[index], .k = key, .v = key, .slots = BlocksOf(index, step).slots}, stream);
}

absl::Status ForwardPass::HeadLinear(absl::Span<const kernels::PackedWeights> heads,
                                     const TensorView& in, const TensorView& out,
                                     kernels::Stream& stream) {
  return ops_.HeadLinear({.out = out,
                          .in = in,
                          .heads = heads,
                          .workspace = buffers_.workspace,
                          .products = products_},
                         stream);
}

absl::Status ForwardPass::ProjectQueries(int64_t index, const LatentRows& rows,
                                         const TensorView& query_in, kernels::Stream& stream) {
  const AttentionWeights& weights = weights_.layers[index].attention;
  const LayerShape shape = ShapeOf(model_, Kind(index));
  const int64_t heads = rows.absorbed.shape[1], rotated = shape.head_dim - shape.latent_rank;
  const TensorView of_heads = Heads(rows.queries, 0, heads, shape.query_dim);
  absl::Status status =
      Linear(weights.query.matrix, weights.query.bias, query_in, rows.queries, stream);
  if (status.ok()) {
    status = ops_.GatherRows({.out = HeadRows(rows.absorbed, 0, rotated),
                              .in = HeadRows(of_heads, shape.plain_dim, rotated),
                              .rows = buffers_.own_numbers.Rows(query_in.rows() * heads)},
                             stream);
  }
  if (!status.ok()) return status;
  return HeadLinear(weights.head_queries, HeadRows(of_heads, 0, shape.plain_dim),
                    HeadRows(rows.absorbed, rotated, shape.latent_rank), stream);
}

absl::Status ForwardPass::AttendLatent(int64_t index, const StepInputs& step,
                                       kernels::Stream& stream, TensorView* attended) {
  const LayerShape shape = ShapeOf(model_, Kind(index));
  const int64_t tokens = step.token_ids.rows(), rotated = shape.head_dim - shape.latent_rank;
  const LatentRows rows = LatentRowsOf(index, tokens);
  const int64_t heads = rows.absorbed.shape[1];
  const absl::Status status =
      ops_.Attention({.out = rows.read,
                      .q = rows.absorbed,
                      .cache = kv_[index],
                      .query_starts = step.query_starts,
                      .context_lengths = step.context_lengths,
                      .block_tables = BlocksOf(index, step).tables,
                      .scale = static_cast<float>(Kind(index).attention().scale()),
                      .workspace = attention_workspace_,
                      .products = products_,
                      .rows_per_sequence = step.rows_per_sequence},
                     stream);
  if (!status.ok()) return status;
  *attended = Matrix(buffers_.inner, tokens, heads * shape.value_dim);
  // The rotated key's part of what was read is no value.
  return HeadLinear(
      weights_.layers[index].attention.head_values, HeadRows(rows.read, rotated, shape.latent_rank),
      HeadRows(Heads(*attended, 0, heads, shape.value_dim), 0, shape.value_dim), stream);
}

absl::Status ForwardPass::MixDelta(int64_t index, const StepInputs& step, const Residual& rows,
                                   kernels::Stream& stream, TensorView* mixed) {
  const DeltaWeights& weights = weights_.layers[index].delta;
  const v1::GatedDelta& delta = Kind(index).delta();
  const int64_t tokens = step.token_ids.rows(), key_heads = PartOf(Held(index)).key_groups;
  const int64_t heads = key_heads * (delta.value_heads() / delta.key_heads());
  const int64_t key_dim = delta.key_dim(), value_dim = delta.value_dim();
  const int64_t values = heads * value_dim, keys = key_heads * key_dim;
  TensorView in;
  absl::Status status =
      BeginBlock(weights_.layers[index].attention.norms, PendingBefore(index), rows, stream, &in);
  if (!status.ok()) return status;

  // z, v, q, k; the gates are read before anything else is left in `inner`.
  const TensorView all = Matrix(buffers_.wide, tokens, 2 * (values + keys));
  const TensorView v = Heads(all, values, heads, value_dim);
  const TensorView gates = Matrix(buffers_.inner, tokens, 2 * heads);
  const kernels::SeatArgs at = {step.query_starts, step.context_lengths, step.seats,
                                step.draft_rows};
  status = Linear(weights.in.matrix, {}, in, all, stream);
  if (status.ok()) status = Linear(weights.gates.matrix, {}, in, gates, stream);
  if (status.ok()) {
    TensorView taps = weights.conv;
    taps = TensorView(taps.data, taps.dtype, {values + 2 * keys, delta.conv_taps()});
    status = ops_.CausalConv({.rows = Flat(Heads(all, values, 1, values + 2 * keys)),
                              .weights = taps,
                              .states = states_[index].conv,
                              .at = at},
                             stream);
  }
  if (status.ok()) {
    status = ops_.GatedDelta({.values = v,
                              .queries = Heads(all, 2 * values, key_heads, key_dim),
                              .keys = Heads(all, 2 * values + keys, key_heads, key_dim),
                              .gates = gates,
                              .decay_log = weights.decay_log,
                              .decay_bias = weights.decay_bias,
                              .states = states_[index].delta,
                              .at = at},
                             stream);
  }
  if (status.ok()) status = Norm({.weight = weights.norm, .bias = {}}, v, {}, v, stream);
  if (!status.ok()) return status;
  *mixed = Matrix(buffers_.inner, tokens, values);
  return ops_.GatedActivate({.out = *mixed,
                             .gate_up = Flat(Heads(all, 0, 1, 2 * values)),
                             .kind = kernels::Activation::kSilu},
                            stream);
}

}  // namespace tessera::worker
