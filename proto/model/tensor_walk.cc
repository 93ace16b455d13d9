#include "proto/model/tensor_walk.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "proto/layers/layers.h"
#include "third_party/absl/str_cat.h"

namespace tessera {
namespace {

// [outputs, inputs], all of it the model's.
TensorPart Matrix(std::string name, int64_t rows, int64_t columns) {
  return {.name = std::move(name), .shape = {rows, columns}, .rows = rows};
}

std::string DraftHeadBase(const v1::Model& model, const TensorNames& names, std::string_view root) {
  if (!names.draft_head.base.empty()) return std::string(names.draft_head.base);
  return StrCat(root, names.layers, ".", model.draft_head().layer(), ".");
}

class Walk {
 public:
  Walk(const v1::Model& model, const TensorNames& names, std::string_view root,
       const std::function<absl::Status(const ModelTensor&)>& visit)
      : model_(model), names_(names), root_(root), visit_(visit) {}

  // The model is the head's (DraftHeadModel).
  absl::Status RunDraftHead() {
    const DraftHeadNames& names = names_.draft_head;
    if (names.fuse.empty()) {
      return absl::InvalidArgumentError(
          "the head for further tokens (multi-token prediction) cannot be read from files of this "
          "form");
    }
    const std::string base = DraftHeadBase(model_, names_, root_);
    VisitEmbedding();
    const int64_t hidden = model_.hidden();
    VisitNorm(TensorRole::kDraftEmbeddingNorm, StrCat(base, names.embedding_norm), hidden);
    VisitNorm(TensorRole::kDraftHiddenNorm, StrCat(base, names.hidden_norm), hidden);
    VisitMatrix(TensorRole::kDraftFuse, {Matrix(StrCat(base, names.fuse), hidden, 2 * hidden)});
    VisitLayer(0, StrCat(base, names.layer));
    VisitNorm(TensorRole::kFinalNorm, StrCat(base, names.final_norm), hidden);
    return status_;
  }

  absl::Status Run() {
    VisitEmbedding();
    for (int64_t i = 0; i < LayerCount(model_) && status_.ok(); ++i) {
      VisitLayer(i, StrCat(root_, names_.layers, ".", i, "."));
    }
    VisitHead();
    return status_;
  }

 private:
  void Visit(const ModelTensor& tensor) {
    if (status_.ok()) status_ = visit_(tensor);
  }
  // The name in the layer that is being walked over.
  std::string InLayer(std::string_view name) const { return StrCat(prefix_, name); }
  void VisitNorm(TensorRole role, std::string name, int64_t width) {
    Visit({.role = role,
           .layer = layer_,
           .parts = {{.name = std::move(name), .shape = {width}, .rows = width}},
           .bias = model_.norm() == v1::NORM_KIND_LAYER,
           .added = names_.norm_offset});
  }

  void VisitMatrix(TensorRole role, std::vector<TensorPart> parts, bool bias = false,
                   int64_t expert = -1) {
    Visit(
        {.role = role, .layer = layer_, .expert = expert, .parts = std::move(parts), .bias = bias});
  }

  void VisitEmbedding() {
    const int64_t width = model_.embedding_width(), hidden = model_.hidden();
    TensorPart table = Matrix(StrCat(root_, names_.embedding), model_.vocabulary(), width);
    table.cut = TensorCut::kVocabulary;
    VisitMatrix(TensorRole::kEmbedding, {table});
    if (model_.learned_positions()) {
      const int64_t rows = model_.max_positions() + model_.learned_position_offset();
      VisitMatrix(TensorRole::kPositions, {Matrix(StrCat(root_, names_.positions), rows, hidden)});
    }
    if (model_.per_layer_width() > 0) VisitPerLayerTables();
    if (width == hidden) return;
    VisitMatrix(TensorRole::kProjectIn, {Matrix(StrCat(root_, names_.project_in), hidden, width)});
  }

  void VisitPerLayerTables() {
    const int64_t width = model_.per_layer_width(), columns = LayerCount(model_) * width;
    TensorPart table = Matrix(StrCat(root_, names_.per_layer_table), model_.vocabulary(), columns);
    table.cut = TensorCut::kVocabulary;
    VisitMatrix(TensorRole::kPerLayerTable, {table});
    VisitMatrix(TensorRole::kPerLayerContext,
                {Matrix(StrCat(root_, names_.per_layer_context), columns, model_.hidden())});
    VisitNorm(TensorRole::kPerLayerNorm, StrCat(root_, names_.per_layer_norm), width);
  }

