#include "worker/weights/weights.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proto/layers/layers.h"
#include "proto/model/families/families.h"
#include "proto/model/gguf_names.h"
#include "proto/model/tensor_walk.h"
#include "third_party/absl/str_cat.h"
#include "third_party/spdlog/log.h"
#include "worker/weights/checkpoint.h"
#include "worker/weights/decay_rows.h"
#include "worker/weights/mapped_columns.h"
#include "worker/weights/mapped_rows.h"
#include "worker/weights/model_share.h"
#include "worker/weights/plain_rows.h"
#include "worker/weights/transposed_heads.h"
#include "worker/weights/transposed_rows.h"
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

// The elements that a cut leaves a worker; nullptr where it holds no such layer.
IndexRange TakenOf(const TensorPart& part, const v1::WorkerShare& share,
                   const v1::LayerShare* held) {
  const auto scaled = [&part](const v1::Range& range) {
    if (part.number < 0) return Scaled(range, part.unit);
    const bool holds = range.begin() <= part.number && part.number < range.end();
    return IndexRange{0, holds ? part.unit : 0};
  };
  switch (part.cut) {
    case TensorCut::kVocabulary: return scaled(share.vocabulary_rows());
    case TensorCut::kQueryHeads: return scaled(held->query_heads());
    case TensorCut::kKvHeads: return scaled(held->kv_heads());
    case TensorCut::kKeyGroups: return scaled(held->key_groups());
    case TensorCut::kFfnColumns: return scaled(held->ffn_columns());
    case TensorCut::kAll: break;
  }
  return {0, part.rows};
}

// Adds every tensor of the share to a plan. Stops at the first failure.
class ModelPlanner {
 public:
  // `whole`: the model by which the checkpoint's names are found.
  ModelPlanner(const ModelOptions& options, const v1::Model& whole, const Checkpoint& checkpoint,
               const TensorNames& names, kernels::Ops& ops)
      : options_(options),
        model_(options.model),
        share_(options.share),
        names_(names),
        checkpoint_(checkpoint),
        ops_(ops),
        plan_(&ops) {
    const auto has = [&](const std::string& name) { return checkpoint.Has(name); };
    root_ = RootOf(names, has);
    names_ = NamesIn(whole, names, has, root_);
  }

  absl::Status AddModel(ModelWeights* weights) {
    weights->layers.resize(share_.layers().end() - share_.layers().begin());
    return WalkTensors(model_, names_, root_,
                       [&](const ModelTensor& tensor) { return Add(tensor, weights); });
  }
  // The model is one of DraftHeadModel.
  absl::Status AddDraftHead(ModelWeights* weights) {
    weights->layers.resize(1);
    return WalkDraftHead(model_, names_, root_,
                         [&](const ModelTensor& tensor) { return Add(tensor, weights); });
  }

  WeightPlan& plan() { return plan_; }
  const DecodedBytes& decoded() const { return decoded_; }

 private:
  absl::Status Add(const ModelTensor& tensor, ModelWeights* weights) {
    if (tensor.layer < 0) return AddOutside(tensor, weights);
    const int64_t index = tensor.layer - share_.layers().begin();
    if (index < 0 || index >= std::ssize(weights->layers)) return absl::OkStatus();
    const v1::LayerShare& held = ShareOf(model_, share_, tensor.layer);
    LayerWeights& layer = weights->layers[static_cast<size_t>(index)];
    return tensor.expert < 0 ? AddOfLayer(tensor, held, &layer)
                             : AddOfExpert(tensor, held, &layer.ffn);
  }

