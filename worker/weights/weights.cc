#include "worker/weights/weights.h"

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proto/layers/layers.h"
#include "proto/model/families/families.h"
#include "third_party/absl/str_cat.h"
#include "worker/weights/checkpoint.h"
#include "worker/weights/mapped_rows.h"
#include "worker/weights/model_share.h"
#include "worker/weights/plain_rows.h"
#include "worker/weights/weight_formats.h"
#include "worker/weights/weight_plan.h"

namespace tessera::worker {
namespace {

using kernels::DType;
using kernels::LinearSpec;
using kernels::TensorView;

IndexRange RangeOf(const v1::Range& range) { return {range.begin(), range.end()}; }
IndexRange Scaled(const v1::Range& range, int64_t factor) {
  return {range.begin() * factor, range.end() * factor};
}

// Rows of one of the matrices that are fused into a wider one.
struct FusedPart {
  std::string name;  // without ".weight"
  int64_t rows;      // in the checkpoint
  IndexRange taken;  // numbered by `order`
  RowOrder order = {};
};

// Walks over a model and adds every tensor of the share to a plan. Stops at the first failure.
class ModelPlanner {
 public:
  ModelPlanner(const ModelOptions& options, const Checkpoint& checkpoint, const TensorNames& names,
               kernels::Ops& ops)
      : options_(options),
        model_(options.model),
        share_(options.share),
        names_(names),
        checkpoint_(checkpoint),
        plan_(&ops) {
    const auto has = [&](const std::string& name) { return checkpoint.Has(name); };
    root_ = RootOf(names, has);
    names_.head = HeadOf(names, has);
  }

  absl::Status AddModel(ModelWeights* weights) {
    if (share_.holds_embedding()) AddEmbedding(weights);
    const int64_t first = share_.layers().begin();
    weights->layers.resize(share_.layers().end() - first);
    for (size_t i = 0; i < weights->layers.size() && status_.ok(); ++i) {
      const int64_t index = first + static_cast<int64_t>(i);
      AddLayer(index, &weights->layers[i]);
    }
    if (share_.holds_head()) AddHead(weights);
    return status_;
  }

  WeightPlan& plan() { return plan_; }

 private:
  LinearSpec Spec(int64_t in_features, int64_t out_features) const {
    return {.in_features = in_features,
            .out_features = out_features,
            .weight_dtype = options_.weight_dtype,
            .group_size = options_.int8_group_size};
  }

  // Sources of the checkpoint's tensors. Null where it fails: the reason is in status_ then.
  std::shared_ptr<const RowSource> Matrix(const std::string& name, int64_t rows, int64_t columns) {
    return Keep(OpenMatrix(checkpoint_, model_, name, rows, columns));
  }
  std::shared_ptr<const RowSource> Plain(const std::string& name,
                                         std::initializer_list<int64_t> shape) {
    return Keep(OpenPlain(checkpoint_, name, shape));
  }
  std::shared_ptr<const RowSource> Keep(absl::StatusOr<std::shared_ptr<const RowSource>> source) {
    status_.Update(source.status());
    return source.ok() ? *std::move(source) : nullptr;
  }

  void AddVector(TensorView* target, const std::string& name, int64_t size) {
    plan_.AddVector(target, size);
    AddVectorPart(target, 0, {name, size, {0, size}});
  }

  // `part.name` is the whole name here.
  void AddVectorPart(const TensorView* target, int64_t first, const FusedPart& part,
                     float added = 0) {
    const auto source = InOrder(Keep(OpenColumn(checkpoint_, part.name, part.rows)), part.order);
    if (source == nullptr) return;
    status_.Update(plan_.AddVectorPart(target, first, {source, part.taken, {0, 1}}, added));
  }

  // Weights of a norm, which the family may store less one.
  void AddNormWeight(TensorView* target, const std::string& name, int64_t width,
                     const RowOrder& order = {}) {
    plan_.AddVector(target, width);
    AddVectorPart(target, 0, {name + ".weight", width, {0, width}, order}, names_.norm_offset);
  }

  // Rows [taken] of a table of `rows`.
  void AddTable(TensorView* target, const std::string& name, int64_t rows, int64_t columns,
                const IndexRange& taken, bool compact) {
    const auto source = Plain(name + ".weight", {rows, columns});
    if (source == nullptr) return;
    status_.Update(plan_.AddTable(target, {source, taken, {0, columns}}, compact));
  }

  void AddNorm(const std::string& name, int64_t width, NormWeights* norm) {
    AddNormWeight(&norm->weight, name, width);
    if (model_.norm() == v1::NORM_KIND_LAYER) AddVector(&norm->bias, name + ".bias", width);
  }