  void VisitPerLayerBlock() {
    const int64_t width = model_.per_layer_width(), hidden = model_.hidden();
    VisitMatrix(TensorRole::kPerLayerGate, {Matrix(InLayer(names_.per_layer_gate), width, hidden)});
    VisitMatrix(TensorRole::kPerLayerOutput,
                {Matrix(InLayer(names_.per_layer_output), hidden, width)});
    VisitNorm(TensorRole::kPerLayerAfter, InLayer(names_.per_layer_after_norm), hidden);
  }

  void VisitLayer(int64_t index, std::string prefix) {
    layer_ = index;
    prefix_ = std::move(prefix);
    const v1::LayerKind& kind = KindOf(model_, index);
    VisitNorms(kind.norm_place(), names_.attention_norm, names_.attention_after_norm,
               {TensorRole::kAttentionBefore, TensorRole::kAttentionAfter,
                TensorRole::kAttentionAfterResidual});
    if (kind.has_delta()) {
      VisitDelta(kind.delta());
    } else {
      VisitAttention(kind.attention());
    }
    VisitNorms(kind.norm_place(), kind.shared_norm() ? names_.attention_norm : names_.ffn_norm,
               names_.ffn_after_norm,
               {TensorRole::kFfnBefore, TensorRole::kFfnAfter, TensorRole::kFfnAfterResidual});
    if (kind.ffn().has_experts()) VisitExperts(kind.ffn());
    if (kind.ffn().width() > 0) VisitDenseFfn(kind.ffn());
    if (kind.ffn().shared_gate()) {
      VisitMatrix(TensorRole::kSharedGate,
                  {Matrix(InLayer(names_.shared_gate), 1, model_.hidden())});
    }
    if (model_.per_layer_width() > 0) VisitPerLayerBlock();
    if (kind.output_scale()) VisitWhole(TensorRole::kOutputScale, names_.output_scale, 1);
    layer_ = -1;
  }

  // Numbers under a whole name, of which each worker reads all.
  void VisitWhole(TensorRole role, std::string_view name, int64_t size) {
    Visit({.role = role,
           .layer = layer_,
           .parts = {{.name = InLayer(name), .whole_name = true, .shape = {size}, .rows = size}}});
  }

  struct NormRoles {
    TensorRole before, after, after_residual;
  };
  void VisitNorms(v1::NormPlace place, std::string_view name, std::string_view after_name,
                  const NormRoles& roles) {
    const int64_t width = model_.hidden();
    if (place == v1::NORM_PLACE_AFTER_RESIDUAL) {
      return VisitNorm(roles.after_residual, InLayer(name), width);
    }
    if (place != v1::NORM_PLACE_AFTER) VisitNorm(roles.before, InLayer(name), width);
    if (place != v1::NORM_PLACE_AFTER && place != v1::NORM_PLACE_BOTH) return;
    VisitNorm(roles.after, InLayer(after_name), width);
  }

  // Rows of q, k and v: matrices of their own, or parts of one.
  std::vector<TensorPart> QkvParts(const v1::Attention& attention) const {
    const int64_t d = attention.head_dim(), q_rows = attention.heads() * d;
    const int64_t kv_rows = attention.kv_heads() * d, all = q_rows + 2 * kv_rows;
    const bool fused = !names_.qkv.empty(), by_head = names_.qkv_rows == QkvRows::kByHead;
    const bool gated = attention.output_gate(), apart = !names_.head_gate.empty();
    // From head to head, and from q to k to v.
    const int64_t stride = fused && by_head ? 3 * d : d;
    const int64_t k_first = by_head ? d : q_rows, v_first = by_head ? 2 * d : q_rows + kv_rows;
    const auto part = [&](std::string_view name, int64_t rows, TensorCut cut, int64_t first) {
      TensorPart made = Matrix(InLayer(fused ? names_.qkv : name), fused ? all : rows,
                               static_cast<int64_t>(model_.hidden()));
      made.rows = rows;
      made.order = {.first = fused ? first : 0, .head = d, .stride = stride};
      made.cut = cut;
      made.unit = d;
      return made;
    };
    std::vector<TensorPart> parts = {part(names_.q, q_rows, TensorCut::kQueryHeads, 0)};
    parts[0].order.paired = PairedRows(attention);
    if (!attention.borrows_kv()) {
      const std::string_view v = attention.values_are_keys() ? names_.k : names_.v;
      parts.push_back(part(names_.k, kv_rows, TensorCut::kKvHeads, k_first));
      parts.push_back(part(v, kv_rows, TensorCut::kKvHeads, v_first));
      parts[1].order.paired = PairedRows(attention);
    }
    if (gated && apart) parts.push_back(part(names_.head_gate, q_rows, TensorCut::kQueryHeads, 0));
    if (!gated || apart) return parts;
    // Behind the rows of a head's query stand those of its gate.
    parts[0].shape[0] = 2 * q_rows;
    parts[0].order.stride = 2 * d;
    parts.push_back(parts[0]);
    parts.back().order.first = d;
    parts.back().order.paired = 0;
    return parts;
  }

