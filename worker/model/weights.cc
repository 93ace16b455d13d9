#include "worker/model/weights.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "proto/architectures.h"
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
      const std::string prefix = StrCat(root_, names_.layers, ".", index, ".");
      AddAttention(prefix, &weights->layers[i].attention);
      AddFfn(prefix, index, &weights->layers[i].ffn);
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

  void AddAttention(const std::string& prefix, AttentionWeights* attention) {
    const int64_t d = model_.head_dim();
    const int64_t q_rows = model_.heads() * d, kv_rows = model_.kv_heads() * d;
    const IndexRange q = Scaled(share_.query_heads(), d), kv = Scaled(share_.kv_heads(), d);
    AddNorm(StrCat(prefix, names_.attention_norm), model_.hidden(), &attention->norm);
    const std::vector<FusedPart> parts = {{StrCat(prefix, names_.q), q_rows, q},
                                          {StrCat(prefix, names_.k), kv_rows, kv},
                                          {StrCat(prefix, names_.v), kv_rows, kv}};
    AddFused(parts, model_.hidden(), &attention->qkv.matrix);
    if (model_.qkv_bias()) AddFusedBias(parts, &attention->qkv.bias);
    if (model_.qk_norm()) {
      AddVector(&attention->q_norm, StrCat(prefix, names_.q_norm, ".weight"), d);
      AddVector(&attention->k_norm, StrCat(prefix, names_.k_norm, ".weight"), d);
    }
    AddSummed(StrCat(prefix, names_.o), model_.hidden(), q_rows, q, model_.output_bias(),
              &attention->output);
  }

  bool LayerHasExperts(int64_t index) const {
    if (!model_.has_experts()) return false;
    const auto& dense = model_.experts().dense_layers();
    return std::find(dense.begin(), dense.end(), index) == dense.end();
  }

  void AddFfn(const std::string& prefix, int64_t index, FfnWeights* ffn) {
    AddNorm(StrCat(prefix, names_.ffn_norm), model_.hidden(), &ffn->norm);
    if (LayerHasExperts(index)) return AddExperts(prefix, ffn);
    const int64_t width = model_.ffn_width();
    const IndexRange taken = RangeOf(share_.ffn_columns());
    std::vector<FusedPart> parts;
    if (model_.gated_ffn()) parts.push_back({StrCat(prefix, names_.gate), width, taken});
    parts.push_back({StrCat(prefix, names_.up), width, taken});
    AddFused(parts, model_.hidden(), &ffn->up.matrix);
    if (model_.ffn_bias()) AddFusedBias(parts, &ffn->up.bias);
    AddSummed(StrCat(prefix, names_.down), model_.hidden(), width, taken, model_.ffn_bias(),
              &ffn->down);
  }

  // The router is small and decides a lot: f32 whatever the rest is.
  void AddExperts(const std::string& prefix, FfnWeights* ffn) {
    const v1::Experts& experts = model_.experts();
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
    const int64_t width = experts.ffn_width();
    const IndexRange held = RangeOf(share_.experts());
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
  const auto architecture = FindArchitecture(options.model.architecture());
  if (!architecture.ok()) return architecture.status();

  auto weights = std::make_unique<ModelWeights>();
  ModelPlanner planner(options, checkpoint, (*architecture)->tensors, device.ops());
  const absl::Status status = planner.AddModel(weights.get());
  if (!status.ok()) return status;
  auto loaded = planner.plan().Execute(device, options.pack_later, progress);
  if (!loaded.ok()) return loaded.status();
  weights->memory = std::move(loaded->memory);
  weights->later = std::move(loaded->later);
  return weights;
}

}  // namespace tessera::worker