  // What stands before and behind the layers.
  absl::Status AddOutside(const ModelTensor& tensor, ModelWeights* weights) {
    switch (tensor.role) {
      case TensorRole::kEmbedding:
        if (!share_.holds_embedding() || HeadIsEmbedding()) return absl::OkStatus();
        return AddTable(tensor, &weights->embedding);
      case TensorRole::kPositions:
        if (!share_.holds_embedding()) return absl::OkStatus();
        return AddTable(tensor, &weights->positions);
      case TensorRole::kProjectIn:
        if (!share_.holds_embedding()) return absl::OkStatus();
        return AddLinear(tensor, nullptr, &weights->project_in);
      case TensorRole::kPerLayerTable: return AddTable(tensor, &weights->per_layer_table);
      case TensorRole::kPerLayerContext:
        return AddLinear(tensor, nullptr, &weights->per_layer_context);
      case TensorRole::kPerLayerNorm: return AddNorm(tensor, &weights->per_layer_norm);
      default: break;
    }
    if (!share_.holds_head()) return absl::OkStatus();
    switch (tensor.role) {
      case TensorRole::kFinalNorm: return AddNorm(tensor, &weights->final_norm);
      case TensorRole::kProjectOut: return AddLinear(tensor, nullptr, &weights->project_out);
      case TensorRole::kDraftFuse: return AddLinear(tensor, nullptr, &weights->draft_fuse);
      case TensorRole::kDraftEmbeddingNorm: return AddNorm(tensor, &weights->draft_embedding_norm);
      case TensorRole::kDraftHiddenNorm: return AddNorm(tensor, &weights->draft_hidden_norm);
      default: return AddLinear(tensor, nullptr, &weights->head);
    }
  }

  absl::Status AddOfLayer(const ModelTensor& tensor, const v1::LayerShare& held,
                          LayerWeights* layer) {
    AttentionWeights& attention = layer->attention;
    DeltaWeights& delta = layer->delta;
    FfnWeights& ffn = layer->ffn;
    switch (tensor.role) {
      case TensorRole::kAttentionBefore: return AddNorm(tensor, &attention.norms.before);
      case TensorRole::kAttentionAfter: return AddNorm(tensor, &attention.norms.after);
      case TensorRole::kAttentionAfterResidual:
        return AddNorm(tensor, &attention.norms.after_residual);
      case TensorRole::kQkv: return AddLinear(tensor, &held, &attention.qkv);
      case TensorRole::kLatentIn: return AddLinear(tensor, &held, &attention.latent_in);
      case TensorRole::kLatentNorm: return AddNorm(tensor, &attention.latent_norm);
      case TensorRole::kQueryNorm: return AddNorm(tensor, &attention.query_norm);
      case TensorRole::kQuery: return AddLinear(tensor, &held, &attention.query);
      case TensorRole::kLatentHeads:
        return AddLatentHeads(tensor, KindOf(model_, tensor.layer).attention().latent(),
                              RangeOf(held.query_heads()), &attention);
      case TensorRole::kSinks: return AddVector(tensor, "", &held, &attention.sinks);
      case TensorRole::kQNorm: return AddVector(tensor, ".weight", &held, &attention.q_norm);
      case TensorRole::kKNorm: return AddVector(tensor, ".weight", &held, &attention.k_norm);
      case TensorRole::kAttentionOutput: return AddLinear(tensor, &held, &attention.output);
      case TensorRole::kDeltaIn: return AddLinear(tensor, &held, &delta.in);
      case TensorRole::kDeltaGates: return AddLinear(tensor, &held, &delta.gates);
      case TensorRole::kDeltaConv: return AddVector(tensor, ".weight", &held, &delta.conv);
      case TensorRole::kDeltaDecayLog: return AddVector(tensor, "", &held, &delta.decay_log);
      case TensorRole::kDeltaDecayBias: return AddVector(tensor, "", &held, &delta.decay_bias);
      case TensorRole::kDeltaNorm: return AddVector(tensor, ".weight", &held, &delta.norm);
      case TensorRole::kDeltaOutput: return AddLinear(tensor, &held, &delta.output);
      case TensorRole::kFfnBefore: return AddNorm(tensor, &ffn.norms.before);
      case TensorRole::kFfnAfter: return AddNorm(tensor, &ffn.norms.after);
      case TensorRole::kFfnAfterResidual: return AddNorm(tensor, &ffn.norms.after_residual);
      case TensorRole::kFfnUp: return AddLinear(tensor, &held, &ffn.up);
      case TensorRole::kFfnDown: return AddLinear(tensor, &held, &ffn.down);
      case TensorRole::kRouter: {
        const absl::Status router = AddRouter(tensor, &ffn.router);
        return !router.ok() || !tensor.bias ? router
                                            : AddVector(tensor, ".bias", &held, &ffn.router_bias);
      }
      case TensorRole::kRouterCorrection:
        return AddVector(tensor, "", &held, &ffn.router_correction);
      case TensorRole::kSharedGate: return AddRouter(tensor, &ffn.shared_gate);
      case TensorRole::kRouterNorm: return AddVector(tensor, "", &held, &ffn.router_norm.weight);
      case TensorRole::kExpertScales: return AddVector(tensor, "", &held, &ffn.expert_scales);
      case TensorRole::kDenseAfter: return AddNorm(tensor, &ffn.dense_after);
      case TensorRole::kExpertsBefore: return AddNorm(tensor, &ffn.experts_before);
      case TensorRole::kExpertsAfter: return AddNorm(tensor, &ffn.experts_after);
      case TensorRole::kPerLayerGate: return AddLinear(tensor, &held, &layer->per_layer.gate);
      case TensorRole::kPerLayerOutput: return AddLinear(tensor, &held, &layer->per_layer.output);
      case TensorRole::kPerLayerAfter: return AddNorm(tensor, &layer->per_layer.after);
      case TensorRole::kOutputScale: return ReadNumber(tensor, &layer->output_scale);
      default: return absl::InternalError("a tensor of a layer has a role of none");
    }
  }

