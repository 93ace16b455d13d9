#include "worker/model/model_forward.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <utility>

#include "proto/layers/layer_sizes.h"
#include "proto/layers/layers.h"
#include "third_party/absl/str_cat.h"
#include "worker/model/activation_kind.h"
#include "worker/model/rank_logits.h"

namespace tessera::worker {
namespace {

using kernels::SizeInBytes;
using kernels::TensorView;

// Softmax alone is decided by logits, whose order is that of the scores.
bool RoutesScores(const v1::Experts& experts) {
  return experts.score() != v1::EXPERT_SCORE_UNSPECIFIED || experts.correction_bias() ||
         experts.groups() > 1;
}

kernels::RouterScores ScoresOf(v1::ExpertScore score) {
  switch (score) {
    case v1::EXPERT_SCORE_SIGMOID: return kernels::RouterScores::kSigmoid;
    case v1::EXPERT_SCORE_SPARSE_MIXER: return kernels::RouterScores::kSparseMixer;
    default: return kernels::RouterScores::kSoftmax;
  }
}

double FactorOf(const v1::Experts& experts) {
  return experts.factor() == 0 ? 1.0 : experts.factor();
}

}  // namespace

absl::Status ForwardPass::Norm(const NormWeights& norm, const TensorView& in,
                               const TensorView& residual, const TensorView& out,
                               kernels::Stream& stream) {
  const kernels::NormArgs args = {.out = out,
                                  .in = in,
                                  .residual = residual,
                                  .weight = norm.weight,
                                  .bias = norm.bias,
                                  .epsilon = static_cast<float>(model_.norm_epsilon())};
  return model_.norm() == v1::NORM_KIND_RMS ? ops_.RmsNorm(args, stream)
                                            : ops_.LayerNorm(args, stream);
}

absl::Status ForwardPass::Linear(const kernels::PackedWeights& weights, const TensorView& bias,
                                 const TensorView& in, const TensorView& out,
                                 kernels::Stream& stream) {
  return ops_.Linear({.out = out,
                      .in = in,
                      .weights = &weights,
                      .bias = bias,
                      .workspace = buffers_.workspace,
                      .products = products_},
                     stream);
}

TensorView ForwardPass::InputsFor(const kernels::PackedWeights& weights, const TensorView& buffer,
                                  int64_t rows, int64_t columns) const {
  return TensorView(buffer.data, ops_.LinearInputs(weights.spec, rows, products_), {rows, columns});
}

absl::Status ForwardPass::JoinRanks(kernels::Group* group, kernels::Stream& stream) {
  group_ = group;
  vocabulary_parts_.clear();
  if (group == nullptr || !share_.holds_head()) return absl::OkStatus();
  // In the device's memory, as all that ranks exchange.
  const auto own = static_cast<int32_t>(weights_.head.matrix.spec.out_features);
  std::vector<int32_t> parts(group->size());
  TensorView on_device = buffers_.rank_sizes.Rows(group->size());
  on_device.data += SizeInBytes(on_device.dtype);
  absl::Status status = stream.CopyToDevice(buffers_.rank_sizes.data, &own, sizeof own);
  if (status.ok()) status = group->AllGather(buffers_.rank_sizes.Rows(1), on_device, stream);
  if (status.ok()) {
    status = stream.CopyToHost(parts.data(), on_device.data,
                               static_cast<int64_t>(parts.size() * sizeof(int32_t)));
  }
  if (status.ok() && buffers_.row_numbers.data != nullptr) {
    std::vector<int32_t> numbers(buffers_.row_numbers.rows());
    std::iota(numbers.begin(), numbers.end(), 0);
    status = stream.CopyToDevice(buffers_.row_numbers.data, numbers.data(),
                                 static_cast<int64_t>(numbers.size() * sizeof(int32_t)));
    status.Update(stream.Synchronize());
  }
  status.Update(stream.Synchronize());
  vocabulary_parts_.assign(parts.begin(), parts.end());
  if (!status.ok()) return status;
  const int64_t all = std::accumulate(parts.begin(), parts.end(), int64_t{0});
  if (all == model_.vocabulary()) return absl::OkStatus();
  return absl::FailedPreconditionError(StrCat("the stage's ranks have heads for ", all,
                                              " ids of the vocabulary's ", model_.vocabulary()));
}

absl::Status ForwardPass::Scale(const TensorView& rows, double factor, kernels::Stream& stream) {
  if (factor == 0 || factor == 1) return absl::OkStatus();
  return ops_.Scale({.rows = rows, .factor = static_cast<float>(factor)}, stream);
}

absl::Status ForwardPass::Sum(const TensorView& rows, kernels::Stream& stream) {
  return group_ == nullptr ? absl::OkStatus() : group_->AllReduceSum(rows, stream);
}

absl::Status ForwardPass::FollowRank0(const TensorView& rows, kernels::Stream& stream) {
  return group_ == nullptr ? absl::OkStatus() : group_->Broadcast(rows, 0, stream);
}

absl::Status ForwardPass::Embed(const StepInputs& step, kernels::Stream& stream) {
  const int64_t tokens = step.token_ids.rows();
  const TensorView hidden = buffers_.hidden.Rows(tokens);
  const bool projected = weights_.project_in.matrix.data != nullptr;
  const TensorView embedded = projected ? buffers_.narrow.Rows(tokens) : hidden;
  absl::Status status =
      ops_.Embedding({.out = embedded,
                      .table = weights_.embedding,
                      .packed = weights_.embedding.empty() ? &weights_.head.matrix : nullptr,
                      .ids = step.token_ids,
                      .vocabulary_begin = share_.vocabulary_rows().begin()},
                     stream);
  if (status.ok()) status = Sum(embedded, stream);
  if (status.ok()) status = Scale(embedded, model_.embedding_scale(), stream);
  if (status.ok() && projected) {
    status = Linear(weights_.project_in.matrix, {}, embedded, hidden, stream);
  }
  if (status.ok() && model_.learned_positions()) {
    status = ops_.Embedding({.out = hidden,
                             .table = weights_.positions,
                             .ids = step.positions,
                             .vocabulary_begin = -model_.learned_position_offset(),
                             .accumulate = true},
                            stream);
  }
  return status.ok() && model_.per_layer_width() > 0 ? per_layer_.Prepare(step, group_, stream)
                                                     : status;
}

absl::Status ForwardPass::PrepareRotation(const StepInputs& step, kernels::Stream& stream) {
  absl::Status status;
  for (size_t i = 0; i < ropes_.ropes.size() && status.ok(); ++i) {
    const v1::Rope& rope = ropes_.ropes[i];
    kernels::RopeTableArgs args = {.cos_sin = buffers_.ropes[i].cos_sin.Rows(step.token_ids.rows()),
                                   .positions = step.positions,
                                   .inverse_frequencies = buffers_.ropes[i].frequencies,
                                   .lengths = {}};
    if (rope.attention_factor() != 0) {
      args.attention_factor = static_cast<float>(rope.attention_factor());
    }
    if (rope.scaling() == v1::ROPE_SCALING_KIND_DYNAMIC) {
      args.dynamic_factor = static_cast<float>(rope.factor());
      args.theta = static_cast<float>(rope.theta());
      args.original_max_position = rope.original_max_positions();
      args.lengths = step.rope_lengths;
    }
    status = ops_.RopeTable(args, stream);
  }
  return status;
}

ForwardPass::Residual ForwardPass::RowsOf(const TensorView& hidden, int64_t rows) const {
  return {.hidden = hidden.Rows(rows),
          .normed = buffers_.normed.Rows(rows),
          .block_out = buffers_.block_out.Rows(rows)};
}

bool ForwardPass::LeavesPending(const BlockNorms& norms) {
  return norms.after_residual.weight.empty();
}

bool ForwardPass::PendingBefore(int64_t index) const {
  return index > 0 && LeavesPending(weights_.layers[index - 1].ffn.norms) && !EndsWhole(index - 1);
}

bool ForwardPass::EndsWhole(int64_t index) const {
  return Kind(index).output_scale() || model_.per_layer_width() > 0;
}

absl::Status ForwardPass::BeginBlock(const BlockNorms& norms, bool pending, const Residual& rows,
                                     kernels::Stream& stream, TensorView* in) {
  *in = norms.before.weight.empty() ? rows.hidden : rows.normed;
  if (norms.before.weight.empty()) {
    return pending ? ops_.Add({.out = rows.hidden, .in = rows.block_out}, stream)
                   : absl::OkStatus();
  }
  if (!pending) return Norm(norms.before, rows.hidden, {}, rows.normed, stream);
  return Norm(norms.before, rows.block_out, rows.hidden, rows.normed, stream);
}

absl::Status ForwardPass::EndBlock(const BlockNorms& norms, const Residual& rows,
                                   kernels::Stream& stream) {
  const absl::Status status = Sum(rows.block_out, stream);
  return status.ok() ? FinishBlock(norms, rows, stream) : status;
}

absl::Status ForwardPass::FinishLayer(int64_t index, const TensorView& numbers,
                                      const Residual& rows, kernels::Stream& stream) {
  if (!EndsWhole(index)) return absl::OkStatus();
  absl::Status status;
  if (LeavesPending(weights_.layers[index].ffn.norms)) {
    status = ops_.Add({.out = rows.hidden, .in = rows.block_out}, stream);
  }
  if (status.ok() && model_.per_layer_width() > 0) {
    status = per_layer_.Add(index, ActivationOf(Kind(index).ffn().activation()),
                            {.hidden = rows.hidden, .scratch = rows.block_out, .numbers = numbers},
                            group_, stream);
  }
  return status.ok() ? Scale(rows.hidden, weights_.layers[index].output_scale, stream) : status;
}

absl::Status ForwardPass::FinishBlock(const BlockNorms& norms, const Residual& rows,
                                      kernels::Stream& stream) {
  absl::Status status;
  // Ranks whose kernels round a norm differently would drift apart from layer to layer, so all
  // follow one. (Before a norm, hidden only adds what all ranks have the same bits of.)
  if (!norms.after.weight.empty()) {
    status = Norm(norms.after, rows.block_out, {}, rows.block_out, stream);
    if (status.ok()) status = FollowRank0(rows.block_out, stream);
  }
  if (status.ok()) status = Scale(rows.block_out, model_.residual_scale(), stream);
  if (!status.ok() || LeavesPending(norms)) return status;
  status = ops_.Add({.out = rows.hidden, .in = rows.block_out}, stream);
  if (status.ok()) status = Norm(norms.after_residual, rows.hidden, {}, rows.hidden, stream);
  return status.ok() ? FollowRank0(rows.hidden, stream) : status;
}

absl::Status ForwardPass::BeginParallelBlock(const BlockNorms& norms, const Residual& rows,
                                             kernels::Stream& stream) {
  absl::Status status = Norm(norms.before, rows.hidden, {}, rows.normed, stream);
  return status.ok() ? ops_.Add({.out = rows.hidden, .in = rows.block_out}, stream) : status;
}

const v1::LayerKind& ForwardPass::Kind(int64_t index) const {
  return KindOf(model_, share_.layers().begin() + index);
}

const v1::LayerShare& ForwardPass::Held(int64_t index) const {
  return ShareOf(model_, share_, share_.layers().begin() + index);
}

absl::Status ForwardPass::Layer(int64_t index, const StepInputs& step, kernels::Stream& stream) {
  const LayerWeights& layer = weights_.layers[index];
  const int64_t tokens = step.token_ids.rows();
  const bool last = share_.holds_head() && index + 1 == std::ssize(weights_.layers) && !keeps_rows_;
  Residual rows = RowsOf(buffers_.hidden, tokens);
  TensorView attended;
  const bool attends = !Kind(index).has_delta();
  absl::Status status =
      attends ? WriteKv(index, step, rows, stream) : MixDelta(index, step, rows, stream, &attended);
  if (status.ok()) status = TellKvListener(index, step, stream);
  if (!status.ok() || (last && step.logit_rows.rows() == 0)) return status;
  if (attends) status = Attend(index, step, stream, &attended);
  if (status.ok() && last) status = KeepLogitRows(step, stream, &rows, &attended);
  if (status.ok()) {
    const LinearWeights& output = attends ? layer.attention.output : layer.delta.output;
    status = Linear(output.matrix, output.bias, attended, rows.block_out, stream);
  }
  if (status.ok()) status = EndBlock(layer.attention.norms, rows, stream);
  if (!status.ok()) return status;

  // A router reads rows that nobody rounded.
  const LinearWeights& up = layer.ffn.up;
  if (!layer.ffn.has_experts() && !Kind(index).ffn().normed_apart()) {
    rows.normed = InputsFor(up.matrix, buffers_.normed, rows.normed.rows(), model_.hidden());
  }
  TensorView in = rows.normed;
  if (Kind(index).parallel()) {
    status = BeginParallelBlock(layer.ffn.norms, rows, stream);
  } else {
    status = BeginBlock(layer.ffn.norms, LeavesPending(layer.attention.norms), rows, stream, &in);
  }
  if (!status.ok()) return status;
  if (Kind(index).ffn().normed_apart()) {
    status = ApartFfn(index, in, rows, stream);
    if (status.ok()) status = FinishBlock(layer.ffn.norms, rows, stream);
  } else {
    const bool dense = layer.ffn.has_dense();
    if (dense) status = DenseFfn(index, in, stream);
    if (status.ok() && layer.ffn.has_experts()) {
      const TensorView shared = dense ? rows.block_out : TensorView();
      status = ExpertFfn(
          index, {.in = in, .router_in = in, .out = rows.block_out, .shared = shared}, stream);
    }
    if (status.ok()) status = EndBlock(layer.ffn.norms, rows, stream);
  }
  if (!status.ok()) return status;
  const bool numbered = !last && !buffers_.own_numbers.empty();
  return FinishLayer(index, numbered ? buffers_.own_numbers.Rows(tokens) : step.logit_rows, rows,
                     stream);
}

absl::Status ForwardPass::ApartFfn(int64_t index, const TensorView& in, const Residual& rows,
                                   kernels::Stream& stream) {
  const FfnWeights& ffn = weights_.layers[index].ffn;
  const TensorView apart = buffers_.apart.Rows(in.rows());
  absl::Status status = DenseFfn(index, in, stream);
  if (status.ok()) status = Sum(rows.block_out, stream);
  if (status.ok()) status = Norm(ffn.dense_after, rows.block_out, {}, rows.block_out, stream);
  if (status.ok()) status = Norm(ffn.experts_before, rows.hidden, {}, rows.normed, stream);
  if (status.ok()) status = Norm(ffn.router_norm, rows.hidden, {}, apart, stream);
  // The router's input has been read when experts write there.
  if (status.ok()) {
    status = ExpertFfn(index, {.in = rows.normed, .router_in = apart, .out = apart, .shared = {}},
                       stream);
  }
  if (status.ok()) status = Sum(apart, stream);
  if (status.ok()) status = Norm(ffn.experts_after, apart, {}, apart, stream);
  return status.ok() ? ops_.Add({.out = rows.block_out, .in = apart}, stream) : status;
}

absl::Status ForwardPass::TellKvListener(int64_t index, const StepInputs& step,
                                         kernels::Stream& stream) {
  struct Written {
    KvWriteListener* listener;
    int64_t index;
  };
  if (step.kv_listener == nullptr) return absl::OkStatus();
  return kernels::EnqueueHost<Written>(stream,
                                       [](const Written& written) {
                                         written.listener->OnLayerWritten(written.index);
                                         return absl::OkStatus();
                                       },
                                       {step.kv_listener, index});
}

absl::Status ForwardPass::KeepLogitRows(const StepInputs& step, kernels::Stream& stream,
                                        Residual* rows, TensorView* attended) {
  const Residual kept = RowsOf(buffers_.logit_hidden, step.logit_rows.rows());
  // Queries, keys and values, which stood there, have been read.
  const TensorView kept_attended(buffers_.wide.data, attended->dtype,
                                 {step.logit_rows.rows(), attended->shape[1]});
  absl::Status status =
      ops_.GatherRows({.out = kept.hidden, .in = rows->hidden, .rows = step.logit_rows}, stream);
  if (status.ok()) {
    status =
        ops_.GatherRows({.out = kept_attended, .in = *attended, .rows = step.logit_rows}, stream);
  }
  *rows = kept;
  *attended = kept_attended;
  return status;
}

absl::Status ForwardPass::Activate(const v1::Ffn& ffn, const TensorView& wide,
                                   const TensorView& inner, kernels::Stream& stream) {
  if (ffn.gate_limit() != 0) {
    return ops_.ClampedGate({.out = inner,
                             .gate_up = wide,
                             .limit = static_cast<float>(ffn.gate_limit()),
                             .alpha = static_cast<float>(ffn.gate_alpha())},
                            stream);
  }
  const kernels::Activation kind = ActivationOf(ffn.activation());
  if (ffn.gated()) {
    return ops_.GatedActivate({.out = inner, .gate_up = wide, .kind = kind}, stream);
  }
  return ops_.Activate({.out = inner, .in = wide, .kind = kind}, stream);
}

absl::Status ForwardPass::DenseFfn(int64_t index, const TensorView& in, kernels::Stream& stream) {
  const FfnWeights& ffn = weights_.layers[index].ffn;
  const int64_t tokens = in.rows();
  const TensorView wide = Matrix(buffers_.wide, tokens, ffn.up.matrix.spec.out_features);
  const TensorView inner =
      InputsFor(ffn.down.matrix, buffers_.inner, tokens, ffn.down.matrix.spec.in_features);
  const v1::Ffn& kind = Kind(index).ffn();
  const bool silu_gate = kind.gated() && kind.gate_limit() == 0 &&
                         ActivationOf(kind.activation()) == kernels::Activation::kSilu;
  const bool exact = in.dtype == kernels::DType::kF32 && inner.dtype == kernels::DType::kF32;
  const bool fuses =
      silu_gate && exact && ops_.FusesSiluGate(ffn.up.matrix.spec, tokens, products_);
  absl::Status status = ops_.Linear({.out = fuses ? inner : wide,
                                     .in = in,
                                     .weights = &ffn.up.matrix,
                                     .bias = ffn.up.bias,
                                     .workspace = buffers_.workspace,
                                     .products = products_,
                                     .silu_gate = fuses},
                                    stream);
  if (status.ok() && !fuses) status = Activate(kind, wide, inner, stream);
  if (!status.ok()) return status;
  return Linear(ffn.down.matrix, ffn.down.bias, inner, buffers_.block_out.Rows(tokens), stream);
}

ForwardPass::Routing ForwardPass::RoutingOf(const v1::Experts& experts, int64_t tokens) const {
  const int64_t per_token = experts.per_token();
  return {.weights = Matrix(buffers_.expert_weights, tokens, per_token),
          .slots = Matrix(buffers_.expert_slots, tokens, per_token),
          .source_rows = buffers_.source_rows.Rows(tokens * per_token),
          .offsets = buffers_.expert_offsets.Rows(experts.count() + 1)};
}

absl::Status ForwardPass::Route(int64_t index, const TensorView& in, const Routing& routing,
                                kernels::Stream& stream) {
  const FfnWeights& ffn = weights_.layers[index].ffn;
  const v1::Experts& experts = Kind(index).ffn().experts();
  const TensorView logits = Matrix(buffers_.router_logits, in.rows(), experts.count());
  absl::Status status = Linear(ffn.router, ffn.router_bias, in, logits, stream);
  if (status.ok() && Kind(index).ffn().normed_apart()) {
    status = Scale(logits, 1 / std::sqrt(static_cast<double>(model_.hidden())), stream);
  }
  const bool scored = RoutesScores(experts);
  if (status.ok() && scored) {
    status = ops_.MoeScores({.scores = logits,
                             .kind = ScoresOf(experts.score()),
                             .jitter = static_cast<float>(experts.jitter())},
                            stream);
  }
  // Ranks with unlike kernels would now and then choose other experts.
  if (status.ok()) status = FollowRank0(logits, stream);
  if (!status.ok()) return status;
  return ops_.MoeRoute({.logits = logits,
                        .weights = routing.weights,
                        .slots = routing.slots,
                        .source_rows = routing.source_rows,
                        .expert_offsets = routing.offsets,
                        .renormalise = experts.renormalise(),
                        .scored = scored,
                        .choice_bias = ffn.router_correction,
                        .groups = std::max(1, experts.groups()),
                        .groups_per_row = std::max(1, experts.groups_per_token()),
                        .groups_by_best = experts.groups_by_best(),
                        .factor = static_cast<float>(FactorOf(experts)),
                        .expert_scales = ffn.expert_scales},
                       stream);
}

absl::Status ForwardPass::AddExpertBias(const TensorView& biases, const TensorView& held,
                                        const TensorView& out, kernels::Stream& stream) {
  if (biases.empty()) return absl::OkStatus();
  return ops_.ExpertBias(
      {.out = out, .biases = Matrix(biases, held.rows() - 1, out.shape[1]), .expert_offsets = held},
      stream);
}

absl::Status ForwardPass::ScaleExpertInput(const Routing& routing, TensorView* in,
                                           kernels::Stream& stream) {
  // Outputs of experts are not there yet. A row is its own slot.
  const TensorView scaled = buffers_.expert_out.Rows(in->rows());
  const TensorView input = std::exchange(*in, scaled);
  return ops_.MoeCombine({.out = scaled,
                          .in = input,
                          .weights = routing.weights,
                          .slots = Matrix(buffers_.own_numbers, in->rows(), 1)},
                         stream);
}

absl::Status ForwardPass::ExpertFfn(int64_t index, const ExpertRows& rows,
                                    kernels::Stream& stream) {
  const FfnWeights& ffn = weights_.layers[index].ffn;
  const v1::Ffn& kind = Kind(index).ffn();
  TensorView in = rows.in;
  Routing routing = RoutingOf(kind.experts(), in.rows());
  absl::Status status = Route(index, rows.router_in, routing, stream);
  if (status.ok() && kind.experts().scales_input()) {
    status = ScaleExpertInput(routing, &in, stream);
    routing.weights = Matrix(buffers_.ones, in.rows(), 1);
  }
  // Computes the experts that this rank has; ranks add up theirs.
  const v1::Range& experts = Held(index).experts();
  TensorView held = routing.offsets.Rows(experts.end() - experts.begin() + 1);
  held.data += experts.begin() * SizeInBytes(held.dtype);
  const int64_t slots = routing.source_rows.rows();
  const TensorView wide = Matrix(buffers_.wide, slots, ffn.expert_up[0].spec.out_features);
  const TensorView inner = Matrix(buffers_.inner, slots, ffn.expert_down[0].spec.in_features);
  const TensorView out = buffers_.expert_out.Rows(slots);
  if (status.ok()) {
    status = ops_.GroupedLinear({.out = wide,
                                 .in = in,
                                 .experts = ffn.expert_up,
                                 .source_rows = routing.source_rows,
                                 .expert_offsets = held,
                                 .workspace = buffers_.workspace,
                                 .products = products_},
                                stream);
  }
  if (status.ok()) status = AddExpertBias(ffn.expert_up_bias, held, wide, stream);
  if (status.ok()) status = Activate(kind, wide, inner, stream);
  if (status.ok()) {
    status = ops_.GroupedLinear({.out = out,
                                 .in = inner,
                                 .experts = ffn.expert_down,
                                 .source_rows = {},
                                 .expert_offsets = held,
                                 .workspace = buffers_.workspace,
                                 .products = products_},
                                stream);
  }
  if (status.ok()) status = AddExpertBias(ffn.expert_down_bias, held, out, stream);
  TensorView shared_gate;
  if (status.ok() && kind.shared_gate()) {
    shared_gate = buffers_.shared_gate.Rows(in.rows());
    status = Linear(ffn.shared_gate, {}, rows.in, shared_gate, stream);
  }
  if (!status.ok()) return status;
  return ops_.MoeCombine({.out = rows.out,
                          .in = out,
                          .weights = routing.weights,
                          .slots = routing.slots,
                          .held = held,
                          .shared = rows.shared,
                          .shared_gate = shared_gate},
                         stream);
}

absl::Status ForwardPass::EndStage(const StepInputs& step, kernels::Stream& stream) {
  if (!PendingBefore(std::ssize(weights_.layers))) return absl::OkStatus();
  const Residual rows = RowsOf(buffers_.hidden, step.token_ids.rows());
  return ops_.Add({.out = rows.hidden, .in = rows.block_out}, stream);
}

absl::Status ForwardPass::Head(const StepInputs& step, kernels::Stream& stream) {
  const int64_t count = step.logit_rows.rows();
  if (count == 0 && !keeps_rows_) return absl::OkStatus();
  const Residual rows = keeps_rows_ ? RowsOf(buffers_.hidden, step.token_ids.rows())
                                    : RowsOf(buffers_.logit_hidden, count);
  TensorView out;
  const BlockNorms final_norm = {.before = weights_.final_norm, .after = {}, .after_residual = {}};
  absl::Status status =
      BeginBlock(final_norm, PendingBefore(std::ssize(weights_.layers)), rows, stream, &out);
  if (keeps_rows_ && (!status.ok() || count == 0)) return status;
  if (keeps_rows_) {
    const TensorView kept = buffers_.logit_hidden.Rows(count);
    status = ops_.GatherRows({.out = kept, .in = out, .rows = step.logit_rows}, stream);
    out = kept;
  }
  if (status.ok() && weights_.project_out.matrix.data != nullptr) {
    const TensorView narrow = buffers_.logit_narrow.Rows(count);
    status = Linear(weights_.project_out.matrix, {}, out, narrow, stream);
    out = narrow;
  }
  if (!status.ok()) return status;
  const bool whole = buffers_.logit_part.data == nullptr;
  const TensorView logits = (whole ? buffers_.logits : buffers_.logit_part).Rows(count);
  status = Linear(weights_.head.matrix, weights_.head.bias, out, logits, stream);
  if (status.ok()) status = FinishLogits(logits, stream);
  if (!status.ok() || whole) return status;
  return GatherLogits(buffers_, vocabulary_parts_, count, ops_, *group_, stream);
}

TensorView ForwardPass::FinalRows(int64_t rows) const {
  if (weights_.project_out.matrix.data != nullptr) return buffers_.logit_narrow.Rows(rows);
  const Residual residual = RowsOf(buffers_.logit_hidden, rows);
  if (keeps_rows_) return residual.hidden;
  return weights_.final_norm.weight.empty() ? residual.hidden : residual.normed;
}

TensorView ForwardPass::NormedRows(int64_t rows) const {
  return RowsOf(buffers_.hidden, rows).normed;
}

absl::Status ForwardPass::FuseDrafts(const StepInputs& step, const TensorView& before,
                                     const TensorView& fused, kernels::Stream& stream) {
  const int64_t rows = step.token_ids.rows(), hidden = model_.hidden();
  absl::Status status = Embed(step, stream);
  TensorView in = Matrix(fused, rows, 2 * hidden), half = Matrix(fused, rows, hidden);
  half.row_stride = 2 * hidden;
  if (status.ok()) {
    status = Norm(weights_.draft_embedding_norm, buffers_.hidden.Rows(rows), {}, half, stream);
  }
  half.data += hidden * SizeInBytes(half.dtype);
  if (status.ok()) status = Norm(weights_.draft_hidden_norm, before.Rows(rows), {}, half, stream);
  if (!status.ok()) return status;
  return Linear(weights_.draft_fuse.matrix, {}, in, buffers_.hidden.Rows(rows), stream);
}

absl::Status ForwardPass::FinishLogits(const TensorView& logits, kernels::Stream& stream) {
  if (model_.logits_soft_cap() == 0) return Scale(logits, model_.logits_scale(), stream);
  const double scale = model_.logits_scale() == 0 ? 1 : model_.logits_scale();
  return ops_.Scale({.rows = logits,
                     .factor = static_cast<float>(scale),
                     .soft_cap = static_cast<float>(model_.logits_soft_cap())},
                    stream);
}

}  // namespace tessera::worker