  // How many rows of each head of q and k are neighbouring pairs in the checkpoint.
  static int64_t PairedRows(const v1::Attention& attention) {
    return attention.rope().neighbour_pairs() ? attention.rope().rotary_dim() : 0;
  }

  void VisitLatent(const v1::Attention& attention) {
    const v1::LatentAttention& latent = attention.latent();
    const LatentNames& names = names_.latent;
    const int64_t hidden = model_.hidden(), heads = attention.heads();
    const int64_t rank = latent.rank(), query_rank = latent.query_rank();
    const int64_t rotary = attention.rope().rotary_dim();
    TensorPart kept = Matrix(InLayer(names.down), rank + rotary, hidden), key = kept;
    kept.rows = rank;
    key.rows = rotary;
    key.order = {.first = rank, .head = rotary, .stride = rotary, .paired = PairedRows(attention)};
    std::vector<TensorPart> in = {std::move(key), std::move(kept)};
    if (query_rank > 0) in.push_back(Matrix(InLayer(names.query_down), query_rank, hidden));
    VisitMatrix(TensorRole::kLatentIn, std::move(in));
    VisitNorm(TensorRole::kLatentNorm, InLayer(names.norm), rank);
    if (query_rank > 0) VisitNorm(TensorRole::kQueryNorm, InLayer(names.query_norm), query_rank);
    const auto of_heads = [&](std::string_view name, int64_t rows, int64_t inputs) {
      TensorPart part = Matrix(InLayer(name), heads * rows, inputs);
      part.cut = TensorCut::kQueryHeads;
      part.unit = rows;
      return part;
    };
    const int64_t of_query = latent.plain_dim() + rotary;
    TensorPart query = of_heads(query_rank > 0 ? names.query_up : names_.q, of_query,
                                query_rank > 0 ? query_rank : hidden);
    query.order = {.head = of_query,
                   .stride = of_query,
                   .paired = PairedRows(attention),
                   .unpaired = latent.plain_dim()};
    VisitMatrix(TensorRole::kQuery, {std::move(query)});
    if (names.up_keys.empty()) {
      VisitMatrix(TensorRole::kLatentHeads,
                  {of_heads(names.up, latent.plain_dim() + latent.value_dim(), rank)});
    } else {
      VisitMatrix(TensorRole::kLatentHeads, {of_heads(names.up_keys, rank, latent.plain_dim()),
                                             of_heads(names.up_values, latent.value_dim(), rank)});
    }
    TensorPart output = Matrix(InLayer(names_.o), hidden, heads * latent.value_dim());
    output.cut = TensorCut::kQueryHeads;
    output.unit = latent.value_dim();
    output.cuts_inputs = true;
    VisitMatrix(TensorRole::kAttentionOutput, {std::move(output)});
  }

  void VisitAttention(const v1::Attention& attention) {
    if (attention.has_latent()) return VisitLatent(attention);
    const int64_t d = attention.head_dim();
    VisitMatrix(TensorRole::kQkv, QkvParts(attention), attention.qkv_bias());
    if (attention.sinks()) {
      Visit({.role = TensorRole::kSinks,
             .layer = layer_,
             .parts = {{.name = InLayer(names_.sinks),
                        .whole_name = true,
                        .shape = {attention.heads()},
                        .rows = attention.heads(),
                        .cut = TensorCut::kQueryHeads}}});
    }
    if (attention.qk_norm() && !attention.qk_norm_without_weights()) {
      VisitHeadNorm(TensorRole::kQNorm, names_.q_norm, attention, attention.heads());
    }
    if (attention.qk_norm() && !attention.qk_norm_without_weights() && !attention.borrows_kv()) {
      VisitHeadNorm(TensorRole::kKNorm, names_.k_norm, attention, attention.kv_heads());
    }
    TensorPart output = Matrix(InLayer(names_.o), model_.hidden(), attention.heads() * d);
    output.cut = TensorCut::kQueryHeads;
    output.unit = d;
    output.cuts_inputs = true;
    VisitMatrix(TensorRole::kAttentionOutput, {output}, attention.output_bias());
  }