  absl::Status AddOfExpert(const ModelTensor& tensor, const v1::LayerShare& held, FfnWeights* ffn) {
    const IndexRange experts = RangeOf(held.experts());
    if (tensor.expert < experts.begin || tensor.expert >= experts.end) return absl::OkStatus();
    if (tensor.role == TensorRole::kExpertUpBias || tensor.role == TensorRole::kExpertDownBias) {
      return AddExpertBias(tensor, experts, ffn);
    }
    auto& matrices = tensor.role == TensorRole::kExpertUp ? ffn->expert_up : ffn->expert_down;
    matrices.resize(experts.size());
    const auto index = static_cast<size_t>(tensor.expert - experts.begin);
    kernels::PackedWeights& matrix = matrices[index];
    if (absl::Status s = AddMatrix(tensor, &held, &matrix); !s.ok()) return s;
    // Experts of a layer are computed together.
    if (matrix.spec.weight_dtype == matrices[0].spec.weight_dtype) return absl::OkStatus();
    return absl::InvalidArgumentError(
        StrCat("of '", tensor.parts[0].name,
               "' and those of the experts before it only some are int4: not supported"));
  }

  // All of the rank's experts are in one vector.
  absl::Status AddExpertBias(const ModelTensor& tensor, const IndexRange& experts,
                             FfnWeights* ffn) {
    TensorView& target =
        tensor.role == TensorRole::kExpertUpBias ? ffn->expert_up_bias : ffn->expert_down_bias;
    int64_t size = 0;
    for (const TensorPart& part : tensor.parts) size += part.rows;
    if (tensor.expert == experts.begin) plan_.AddVector(&target, experts.size() * size);
    return AddVectorParts(tensor, "", nullptr, (tensor.expert - experts.begin) * size, &target);
  }

  // One copy serves both. Quantised weights are another matrix than the embedding's.
  bool HeadIsEmbedding() const {
    return model_.tied_embeddings() && share_.holds_embedding() && share_.holds_head() &&
           options_.weight_dtype != DType::kI8;
  }

  // Rows of a table.
  absl::Status AddTable(const ModelTensor& tensor, TensorView* target) {
    const TensorPart& part = tensor.parts[0];
    const auto source = Open(part);
    if (!source.ok()) return source.status();
    const bool compact = options_.weight_dtype != DType::kF32;
    return plan_.AddTable(target, {*source, TakenOf(part, share_, nullptr), {0, part.shape[1]}},
                          compact);
  }

  absl::Status AddNorm(const ModelTensor& tensor, NormWeights* norm) {
    absl::Status status = AddVector(tensor, ".weight", nullptr, &norm->weight);
    if (status.ok() && tensor.bias) status = AddVector(tensor, ".bias", nullptr, &norm->bias);
    return status;
  }

  // A number that the host needs.
  absl::Status ReadNumber(const ModelTensor& tensor, float* number) const {
    const auto found = checkpoint_.Find(tensor.parts[0].name, tensor.parts[0].shape);
    if (!found.ok()) return found.status();
    std::vector<std::byte> raw;
    const absl::Status status = ReadFloats(*found, 1, {0, 1}, {0, 1}, &raw, number);
    if (!status.ok() || (std::isfinite(*number) && *number != 0)) return status;
    return absl::InvalidArgumentError(
        StrCat(found->Describe(), " is ", *number, "; it must be a finite number other than 0"));
  }