  // Slices of the same columns of several matrices, one below the other, kept as int4 where the
  // checkpoint has all of them so. `names`: for errors.
  void AddSlices(const std::vector<RowSlice>& slices, const std::vector<FusedPart>& names,
                 kernels::PackedWeights* matrix) {
    int64_t out_features = 0;
    for (const RowSlice& slice : slices) out_features += slice.rows.size();
    LinearSpec spec = Spec(slices[0].columns.size(), out_features);
    std::vector<RowForm> forms;
    for (const RowSlice& slice : slices) {
      const auto form = slice.source->FormOf(slice.columns);
      status_.Update(form.status());
      if (!form.ok()) return;
      forms.push_back(*form);
      if (KeepsCodes(*form) == KeepsCodes(forms[0])) continue;
      status_.Update(absl::InvalidArgumentError(
          StrCat("of '", names[0].name, "' and '", names[forms.size() - 1].name,
                 "', which are computed as one matrix, only one is int4: not supported")));
      return;
    }
    if (KeepsCodes(forms[0])) {
      spec.weight_dtype = forms[0].dtype;
      spec.group_size = forms[0].group_size;
    }
    plan_.AddMatrix(matrix, spec);
    int64_t row = 0;
    for (const RowSlice& slice : slices) {
      status_.Update(plan_.AddRows(matrix, row, slice));
      row += slice.rows.size();
    }
  }

  // Ops multiply with the codes as the checkpoint has them.
  static bool KeepsCodes(const RowForm& form) { return form.dtype == DType::kI4; }

  // Row slices of several matrices, one below the other.
  void AddFused(const std::vector<FusedPart>& parts, int64_t in_features,
                kernels::PackedWeights* matrix) {
    std::vector<RowSlice> slices;
    for (const FusedPart& part : parts) {
      slices.push_back({InOrder(Matrix(part.name, part.rows, in_features), part.order),
                        part.taken,
                        {0, in_features}});
      if (slices.back().source == nullptr) return;
    }
    AddSlices(slices, parts, matrix);
  }

  void AddFusedBias(const std::vector<FusedPart>& parts, TensorView* bias) {
    int64_t size = 0;
    for (const FusedPart& part : parts) size += part.taken.size();
    plan_.AddVector(bias, size);
    int64_t first = 0;
    for (const FusedPart& part : parts) {
      AddVectorPart(bias, first, {part.name + ".bias", part.rows, part.taken, part.order});
      first += part.taken.size();
    }
  }

  // A column slice: what this worker multiplies is summed over the ranks, and the bias added once.
  void AddSummed(const std::string& name, int64_t rows, int64_t columns, IndexRange taken,
                 bool bias, LinearWeights* linear) {
    const auto source = Matrix(name, rows, columns);
    if (source == nullptr) return;
    AddSlices({{source, {0, rows}, taken}}, {{name, rows, {0, rows}}}, &linear->matrix);
    if (bias && taken.begin == 0) AddVector(&linear->bias, name + ".bias", rows);
  }

  // One copy serves both. Quantised weights are another matrix than the embedding's.
  bool HeadIsEmbedding() const {
    return model_.tied_embeddings() && share_.holds_embedding() && share_.holds_head() &&
           options_.weight_dtype != DType::kI8;
  }

  void AddEmbedding(ModelWeights* weights) {
    const int64_t width = model_.embedding_width();
    const bool compact = options_.weight_dtype != DType::kF32;
    if (!HeadIsEmbedding()) {
      AddTable(&weights->embedding, StrCat(root_, names_.embedding), model_.vocabulary(), width,
               RangeOf(share_.vocabulary_rows()), compact);
    }
    if (model_.learned_positions()) {
      const int64_t rows = model_.max_positions() + model_.learned_position_offset();
      AddTable(&weights->positions, StrCat(root_, names_.positions), rows, model_.hidden(),
               {0, rows}, compact);
    }
    if (width != model_.hidden()) {
      AddFused({{StrCat(root_, names_.project_in), model_.hidden(), {0, model_.hidden()}}}, width,
               &weights->project_in.matrix);
    }
  }

  void AddLayer(int64_t index, LayerWeights* layer) {
    const std::string prefix = StrCat(root_, names_.layers, ".", index, ".");
    const v1::LayerKind& kind = KindOf(model_, index);
    const v1::LayerShare& held = ShareOf(model_, share_, index);
    AddNorms(kind, prefix, names_.attention_norm, names_.attention_after_norm,
             &layer->attention.norms);
    AddAttention(prefix, kind.attention(), held, &layer->attention);
    AddNorms(kind, prefix, kind.shared_norm() ? names_.attention_norm : names_.ffn_norm,
             names_.ffn_after_norm, &layer->ffn.norms);
    if (kind.ffn().has_experts()) {
      AddExperts(prefix, kind.ffn().experts(), RangeOf(held.experts()), &layer->ffn);
    } else {
      AddDenseFfn(prefix, kind.ffn(), RangeOf(held.ffn_columns()), &layer->ffn);
    }
  }