  // Rows of an in-projection, `rows` of each key group, in a matrix of `all` of them, at `first`:
  // from the matrix's first row, or, `by_group`, from the first row of each group.
  TensorPart DeltaPart(const v1::GatedDelta& delta, std::string_view name, int64_t rows,
                       int64_t all, int64_t first, bool by_group) const {
    const int64_t groups = delta.key_heads();
    TensorPart part = Matrix(InLayer(name), groups * all, model_.hidden());
    part.rows = groups * rows;
    part.order = {.first = first, .head = rows, .stride = by_group ? all : rows};
    part.cut = TensorCut::kKeyGroups;
    part.unit = rows;
    return part;
  }

  // Rows of value heads, `width` of each, where these stand by turns.
  void OrderValues(const v1::GatedDelta& delta, int64_t width, RowOrder* order) const {
    if (!names_.delta.values_by_turns) return;
    order->head = order->stride = width;
    order->groups = delta.key_heads();
    order->of_group = delta.value_heads() / delta.key_heads();
  }

  // In the order in which they are computed: z, v, q, k, then b, a.
  void VisitDeltaProjections(const v1::GatedDelta& delta) {
    const int64_t groups = delta.key_heads(), heads = delta.value_heads() / groups;
    const int64_t k = delta.key_dim(), v = heads * delta.value_dim();
    const DeltaNames& names = names_.delta;
    const auto part = [&](std::string_view name, int64_t rows, int64_t all, int64_t first) {
      return DeltaPart(delta, name, rows, all, first, !names.qkvz.empty());
    };
    if (!names.qkvz.empty()) {
      const int64_t all = 2 * (k + v);
      VisitMatrix(TensorRole::kDeltaIn,
                  {part(names.qkvz, v, all, 2 * k + v), part(names.qkvz, v, all, 2 * k),
                   part(names.qkvz, k, all, 0), part(names.qkvz, k, all, k)});
    } else {
      const int64_t all = 2 * k + v;
      std::vector<TensorPart> parts = {
          part(names.z, v, v, 0), part(names.qkv, v, all, 2 * groups * k),
          part(names.qkv, k, all, 0), part(names.qkv, k, all, groups * k)};
      OrderValues(delta, delta.value_dim(), &parts[0].order);
      OrderValues(delta, delta.value_dim(), &parts[1].order);
      VisitMatrix(TensorRole::kDeltaIn, std::move(parts));
    }
    const bool one = !names.ba.empty();
    const auto gate = [&](std::string_view name, int64_t first) {
      TensorPart made = DeltaPart(delta, one ? names.ba : name, heads, one ? 2 * heads : heads,
                                  one ? first : 0, one);
      if (!one) OrderValues(delta, 1, &made.order);
      return made;
    };
    VisitMatrix(TensorRole::kDeltaGates, {gate(names.b, 0), gate(names.a, heads)});
  }