  // Weights, or biases, of all parts.
  absl::Status AddVector(const ModelTensor& tensor, std::string_view suffix,
                         const v1::LayerShare* held, TensorView* target) {
    int64_t size = 0;
    for (const TensorPart& part : tensor.parts) size += TakenOfVector(part, held).size();
    plan_.AddVector(target, size);
    return AddVectorParts(tensor, suffix, held, 0, target);
  }

  IndexRange TakenOfVector(const TensorPart& part, const v1::LayerShare* held) const {
    return part.cuts_inputs ? IndexRange{0, part.rows} : TakenOf(part, share_, held);
  }

  // To the elements of the target from `first` on.
  absl::Status AddVectorParts(const ModelTensor& tensor, std::string_view suffix,
                              const v1::LayerShare* held, int64_t first, TensorView* target) {
    for (const TensorPart& part : tensor.parts) {
      const IndexRange taken = TakenOfVector(part, held);
      if (taken.size() == 0 && part.number >= 0) continue;
      // A matrix has a bias of its rows.
      const bool is_bias = suffix == ".bias";
      const absl::Span<const int64_t> shape = part.shape;
      const auto source =
          OpenColumn(checkpoint_, is_bias ? BiasOf(part) : StrCat(part.name, suffix),
                     is_bias ? shape.first(1) : shape);
      if (!source.ok()) return source.status();
      const float added = suffix == ".weight" ? tensor.added : 0;
      auto numbers = InOrder(*source, part.order);
      if (tensor.is_rate) numbers = LogOfRates(std::move(numbers));
      const RowSlice slice = {std::move(numbers), taken, {0, 1}};
      if (absl::Status s = plan_.AddVectorPart(target, first, slice, added); !s.ok()) return s;
      first += slice.rows.size();
    }
    return absl::OkStatus();
  }

  absl::Status AddLinear(const ModelTensor& tensor, const v1::LayerShare* held,
                         LinearWeights* linear) {
    absl::Status status = AddMatrix(tensor, held, &linear->matrix);
    if (!status.ok() || !tensor.bias) return status;
    const TensorPart& part = tensor.parts[0];
    if (part.cuts_inputs && TakenOf(part, share_, held).begin != 0) return status;
    return AddVector(tensor, ".bias", held, &linear->bias);
  }

  // Slices of the parts, one below the other, kept as codes where the checkpoint has all of them
  // so.
  absl::Status AddMatrix(const ModelTensor& tensor, const v1::LayerShare* held,
                         kernels::PackedWeights* matrix) {
    std::vector<RowSlice> slices;
    std::vector<RowForm> forms;
    int64_t out_features = 0;
    for (const TensorPart& part : tensor.parts) {
      const IndexRange taken = TakenOf(part, share_, held);
      const auto source = Open(part);
      if (!source.ok()) return source.status();
      slices.push_back({InputsInOrder(InOrder(*source, part.order), part.inputs),
                        part.cuts_inputs ? IndexRange{0, part.rows} : taken,
                        part.cuts_inputs ? taken : IndexRange{0, InputsOf(part)}});
      const auto form = slices.back().source->FormOf(slices.back().columns);
      if (!form.ok()) return form.status();
      forms.push_back(*form);
      out_features += slices.back().rows.size();
    }
    MakeAlike(&forms);
    LinearSpec spec = SpecOf(forms[0], slices[0].columns.size(), out_features);
    // Where nothing fast computes such groups, elements are better, though they weigh more.
    const bool narrow = forms[0].is_codes() && !ops_.ComputesCodes(spec);
    if (narrow) {
      if (decoded_.narrow_matrices++ == 0) decoded_.narrow = tensor.parts[0].name;
      decoded_.narrow_group = spec.group_size;
    }
    if (narrow || OutweighsInt8(forms[0])) {
      std::fill(forms.begin(), forms.end(), RowForm{});
      spec = SpecOf(forms[0], spec.in_features, out_features);
    }
    plan_.AddMatrix(matrix, spec);
    int64_t row = 0;
    for (size_t i = 0; i < slices.size(); ++i) {
      plan_.AddRows(matrix, row, slices[i], forms[i]);
      NoteDecoded(slices[i], forms[i], spec);
      row += slices[i].rows.size();
    }
    return absl::OkStatus();
  }

