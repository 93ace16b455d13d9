#include "worker/model/weights.h"

#include <string>
#include <string_view>
#include <utility>

#include "proto/layers/layers.h"
#include "proto/model/families/families.h"
#include "third_party/absl/str_cat.h"
#include "worker/model/checkpoint.h"
#include "worker/model/int4_matrix.h"
#include "worker/model/model_share.h"
#include "worker/model/weight_plan.h"

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
  IndexRange taken;
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
        plan_(&checkpoint, &ops) {
    root_ = RootOf(names, [&](const std::string& name) { return checkpoint.Has(name); });
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

  void AddVector(TensorView* target, const std::string& name, int64_t size) {
    plan_.AddVector(target, size);
    status_.Update(plan_.AddVectorPart(target, 0, name, size, {0, size}));
  }

  void AddNorm(const std::string& name, int64_t width, NormWeights* norm) {
    AddVector(&norm->weight, name + ".weight", width);
    if (model_.norm() == v1::NORM_KIND_LAYER) AddVector(&norm->bias, name + ".bias", width);
  }

  // Memory for a matrix of these parts, one below the other, and of some columns of each: int4
  // where the checkpoint has it so.
  void AddMatrix(const std::vector<FusedPart>& parts, int64_t all_columns,
                 const IndexRange& columns, kernels::PackedWeights* matrix) {
    int64_t out_features = 0;
    for (const FusedPart& part : parts) out_features += part.taken.size();
    LinearSpec spec = Spec(columns.size(), out_features);
    const bool int4 = HasInt4(checkpoint_, model_, parts[0].name);
    for (const FusedPart& part : parts) {
      if (HasInt4(checkpoint_, model_, part.name) == int4) continue;
      status_.Update(absl::InvalidArgumentError(
          StrCat("of '", parts[0].name, "' and '", part.name,
                 "', which are computed as one matrix, only one is int4: not supported")));
    }
    if (int4) {
      const auto group = Int4GroupSize(model_.quantization(), parts[0].name, all_columns, columns);
      status_.Update(group.status());
      spec.weight_dtype = DType::kI4;
      spec.group_size = group.value_or(spec.group_size);
    }
    plan_.AddMatrix(matrix, spec);
  }

  // Rows and columns of a matrix of the checkpoint; `slice.name` is without ".weight".
  void AddRows(kernels::PackedWeights* matrix, int64_t first_row, MatrixSlice slice) {
    if (matrix->spec.weight_dtype == DType::kI4) {
      status_.Update(plan_.AddInt4Rows(matrix, first_row, model_.quantization(), slice));
      return;
    }
    const std::string name = StrCat(slice.name, ".weight");
    slice.name = name;
    status_.Update(plan_.AddRows(matrix, first_row, slice));
  }

  // Row slices of several matrices, one below the other.
  void AddFused(const std::vector<FusedPart>& parts, int64_t in_features,
                kernels::PackedWeights* matrix) {
    AddMatrix(parts, in_features, {0, in_features}, matrix);
    int64_t row = 0;
    for (const FusedPart& part : parts) {
      AddRows(matrix, row, MatrixRows(part.name, part.rows, in_features, part.taken));
      row += part.taken.size();
    }
  }

  void AddFusedBias(const std::vector<FusedPart>& parts, TensorView* bias) {
    int64_t size = 0;
    for (const FusedPart& part : parts) size += part.taken.size();
    plan_.AddVector(bias, size);
    int64_t first = 0;
    for (const FusedPart& part : parts) {
      status_.Update(plan_.AddVectorPart(bias, first, part.name + ".bias", part.rows, part.taken));
      first += part.taken.size();
    }
  }

  // A column slice: what this worker multiplies is summed over the ranks, and the bias added once.
  void AddSummed(const std::string& name, int64_t rows, int64_t columns, IndexRange taken,
                 bool bias, LinearWeights* linear) {
    AddMatrix({{name, rows, {0, rows}}}, columns, taken, &linear->matrix);
    AddRows(&linear->matrix, 0, MatrixColumns(name, rows, columns, taken));
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
      status_.Update(
          plan_.AddTable(&weights->embedding,
                         MatrixRows(StrCat(root_, names_.embedding, ".weight"), model_.vocabulary(),
                                    width, RangeOf(share_.vocabulary_rows())),
                         compact));
    }
    if (model_.learned_positions()) {
      const int64_t rows = model_.max_positions() + model_.learned_position_offset();
      status_.Update(plan_.AddTable(
          &weights->positions,
          WholeMatrix(StrCat(root_, names_.positions, ".weight"), rows, model_.hidden()), compact));
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
    AddNorms(kind, StrCat(prefix, names_.attention_norm), &layer->attention.norms);
    AddAttention(prefix, kind.attention(), held, &layer->attention);
    AddNorms(kind, StrCat(prefix, names_.ffn_norm), &layer->ffn.norms);
    if (kind.ffn().has_experts()) {
      AddExperts(prefix, kind.ffn().experts(), RangeOf(held.experts()), &layer->ffn);
    } else {
      AddDenseFfn(prefix, kind.ffn(), RangeOf(held.ffn_columns()), &layer->ffn);
    }
  }

  void AddNorms(const v1::LayerKind& kind, const std::string& name, BlockNorms* norms) {
    const bool before = kind.norm_place() == v1::NORM_PLACE_UNSPECIFIED;
    AddNorm(name, model_.hidden(), before ? &norms->before : &norms->after_residual);
  }

  void AddAttention(const std::string& prefix, const v1::Attention& attention,
                    const v1::LayerShare& held, AttentionWeights* weights) {
    const int64_t d = attention.head_dim();
    const int64_t q_rows = attention.heads() * d, kv_rows = attention.kv_heads() * d;
    const IndexRange q = Scaled(held.query_heads(), d), kv = Scaled(held.kv_heads(), d);
    const std::vector<FusedPart> parts = {{StrCat(prefix, names_.q), q_rows, q},
                                          {StrCat(prefix, names_.k), kv_rows, kv},
                                          {StrCat(prefix, names_.v), kv_rows, kv}};
    AddFused(parts, model_.hidden(), &weights->qkv.matrix);
    if (attention.qkv_bias()) AddFusedBias(parts, &weights->qkv.bias);
    if (attention.qk_norm()) {
      AddVector(&weights->q_norm, StrCat(prefix, names_.q_norm, ".weight"), d);
      AddVector(&weights->k_norm, StrCat(prefix, names_.k_norm, ".weight"), d);
    }
    AddSummed(StrCat(prefix, names_.o), model_.hidden(), q_rows, q, attention.output_bias(),
              &weights->output);
  }

  void AddDenseFfn(const std::string& prefix, const v1::Ffn& kind, const IndexRange& taken,
                   FfnWeights* ffn) {
    std::vector<FusedPart> parts;
    if (kind.gated()) parts.push_back({StrCat(prefix, names_.gate), kind.width(), taken});
    parts.push_back({StrCat(prefix, names_.up), kind.width(), taken});
    AddFused(parts, model_.hidden(), &ffn->up.matrix);
    if (kind.bias()) AddFusedBias(parts, &ffn->up.bias);
    AddSummed(StrCat(prefix, names_.down), model_.hidden(), kind.width(), taken, kind.bias(),
              &ffn->down);
  }

  // The router is small and decides a lot: f32 whatever the rest is.
  void AddExperts(const std::string& prefix, const v1::Experts& experts, const IndexRange& held,
                  FfnWeights* ffn) {
    const std::string router = StrCat(prefix, names_.router, ".weight");
    if (HasInt4(checkpoint_, model_, StrCat(prefix, names_.router))) {
      status_.Update(absl::InvalidArgumentError(StrCat(
          "'", prefix, names_.router, "' routes to experts and is int4: not supported; use a ",
          "checkpoint that leaves it as it was (modules_to_not_convert)")));
    }
    plan_.AddMatrix(&ffn->router, {.in_features = model_.hidden(),
                                   .out_features = experts.count(),
                                   .weight_dtype = DType::kF32});
    status_.Update(
        plan_.AddRows(&ffn->router, 0, WholeMatrix(router, experts.count(), model_.hidden())));
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
  const TensorNames& names_;
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