  void VisitDelta(const v1::GatedDelta& delta) {
    const int64_t groups = delta.key_heads(), heads = delta.value_heads() / groups;
    const int64_t k = delta.key_dim(), v = heads * delta.value_dim(), taps = delta.conv_taps();
    const DeltaNames& names = names_.delta;
    VisitDeltaProjections(delta);
    const auto channels = [&](int64_t of_group, int64_t first) {
      return TensorPart{.name = InLayer(names.conv),
                        .shape = {groups * (2 * k + v), 1, taps},
                        .rows = groups * of_group * taps,
                        .order = {.first = first * taps},
                        .cut = TensorCut::kKeyGroups,
                        .unit = of_group * taps};
    };
    std::vector<TensorPart> conv = {channels(v, 2 * groups * k), channels(k, 0),
                                    channels(k, groups * k)};
    OrderValues(delta, delta.value_dim() * taps, &conv[0].order);
    Visit({.role = TensorRole::kDeltaConv, .layer = layer_, .parts = std::move(conv)});
    const auto of_heads = [&](TensorRole role, std::string_view name, bool is_rate) {
      TensorPart part = {.name = InLayer(name),
                         .whole_name = true,
                         .shape = {groups * heads},
                         .rows = groups * heads,
                         .cut = TensorCut::kKeyGroups,
                         .unit = heads};
      OrderValues(delta, 1, &part.order);
      Visit({.role = role, .layer = layer_, .parts = {std::move(part)}, .is_rate = is_rate});
    };
    of_heads(TensorRole::kDeltaDecayLog, names.decay_log, names.decay_is_rate);
    of_heads(TensorRole::kDeltaDecayBias, names.decay_bias, false);
    const int64_t width = delta.value_dim();
    Visit({.role = TensorRole::kDeltaNorm,
           .layer = layer_,
           .parts = {{.name = InLayer(names.norm), .shape = {width}, .rows = width}}});
    TensorPart output = Matrix(InLayer(names.output), model_.hidden(), groups * v);
    output.cut = TensorCut::kKeyGroups;
    output.unit = v;
    output.cuts_inputs = true;
    OrderValues(delta, delta.value_dim(), &output.inputs);
    VisitMatrix(TensorRole::kDeltaOutput, {output});
  }

  // Visits the norm of q or k, which has so many heads.
  void VisitHeadNorm(TensorRole role, std::string_view name, const v1::Attention& attention,
                     int64_t heads) {
    const int64_t d = attention.head_dim();
    TensorPart part = {.name = InLayer(name),
                       .shape = {d},
                       .rows = d,
                       .order = {.head = d, .stride = d, .paired = PairedRows(attention)}};
    if (attention.qk_norm_by_head() || attention.qk_norm_full_width()) {
      part.rows = heads * d;
      part.cut = role == TensorRole::kQNorm ? TensorCut::kQueryHeads : TensorCut::kKvHeads;
      part.unit = d;
      part.shape = {heads * d};
      if (attention.qk_norm_by_head()) part.shape = {heads, d};
    }
    if (attention.qk_norm_by_head() && names_.norm_of_each_head) {
      part.shape = {d};
      part.rows = d;
      std::vector<TensorPart> parts(static_cast<size_t>(heads), part);
      for (int64_t head = 0; head < heads; ++head) {
        parts[static_cast<size_t>(head)].name = StrCat(part.name, ".", head);
        parts[static_cast<size_t>(head)].number = head;
      }
      return Visit({.role = role, .layer = layer_, .parts = std::move(parts)});
    }
    Visit({.role = role, .layer = layer_, .parts = {part}, .added = names_.norm_offset});
  }

  void VisitDenseFfn(const v1::Ffn& ffn) {
    const int64_t width = ffn.width(), hidden = model_.hidden();
    // Beside experts it has their names, behind a prefix of its own.
    const bool shared = ffn.has_experts();
    const std::string prefix = shared ? StrCat(prefix_, names_.shared, ".") : prefix_;
    const auto part = [&](std::string_view name, int64_t all, int64_t first) {
      TensorPart made = Matrix(StrCat(prefix, name), all, hidden);
      made.rows = width;
      made.order.first = first;
      made.cut = TensorCut::kFfnColumns;
      return made;
    };
    std::vector<TensorPart> parts;
    if (shared) {
      parts = {part(names_.expert_gate, width, 0), part(names_.expert_up, width, 0)};
    } else if (!names_.gate_up.empty()) {
      parts = {part(names_.gate_up, 2 * width, 0), part(names_.gate_up, 2 * width, width)};
    } else {
      if (ffn.gated()) parts.push_back(part(names_.gate, width, 0));
      parts.push_back(part(names_.up, width, 0));
    }
    VisitMatrix(TensorRole::kFfnUp, std::move(parts), ffn.bias());
    TensorPart down =
        Matrix(StrCat(prefix, shared ? names_.expert_down : names_.down), hidden, width);
    down.cut = TensorCut::kFfnColumns;
    down.cuts_inputs = true;
    VisitMatrix(TensorRole::kFfnDown, {down}, ffn.bias());
  }