  void AddNorms(const v1::LayerKind& kind, const std::string& prefix, std::string_view name,
                std::string_view after_name, BlockNorms* norms) {
    const int64_t width = model_.hidden();
    switch (kind.norm_place()) {
      case v1::NORM_PLACE_AFTER_RESIDUAL:
        return AddNorm(StrCat(prefix, name), width, &norms->after_residual);
      case v1::NORM_PLACE_AFTER: return AddNorm(StrCat(prefix, after_name), width, &norms->after);
      case v1::NORM_PLACE_BOTH:
        AddNorm(StrCat(prefix, name), width, &norms->before);
        return AddNorm(StrCat(prefix, after_name), width, &norms->after);
      default: return AddNorm(StrCat(prefix, name), width, &norms->before);
    }
  }

  // Rows of q, k and v: matrices of their own, or parts of one.
  std::vector<FusedPart> QkvParts(const std::string& prefix, const v1::Attention& attention,
                                  const IndexRange& q, const IndexRange& kv) const {
    const int64_t d = attention.head_dim(), heads = attention.heads();
    const int64_t q_rows = heads * d, kv_rows = attention.kv_heads() * d;
    const int64_t paired = PairedRows(attention);
    const RowOrder rotated = {.head = d, .stride = d, .paired = paired};
    if (names_.qkv.empty()) {
      return {{StrCat(prefix, names_.q), q_rows, q, rotated},
              {StrCat(prefix, names_.k), kv_rows, kv, rotated},
              {StrCat(prefix, names_.v), kv_rows, kv}};
    }
    const std::string name = StrCat(prefix, names_.qkv);
    const int64_t all = q_rows + 2 * kv_rows;
    const bool by_head = names_.qkv_rows == QkvRows::kByHead;
    // Of a head, or of all heads of q, k and v.
    const int64_t k_first = by_head ? d : q_rows, v_first = by_head ? 2 * d : q_rows + kv_rows;
    const auto order = [&](int64_t first, int64_t pairs) {
      return RowOrder{.first = first, .head = d, .stride = by_head ? 3 * d : d, .paired = pairs};
    };
    return {{name, all, q, order(0, paired)},
            {name, all, kv, order(k_first, paired)},
            {name, all, kv, order(v_first, 0)}};
  }

  // Of each head of q and k, rows that are neighbouring pairs in the checkpoint.
  static int64_t PairedRows(const v1::Attention& attention) {
    return attention.rope().neighbour_pairs() ? attention.rope().rotary_dim() : 0;
  }

  void AddAttention(const std::string& prefix, const v1::Attention& attention,
                    const v1::LayerShare& held, AttentionWeights* weights) {
    const int64_t d = attention.head_dim();
    const IndexRange q = Scaled(held.query_heads(), d), kv = Scaled(held.kv_heads(), d);
    const std::vector<FusedPart> parts = QkvParts(prefix, attention, q, kv);
    AddFused(parts, model_.hidden(), &weights->qkv.matrix);
    if (attention.qkv_bias()) AddFusedBias(parts, &weights->qkv.bias);
    if (attention.qk_norm()) {
      const RowOrder rotated = {.head = d, .stride = d, .paired = PairedRows(attention)};
      AddNormWeight(&weights->q_norm, StrCat(prefix, names_.q_norm), d, rotated);
      AddNormWeight(&weights->k_norm, StrCat(prefix, names_.k_norm), d, rotated);
    }
    AddSummed(StrCat(prefix, names_.o), model_.hidden(), attention.heads() * d, q,
              attention.output_bias(), &weights->output);
  }

  void AddDenseFfn(const std::string& prefix, const v1::Ffn& kind, const IndexRange& taken,
                   FfnWeights* ffn) {
    std::vector<FusedPart> parts;
    if (!names_.gate_up.empty()) {
      const std::string name = StrCat(prefix, names_.gate_up);
      parts.push_back({name, 2 * kind.width(), taken});
      parts.push_back({name, 2 * kind.width(), taken, {.first = kind.width()}});
    } else {
      if (kind.gated()) parts.push_back({StrCat(prefix, names_.gate), kind.width(), taken});
      parts.push_back({StrCat(prefix, names_.up), kind.width(), taken});
    }
    AddFused(parts, model_.hidden(), &ffn->up.matrix);
    if (kind.bias()) AddFusedBias(parts, &ffn->up.bias);
    AddSummed(StrCat(prefix, names_.down), model_.hidden(), kind.width(), taken, kind.bias(),
              &ffn->down);
  }