  // Codes with more scales than the int8 that was asked for, and planned with.
  bool OutweighsInt8(const RowForm& form) const {
    return options_.weight_dtype == DType::kI8 && form.dtype == DType::kI8 && !form.e2m1 &&
           form.group_size < options_.int8_group_size;
  }

  // From a matrix with rows of each head's key, then of its value, two matrices a head: the first
  // one transposed, as files have it that hold keys and values apart. Both are elements, whatever
  // the checkpoint has.
  absl::Status AddLatentHeads(const ModelTensor& tensor, const v1::LatentAttention& latent,
                              const IndexRange& heads, AttentionWeights* attention) {
    const int64_t plain = latent.plain_dim(), value = latent.value_dim(), rank = latent.rank();
    const auto source = Open(tensor.parts[0]);
    if (!source.ok()) return source.status();
    const bool apart = tensor.parts.size() == 2;
    const auto values_source = apart ? Open(tensor.parts[1]) : source;
    if (!values_source.ok()) return values_source.status();
    const auto form = ElementsOf(**source, apart ? plain : rank);
    if (!form.ok()) return form.status();
    const auto values_form = ElementsOf(**values_source, rank);
    if (!values_form.ok()) return values_form.status();
    const auto transposed =
        apart ? *source : TransposeHeads(*source, *form, {plain + value, plain}, rank);
    const auto values =
        apart ? *values_source
              : InOrder(*source, {.first = plain, .head = value, .stride = plain + value});
    attention->head_queries.resize(heads.size());
    attention->head_values.resize(heads.size());
    for (int64_t head = heads.begin; head < heads.end; ++head) {
      const auto index = static_cast<size_t>(head - heads.begin);
      AddElements({transposed, {head * rank, (head + 1) * rank}, {0, plain}}, *form,
                  &attention->head_queries[index]);
      AddElements({values, {head * value, (head + 1) * value}, {0, rank}}, *values_form,
                  &attention->head_values[index]);
    }
    return absl::OkStatus();
  }

  static absl::StatusOr<RowForm> ElementsOf(const RowSource& source, int64_t columns) {
    auto form = source.FormOf({0, columns});
    if (form.ok() && form->is_codes()) form = RowForm{};
    return form;
  }

  // A slice as a matrix of its own.
  void AddElements(const RowSlice& slice, const RowForm& form, kernels::PackedWeights* matrix) {
    const LinearSpec spec = SpecOf(form, slice.columns.size(), slice.rows.size());
    plan_.AddMatrix(matrix, spec);
    plan_.AddRows(matrix, 0, slice, form);
    NoteDecoded(slice, form, spec);
  }

  // Its rows are the outputs.
  absl::StatusOr<std::shared_ptr<const RowSource>> Open(const TensorPart& part) const {
    if (part.whole_name && checkpoint_.Has(part.name)) {
      return part.inputs_first ? OpenTransposed(checkpoint_, part.name, part.shape)
                               : OpenPlain(checkpoint_, part.name, part.shape);
    }
    return OpenMatrix(checkpoint_, model_, part.name, OutputsOf(part), InputsOf(part));
  }

  // Parts of one matrix are codes of one type with scales for as many inputs, or none is.
  static void MakeAlike(std::vector<RowForm>* forms) {
    int64_t group = 0;
    bool all = true;
    for (const RowForm& form : *forms) {
      all = all && form.is_codes() && form.dtype == (*forms)[0].dtype &&
            form.blocks == (*forms)[0].blocks && form.e2m1 == (*forms)[0].e2m1;
      group = std::gcd(group, form.group_size);
    }
    for (RowForm& form : *forms) {
      if (!form.is_codes()) continue;
      if (all) {
        form.group_size = group;
      } else {
        form = RowForm{};
      }
    }
  }

  void NoteDecoded(const RowSlice& slice, const RowForm& form, LinearSpec spec) {
    if (form.is_codes() || slice.source->code_bits() == 0) return;
    decoded_.stored_bytes +=
        slice.rows.size() * slice.columns.size() * slice.source->code_bits() / 8;
    spec.out_features = slice.rows.size();
    decoded_.held_bytes += ops_.PackedWeightBytes(spec);
  }