  void VisitExperts(const v1::Ffn& ffn) {
    const v1::Experts& experts = ffn.experts();
    const int64_t width = experts.width(), hidden = model_.hidden();
    if (ffn.normed_apart()) {
      VisitNorm(TensorRole::kDenseAfter, InLayer(names_.dense_after_norm), hidden);
      VisitNorm(TensorRole::kExpertsBefore, InLayer(names_.experts_norm), hidden);
      VisitNorm(TensorRole::kExpertsAfter, InLayer(names_.experts_after_norm), hidden);
      VisitWhole(TensorRole::kRouterNorm, names_.router_norm, hidden);
    }
    if (experts.expert_scales()) {
      VisitWhole(TensorRole::kExpertScales, names_.expert_scales, experts.count());
    }
    VisitMatrix(TensorRole::kRouter, {Matrix(InLayer(names_.router), experts.count(), hidden)},
                experts.router_bias());
    if (experts.correction_bias()) VisitCorrection(experts.count());
    if (!names_.stacked_up.empty()) return VisitStacked(experts);
    const auto bias = [&](std::string_view all, int64_t outputs, int64_t i) {
      return TensorPart{.name = InLayer(all),
                        .whole_name = true,
                        .shape = {experts.count(), outputs},
                        .rows = outputs,
                        .order = {.first = i * outputs}};
    };
    for (int64_t i = 0; i < experts.count() && status_.ok(); ++i) {
      const std::string name = StrCat(prefix_, names_.experts, ".", i, ".");
      VisitMatrix(TensorRole::kExpertUp,
                  {Matrix(StrCat(name, names_.expert_gate), width, hidden),
                   Matrix(StrCat(name, names_.expert_up), width, hidden)},
                  false, i);
      VisitMatrix(TensorRole::kExpertDown,
                  {Matrix(StrCat(name, names_.expert_down), hidden, width)}, false, i);
      if (!experts.biases()) continue;
      VisitMatrix(TensorRole::kExpertUpBias,
                  {bias(names_.expert_gate_bias, width, i), bias(names_.expert_up_bias, width, i)},
                  false, i);
      VisitMatrix(TensorRole::kExpertDownBias, {bias(names_.expert_down_bias, hidden, i)}, false,
                  i);
    }
  }

  // Expert by expert, of tensors that hold all.
  void VisitStacked(const v1::Experts& experts) {
    const int64_t count = experts.count(), width = experts.width(), hidden = model_.hidden();
    const bool inputs_first = names_.stacked != StackedExperts::kOutputs;
    const bool alternate = names_.stacked == StackedExperts::kInputs;
    const auto part = [&](std::string_view name, int64_t outputs, int64_t inputs) {
      TensorPart made = {.name = InLayer(name), .whole_name = true, .rows = outputs};
      made.shape = {count, outputs};
      if (inputs > 0) made.shape.insert(made.shape.begin() + (inputs_first ? 1 : 2), inputs);
      made.inputs_first = inputs_first && inputs > 0;
      return made;
    };
    // Gate and up of expert i: halves, or every other one.
    const auto halves = [&](const TensorPart& both, int64_t i) {
      std::vector<TensorPart> parts = {both, both};
      for (int64_t half = 0; half < 2; ++half) {
        TensorPart& made = parts[static_cast<size_t>(half)];
        made.rows = width;
        const int64_t first = 2 * i * width;
        made.order = alternate ? RowOrder{.first = first + half, .head = 1, .stride = 2}
                               : RowOrder{.first = first + half * width};
      }
      return parts;
    };
    const auto whole = [&](TensorPart all, int64_t i) {
      all.order.first = i * hidden;
      return std::vector<TensorPart>{std::move(all)};
    };
    const TensorPart up = part(names_.stacked_up, 2 * width, hidden);
    const TensorPart down = part(names_.stacked_down, hidden, width);
    const TensorPart up_bias = part(names_.stacked_up_bias, 2 * width, 0);
    const TensorPart down_bias = part(names_.stacked_down_bias, hidden, 0);
    for (int64_t i = 0; i < count && status_.ok(); ++i) {
      VisitMatrix(TensorRole::kExpertUp, halves(up, i), false, i);
      VisitMatrix(TensorRole::kExpertDown, whole(down, i), false, i);
      if (!experts.biases()) continue;
      VisitMatrix(TensorRole::kExpertUpBias, halves(up_bias, i), false, i);
      VisitMatrix(TensorRole::kExpertDownBias, whole(down_bias, i), false, i);
    }
  }