  // The router is small and decides a lot: f32 whatever the rest is.
  void AddRouter(const std::string& name, int64_t experts, FfnWeights* ffn) {
    const auto source = Matrix(name, experts, model_.hidden());
    if (source == nullptr) return;
    const IndexRange columns = {0, model_.hidden()};
    const auto form = source->FormOf(columns);
    status_.Update(form.status());
    if (form.ok() && KeepsCodes(*form)) {
      status_.Update(absl::InvalidArgumentError(
          StrCat("'", name, "' routes to experts and is int4: not supported; use a ",
                 "checkpoint that leaves it as it was (modules_to_not_convert)")));
    }
    plan_.AddMatrix(
        &ffn->router,
        {.in_features = model_.hidden(), .out_features = experts, .weight_dtype = DType::kF32});
    status_.Update(plan_.AddRows(&ffn->router, 0, {source, {0, experts}, columns}));
  }

  void AddExperts(const std::string& prefix, const v1::Experts& experts, const IndexRange& held,
                  FfnWeights* ffn) {
    AddRouter(StrCat(prefix, names_.router), experts.count(), ffn);
    const int64_t width = experts.width();
    ffn->expert_up.resize(held.size());
    ffn->expert_down.resize(held.size());
    for (int64_t i = 0; i < held.size() && status_.ok(); ++i) {
      const std::string name = StrCat(prefix, names_.experts, ".", held.begin + i, ".");
      AddFused({{StrCat(name, names_.expert_gate), width, {0, width}},
                {StrCat(name, names_.expert_up), width, {0, width}}},
               model_.hidden(), &ffn->expert_up[i]);
      CheckAlike(name, ffn->expert_up[i], ffn->expert_up[0]);
      AddFused({{StrCat(name, names_.expert_down), model_.hidden(), {0, model_.hidden()}}}, width,
               &ffn->expert_down[i]);
      CheckAlike(name, ffn->expert_down[i], ffn->expert_down[0]);
    }
  }

  // Experts of a layer are computed together.
  void CheckAlike(const std::string& name, const kernels::PackedWeights& expert,
                  const kernels::PackedWeights& first) {
    if (expert.spec.weight_dtype == first.spec.weight_dtype) return;
    status_.Update(absl::InvalidArgumentError(
        StrCat("of '", name, "' and the experts before it only some are int4: not supported")));
  }

  void AddHead(ModelWeights* weights) {
    if (!model_.final_norm_absent()) {
      AddNorm(StrCat(root_, names_.final_norm), model_.hidden(), &weights->final_norm);
    }
    const int64_t width = model_.embedding_width();
    if (width != model_.hidden()) {
      AddFused({{StrCat(root_, names_.project_out), width, {0, width}}}, model_.hidden(),
               &weights->project_out.matrix);
    }
    const std::string name =
        model_.tied_embeddings() ? StrCat(root_, names_.embedding) : std::string(names_.head);
    AddFused({{name, model_.vocabulary(), RangeOf(share_.vocabulary_rows())}}, width,
             &weights->head.matrix);
  }

  const ModelOptions& options_;
  const v1::Model& model_;
  const v1::WorkerShare& share_;
  TensorNames names_;
  const Checkpoint& checkpoint_;
  std::string root_;
  WeightPlan plan_;
  absl::Status status_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ModelWeights>> LoadWeights(
    const ModelOptions& options, kernels::Device& device,
    const std::function<void(int64_t, int64_t)>& progress) {
  auto checkpoint = Checkpoint::Open(options.folder);
  if (!checkpoint.ok()) return checkpoint.status();
  auto weights = LoadWeights(options, **checkpoint, device, progress);
  if (weights.ok() && (*weights)->later != nullptr) (*weights)->checkpoint = *std::move(checkpoint);
  return weights;
}

absl::StatusOr<std::unique_ptr<ModelWeights>> LoadWeights(
    const ModelOptions& options, const Checkpoint& checkpoint, kernels::Device& device,
    const std::function<void(int64_t, int64_t)>& progress) {
  const absl::Status share = CheckShare(options.model, options.share);
  if (!share.ok()) return share;
  const Family* family = FindFamily(options.model.architecture());
  if (family == nullptr) {
    return absl::InvalidArgumentError(
        StrCat("architecture '", options.model.architecture(), "' is not supported"));
  }

  auto weights = std::make_unique<ModelWeights>();
  ModelPlanner planner(options, checkpoint, family->tensors, device.ops());
  const absl::Status status = planner.AddModel(weights.get());
  if (!status.ok()) return status;
  auto loaded = planner.plan().Execute(device, options.pack_later, progress);
  if (!loaded.ok()) return loaded.status();
  weights->memory = std::move(loaded->memory);
  weights->later = std::move(loaded->later);
  return weights;
}

}  // namespace tessera::worker