  LinearSpec SpecOf(const RowForm& form, int64_t in_features, int64_t out_features) const {
    const bool codes = form.is_codes();  // ops multiply with them as the checkpoint has them
    return {.in_features = in_features,
            .out_features = out_features,
            .weight_dtype = codes ? form.dtype : options_.weight_dtype,
            .group_size = codes ? form.group_size : options_.int8_group_size,
            .blocks = form.blocks,
            .e2m1 = form.e2m1};
  }

  // A router is small and decides a lot: f32 whatever the rest is.
  absl::Status AddRouter(const ModelTensor& tensor, kernels::PackedWeights* router) {
    const TensorPart& part = tensor.parts[0];
    const int64_t experts = part.shape[0], hidden = part.shape[1];
    const auto source = OpenMatrix(checkpoint_, model_, part.name, experts, hidden);
    if (!source.ok()) return source.status();
    const LinearSpec spec = {
        .in_features = hidden, .out_features = experts, .weight_dtype = DType::kF32};
    const RowSlice slice = {*source, {0, experts}, {0, hidden}};
    auto form = slice.source->FormOf(slice.columns);
    if (!form.ok()) return form.status();
    if (form->is_codes()) form = RowForm{};
    plan_.AddMatrix(router, spec);
    plan_.AddRows(router, 0, slice, *form);
    return absl::OkStatus();
  }

  const ModelOptions& options_;
  const v1::Model& model_;
  const v1::WorkerShare& share_;
  TensorNames names_;
  const Checkpoint& checkpoint_;
  kernels::Ops& ops_;
  std::string root_;
  WeightPlan plan_;
  DecodedBytes decoded_;
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
  ModelPlanner planner(options, options.model, checkpoint,
                       checkpoint.is_gguf() ? NamesInGguf(family->tensors) : family->tensors,
                       device.ops());
  const absl::Status status = planner.AddModel(weights.get());
  if (!status.ok()) return status;
  auto loaded = planner.plan().Execute(device, options.pack_later, progress);
  if (!loaded.ok()) return loaded.status();
  weights->memory = std::move(loaded->memory);
  weights->later = std::move(loaded->later);
  weights->decoded = planner.decoded();
  if (weights->decoded.narrow_matrices > 0) {
    Logger("worker").warn(
        "{} matrices, the first '{}', have codes in groups of {}, which the device has no fast "
        "kernel for: they are decoded when they are read",
        weights->decoded.narrow_matrices, weights->decoded.narrow, weights->decoded.narrow_group);
  }
  if (weights->decoded.stored_bytes > 0) {
    Logger("worker").info(
        "quantised weights are decoded when they are read: {:.1f} MiB of codes became {:.1f} MiB",
        static_cast<double>(weights->decoded.stored_bytes) / 0x1p20,
        static_cast<double>(weights->decoded.held_bytes) / 0x1p20);
  }
  return weights;
}

absl::StatusOr<std::unique_ptr<ModelWeights>> LoadDraftHead(
    const ModelOptions& options, const ModelWeights& model, kernels::Device& device,
    const std::function<void(int64_t, int64_t)>& progress) {
  auto checkpoint = Checkpoint::Open(options.folder);
  if (!checkpoint.ok()) return checkpoint.status();
  const Family* family = FindFamily(options.model.architecture());
  ModelOptions head = options;
  head.model = DraftHeadModel(options.model);
  head.share = DraftHeadShare(options.share);
  head.share.set_holds_embedding(!options.share.holds_embedding());
  auto weights = std::make_unique<ModelWeights>();
  ModelPlanner planner(head, options.model, **checkpoint,
                       (*checkpoint)->is_gguf() ? NamesInGguf(family->tensors) : family->tensors,
                       device.ops());
  absl::Status status = planner.AddDraftHead(weights.get());
  if (!status.ok()) {
    return absl::Status(status.code(), StrCat("the model's head for further tokens: ",
                                              std::string(status.message()),
                                              " (the coordinator's --speculate ngram or "
                                              "off needs none)"));
  }
  auto loaded = planner.plan().Execute(device, /*pack_later=*/false, progress);
  if (!loaded.ok()) return loaded.status();
  weights->memory = std::move(loaded->memory);
  weights->head = model.head;
  if (options.share.holds_embedding()) weights->embedding = model.embedding;
  return weights;
}

}  // namespace tessera::worker