  void VisitCorrection(int64_t experts) {
    TensorPart part = {.name = InLayer(names_.router_correction),
                       .whole_name = true,
                       .shape = {experts},
                       .rows = experts};
    if (names_.correction_is_row) part.shape = {1, experts};
    Visit({.role = TensorRole::kRouterCorrection, .layer = layer_, .parts = {std::move(part)}});
  }

  void VisitHead() {
    const int64_t width = model_.embedding_width(), hidden = model_.hidden();
    if (!model_.final_norm_absent()) {
      VisitNorm(TensorRole::kFinalNorm, StrCat(root_, names_.final_norm), hidden);
    }
    if (width != hidden) {
      VisitMatrix(TensorRole::kProjectOut,
                  {Matrix(StrCat(root_, names_.project_out), width, hidden)});
    }
    TensorPart head = Matrix(
        model_.tied_embeddings() ? StrCat(root_, names_.embedding) : std::string(names_.head),
        model_.vocabulary(), width);
    head.cut = TensorCut::kVocabulary;
    head.bias = names_.head;
    VisitMatrix(TensorRole::kHead, {head}, model_.head_bias());
  }

  const v1::Model& model_;
  const TensorNames& names_;
  const std::string_view root_;
  const std::function<absl::Status(const ModelTensor&)>& visit_;
  std::string prefix_;
  int64_t layer_ = -1;
  absl::Status status_;
};

}  // namespace

TensorNames NamesIn(const v1::Model& model, const TensorNames& names,
                    const std::function<bool(const std::string&)>& has, std::string_view root) {
  TensorNames found = names;
  found.head = HeadOf(names, has);
  const std::string keys = StrCat(root, names.layers, ".0.", names.latent.up_keys, ".weight");
  if (!names.latent.up_keys.empty() && !has(keys)) {
    found.latent.up_keys = found.latent.up_values = {};
  }
  // Quantised checkpoints may number the model's experts and leave the head as it was published.
  const std::string head = StrCat(DraftHeadBase(model, names, root), names.draft_head.layer);
  if (has(StrCat(head, names.stacked_up))) found.draft_head.stacked_up = names.stacked_up;
  for (int64_t i = 0; i < LayerCount(model) && !names.stacked_up.empty(); ++i) {
    if (!KindOf(model, i).ffn().has_experts()) continue;
    const std::string layer = StrCat(root, names.layers, ".", i, ".");
    const std::string stack = StrCat(layer, names.stacked_up);
    if (!names.other_stacked_up.empty() && !has(stack) &&
        has(StrCat(layer, names.other_stacked_up))) {
      found.stacked_up = names.other_stacked_up;
      found.stacked_down = names.other_stacked_down;
      found.router = names.other_stacked_router;
      break;
    }
    // Without experts by number there is nothing else to ask for.
    const bool stacked = has(stack) || has(stack + "_blocks") || names.experts.empty();
    if (!stacked) found.stacked_up = {};
    if (stacked && !names.stacked_router.empty()) found.router = names.stacked_router;
    if (stacked && !names.stacked_correction.empty()) {
      found.router_correction = names.stacked_correction;
    }
    break;
  }
  return found;
}

bool IsMatrix(TensorRole role) {
  using enum TensorRole;
  constexpr TensorRole kMatrices[] = {
      kProjectIn,  kPerLayerContext, kPerLayerGate, kPerLayerOutput,  kQkv,
      kLatentIn,   kQuery,           kLatentHeads,  kAttentionOutput, kDeltaIn,
      kDeltaGates, kDeltaOutput,     kFfnUp,        kFfnDown,         kRouter,
      kSharedGate, kExpertUp,        kExpertDown,   kProjectOut,      kDraftFuse,
      kHead};
  return std::find(std::begin(kMatrices), std::end(kMatrices), role) != std::end(kMatrices);
}

absl::Status WalkTensors(const v1::Model& model, const TensorNames& names, std::string_view root,
                         const std::function<absl::Status(const ModelTensor&)>& visit) {
  return Walk(model, names, root, visit).Run();
}

absl::Status WalkDraftHead(const v1::Model& model, const TensorNames& names, std::string_view root,
                           const std::function<absl::Status(const ModelTensor&)>& visit) {
  const v1::Model head = DraftHeadModel(model);
  TensorNames own = names;
  own.stacked_up = names.draft_head.stacked_up;
  return Walk(head, own, root, visit).RunDraftHead();
}

}  // namespace tessera
