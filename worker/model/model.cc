#include "worker/model/model.h"

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "kernels/graph_stream.h"
#include "proto/layers/kv_sizes.h"
#include "proto/layers/layer_sizes.h"
#include "proto/layers/layers.h"
#include "third_party/absl/str_cat.h"
#include "worker/model/draft_head.h"
#include "worker/model/model_buffers.h"
#include "worker/model/model_constants.h"
#include "worker/model/model_dtypes.h"
#include "worker/model/model_forward.h"
#include "worker/model/model_rope.h"
#include "worker/weights/model_share.h"
#include "worker/weights/weights.h"

namespace tessera::worker {
namespace {

using kernels::DType;
using kernels::TensorView;

absl::Status CheckOptions(const ModelOptions& options) {
  const StepLimits& limits = options.limits;
  if (limits.max_tokens < 1 || limits.max_sequences < 1 || limits.max_logit_rows < 1 ||
      limits.max_blocks_per_sequence < 1) {
    return absl::InvalidArgumentError("model: every step limit must be at least 1");
  }
  if (options.weight_dtype != DType::kF32 && options.weight_dtype != DType::kF16 &&
      options.weight_dtype != DType::kBF16 && options.weight_dtype != DType::kI8) {
    return absl::InvalidArgumentError(StrCat("model: weights cannot be computed as ",
                                             Name(options.weight_dtype),
                                             "; use float32, float16, bfloat16 or int8"));
  }
  if (options.kv_dtype != DType::kF32 && options.kv_dtype != DType::kF16 &&
      options.kv_dtype != DType::kBF16 && !kernels::HasKvScales(options.kv_dtype)) {
    return absl::InvalidArgumentError(StrCat("model: KV cannot be kept as ", Name(options.kv_dtype),
                                             "; use float32, float16, bfloat16, int8 or float8"));
  }
  return absl::OkStatus();
}

// Options of the model's draft_model, all of it.
ModelOptions DraftModelOptions(const ModelOptions& options) {
  const v1::DraftModel& draft = options.model.draft_model();
  ModelOptions own = options;
  own.folder = draft.folder();
  own.model = draft.model();
  own.share = WholeModelShare(draft.model());
  own.weight_dtype = options.draft_weight_dtype;
  own.product_dtype = options.draft_product_dtype;
  own.max_model_len_tokens =
      std::min(options.max_model_len_tokens > 0 ? options.max_model_len_tokens
                                                : options.model.max_positions(),
               draft.model().max_positions());
  own.limits = DraftModelLimits(options.limits);
  return own;
}

absl::Status InDraftModel(const v1::Model& model, const absl::Status& status) {
  return absl::Status(status.code(), StrCat("draft model ", model.draft_model().folder(), ": ",
                                            std::string(status.message())));
}

class Transformer : public Model {
 public:
  // `draft_head`, `draft_model`: null: none is used.
  Transformer(const ModelOptions& options, std::unique_ptr<ModelWeights> weights,
              ModelBuffers buffers, std::unique_ptr<DraftHead> draft_head,
              std::unique_ptr<Model> draft_model, kernels::Device* device)
      : options_(options),
        weights_(std::move(weights)),
        buffers_(std::move(buffers)),
        draft_head_(std::move(draft_head)),
        draft_model_(std::move(draft_model)),
        device_(device),
        pass_(options_, *weights_, buffers_, kv_, states_, attention_workspace_, device->ops()) {}

  // Constants that no checkpoint holds: frequencies, ones and numbers.
  absl::Status Prepare() {
    auto stream = device_->CreateStream();
    if (!stream.ok()) return stream.status();
    absl::Status status;
    status = FillConstants(options_, buffers_, **stream);
    if (status.ok() && draft_head_ != nullptr) status = draft_head_->Prepare(**stream);
    return status;
  }

  int64_t KvBlockBytes(int64_t block_tokens) const override {
    return BlockBytesOf(options_.model, options_.share, KvElementOf(options_.kv_dtype),
                        block_tokens, /*windows_apart=*/false)
        .common;
  }

  absl::Status AttachKv(std::byte* memory, KvBlocks blocks, int64_t block_tokens) override {
    if (memory == nullptr || blocks.common < 1 || blocks.window < 0 || block_tokens < 1) {
      return absl::InvalidArgumentError("model: KV needs memory, blocks and block_tokens above 0");
    }
    if ((blocks.seats > 0) != HoldsStates()) {
      return absl::InvalidArgumentError(
          blocks.seats > 0 ? "model: no layer keeps a state, for which there are seats"
                           : "model: layers keep states, for which there are no seats");
    }
    kv_.clear();
    states_.clear();
    blocks_ = blocks;
    // Before all keys and values, which are alike then in all layers that have any.
    for (int64_t layer = 0; layer < Layers(); ++layer) {
      states_.push_back(TakeStates(layer, &memory));
    }
    for (int64_t layer = 0; layer < Layers(); ++layer) {
      const int64_t first = options_.share.layers().begin();
      const int64_t lender = KvLayerOf(options_.model, first + layer) - first;
      if (lender != layer) {
        kv_.push_back(kv_[lender]);
        continue;
      }
      const bool apart = blocks.window > 0 && WindowOfLayer(layer) > 0;
      const int64_t of_layer = apart ? blocks.window : blocks.common;
      const auto plane = [&] {
        const TensorView view(
            memory, options_.kv_dtype,
            {PartOfLayer(layer).kv_heads, of_layer, block_tokens,
             kernels::KvRowElements(options_.kv_dtype, ShapeOfLayer(layer).head_dim)});
        memory += of_layer * PlaneBytes(layer, block_tokens);
        return view;
      };
      const TensorView keys = plane();
      // A latent is key and value.
      const bool one = ShapeOfLayer(layer).kv_planes == 1;
      kv_.push_back({.keys = keys, .values = one ? keys : plane()});
    }
    if (draft_model_ != nullptr) {
      absl::Status status = draft_model_->AttachKv(memory, KvBlocks(blocks.common), block_tokens);
      if (!status.ok()) return InDraftModel(options_.model, status);
      memory += blocks.common * draft_model_->KvBlockBytes(block_tokens);
    }
    if (draft_head_ != nullptr) draft_head_->AttachKv(memory, blocks.common, block_tokens);
    return AllocateAttentionWorkspace(block_tokens);
  }

  int64_t seats() const override { return blocks_.seats; }

  int64_t SeatBytes() const override {
    return BlockBytesOf(options_.model, options_.share, 1, 1, /*windows_apart=*/false).seat;
  }

  std::vector<TensorView> states() const override {
    std::vector<TensorView> views;
    for (const LayerStates& layer : states_) {
      if (layer.delta.empty()) continue;
      views.push_back(layer.conv);
      views.push_back(layer.delta);
    }
    return views;
  }

  absl::Status JoinRanks(kernels::Group* group, kernels::Stream& stream) override {
    joined_ = group != nullptr;
    const absl::Status status = pass_.JoinRanks(group, stream);
    if (!status.ok() || draft_head_ == nullptr) return status;
    return draft_head_->JoinRanks(group, stream);
  }

  int64_t group_staging_bytes() const override {
    const int64_t bytes = GroupStagingBytes(buffers_);
    return draft_head_ == nullptr ? bytes : std::max(bytes, draft_head_->group_staging_bytes());
  }

  bool has_draft_head() const override { return draft_head_ != nullptr; }
  absl::Status Draft(const StepInputs& step, bool goes_on, kernels::Stream& stream) override {
    const int64_t rows = step.token_ids.rows();
    return draft_head_->Forward(step, goes_on ? TensorView() : pass_.NormedRows(rows), stream);
  }
  TensorView draft_logits() const override { return draft_head_->logits(); }
  Model* draft_model() override { return draft_model_.get(); }
  int64_t max_positions() const override {
    return options_.max_model_len_tokens > 0 ? options_.max_model_len_tokens
                                             : options_.model.max_positions();
  }

  absl::Status Forward(const StepInputs& step, kernels::Stream& stream) override {
    if (!joined_ && !IsWholeStage(options_.model, options_.share)) {
      return absl::FailedPreconditionError("model: a rank's part needs JoinRanks before Forward");
    }
    if (absl::Status status = CheckStep(step); !status.ok()) return status;
    auto* repeating = stream.repeating();
    if (repeating != nullptr && !Repeats(step, *repeating)) repeating = nullptr;
    const bool keeps_end = repeating != nullptr && !joined_;
    absl::Status status;
    const auto enqueue = [&] {
      status = EnqueueLayers(step, stream);
      if (status.ok() && keeps_end) status = EnqueueEnd(step, stream);
    };
    if (repeating == nullptr) {
      enqueue();
    } else if (const kernels::GraphStream::Key key = KeyOf(step); !repeating->Replay(key)) {
      repeating->BeginRecording(key);
      enqueue();
      repeating->EndRecording(status.ok());
    }
    // Hosts of ranks gather the parts of the logits.
    return status.ok() && !keeps_end ? EnqueueEnd(step, stream) : status;
  }

  TensorView stage_rows() const override { return buffers_.hidden; }
  TensorView logits() const override { return buffers_.logits; }
  TensorView final_rows() const override { return pass_.FinalRows(buffers_.logit_hidden.rows()); }
  void PackWeights() override {
    if (weights_->later != nullptr) weights_->later->Start();
    if (draft_model_ != nullptr) draft_model_->PackWeights();
  }
  int64_t weight_bytes() const override {
    int64_t bytes = weights_->memory.size_bytes();
    if (draft_head_ != nullptr) bytes += draft_head_->weight_bytes();
    return draft_model_ == nullptr ? bytes : bytes + draft_model_->weight_bytes();
  }
  int64_t waiting_weight_bytes() const override {
    const int64_t bytes = weights_->later == nullptr ? 0 : weights_->later->waiting_bytes();
    return draft_model_ == nullptr ? bytes : bytes + draft_model_->waiting_weight_bytes();
  }
  int64_t activation_bytes() const override {
    int64_t bytes = buffers_.bytes + attention_memory_.size_bytes();
    if (draft_head_ != nullptr) bytes += draft_head_->activation_bytes();
    return draft_model_ == nullptr ? bytes : bytes + draft_model_->activation_bytes();
  }

 private:
  absl::Status EnqueueLayers(const StepInputs& step, kernels::Stream& stream) {
    absl::Status status;
    if (options_.share.holds_embedding()) status = pass_.Embed(step, stream);
    if (status.ok()) status = pass_.PrepareRotation(step, stream);
    for (size_t i = 0; status.ok() && i < weights_->layers.size(); ++i) {
      status = pass_.Layer(static_cast<int64_t>(i), step, stream);
    }
    return status;
  }

  absl::Status EnqueueEnd(const StepInputs& step, kernels::Stream& stream) {
    return options_.share.holds_head() ? pass_.Head(step, stream) : pass_.EndStage(step, stream);
  }

  // Steps of single tokens come again and again with the same extents. Who hears of keys and values
  // is the host's work, and so are other ranks whose devices do not meet by themselves.
  bool Repeats(const StepInputs& step, const kernels::GraphStream& stream) const {
    const int64_t rows = step.token_ids.rows();
    return (!joined_ || rows * MeetingRowBytes() <= stream.group_call_bytes()) &&
           step.kv_listener == nullptr && rows == step.context_lengths.rows();
  }

  // The most bytes of one row that ranks sum, or take from rank 0.
  int64_t MeetingRowBytes() const {
    int64_t elements = 0;
    for (const TensorView* rows : {&buffers_.hidden, &buffers_.narrow, &buffers_.apart,
                                   &buffers_.per_layer, &buffers_.router_logits}) {
      if (rows->data != nullptr) elements = std::max(elements, rows->RowElements());
    }
    return elements * int64_t{sizeof(float)};
  }

  // All that a step's launches depend on, beside what never changes.
  kernels::GraphStream::Key KeyOf(const StepInputs& step) const {
    const auto address = [](const auto* at) { return reinterpret_cast<uint64_t>(at); };
    const auto extent = [](int64_t size) { return static_cast<uint64_t>(size); };
    return {address(this),
            address(kv_[0].keys.data),
            extent(blocks_.common),
            extent(blocks_.window + (blocks_.seats << 32)),
            extent(kv_[0].keys.shape[2]),
            address(step.token_ids.data),
            address(step.positions.data),
            address(step.rope_lengths.data),
            address(step.slots.data),
            address(step.window_slots.data),
            address(step.window_block_tables.data),
            address(step.query_starts.data),
            address(step.context_lengths.data),
            address(step.block_tables.data),
            address(step.logit_rows.data),
            extent(step.token_ids.rows()),
            extent(step.block_tables.shape[1]),
            extent(step.block_tables.row_stride),
            extent(step.logit_rows.rows()),
            extent(static_cast<int64_t>(step.rows_per_sequence))};
  }

  int64_t Layers() const { return static_cast<int64_t>(weights_->layers.size()); }
  // The window of this share's layers, counted from its first one.
  int64_t WindowOfLayer(int64_t index) const {
    return KindOf(options_.model, options_.share.layers().begin() + index).attention().window();
  }
  LayerShape ShapeOfLayer(int64_t index) const {
    return ShapeOf(options_.model, KindOf(options_.model, options_.share.layers().begin() + index));
  }
  LayerPart PartOfLayer(int64_t index) const {
    return PartOf(ShareOf(options_.model, options_.share, options_.share.layers().begin() + index));
  }
  // Keys, or values, of one block in one layer.
  int64_t PlaneBytes(int64_t index, int64_t block_tokens) const {
    const LayerShape shape = ShapeOfLayer(index);
    return KvBytesPerToken(shape, PartOfLayer(index), KvElementOf(options_.kv_dtype)) /
           shape.kv_planes * block_tokens;
  }

  // Whether any of this share's layers keeps a state.
  bool HoldsStates() const {
    for (int64_t layer = 0; layer < Layers(); ++layer) {
      if (PartOfLayer(layer).key_groups > 0) return true;
    }
    return false;
  }
  // A layer's states of all seats, from memory that goes on behind them; empty where it attends.
  LayerStates TakeStates(int64_t layer, std::byte** memory) const {
    const v1::LayerKind& kind = KindOf(options_.model, options_.share.layers().begin() + layer);
    if (!kind.has_delta()) return {};
    const v1::GatedDelta& delta = kind.delta();
    const int64_t groups = PartOfLayer(layer).key_groups;
    const int64_t heads = groups * (delta.value_heads() / delta.key_heads());
    const int64_t channels = 2 * groups * delta.key_dim() + heads * delta.value_dim();
    LayerStates states = {
        .conv = TensorView(*memory, DType::kF32, {blocks_.seats, delta.conv_taps() - 1, channels}),
        .delta = {}};
    *memory += states.conv.Elements() * kStateElementBytes;
    states.delta = TensorView(*memory, DType::kF32,
                              {blocks_.seats, heads, delta.key_dim(), delta.value_dim()});
    *memory += states.delta.Elements() * kStateElementBytes;
    return states;
  }

  // Depends on block_tokens, which Load does not know; the most of any layer.
  absl::Status AllocateAttentionWorkspace(int64_t block_tokens) {
    const StepLimits& limits = options_.limits;
    int64_t bytes = 0;
    for (int64_t layer = 0; layer < Layers(); ++layer) {
      if (PartOfLayer(layer).kv_heads == 0) continue;
      const kernels::AttentionShape shape = {
          .tokens = limits.max_tokens,
          .sequences = std::min(limits.max_sequences, limits.max_tokens),
          .heads = PartOfLayer(layer).query_heads,
          .kv_heads = PartOfLayer(layer).kv_heads,
          .head_dim = ShapeOfLayer(layer).head_dim,
          .max_context_tokens = MaxTableWidth() * block_tokens};
      bytes = std::max(bytes, device_->ops().AttentionWorkspaceBytes(shape));
    }
    if (draft_head_ != nullptr) {
      bytes = std::max(bytes, draft_head_->AttentionWorkspaceBytes(MaxTableWidth() * block_tokens));
    }
    attention_workspace_ = {};
    attention_memory_ = {};
    if (bytes == 0) return absl::OkStatus();
    auto memory = device_->Allocate(bytes);
    if (!memory.ok()) return memory.status();
    attention_memory_ = *std::move(memory);
    attention_workspace_ = TensorView(attention_memory_.data(), DType::kI8, {bytes});
    if (draft_head_ != nullptr) draft_head_->set_attention_workspace(attention_workspace_);
    return absl::OkStatus();
  }

  // Steps may round the width of their block tables up to a power of two.
  int64_t MaxTableWidth() const {
    return static_cast<int64_t>(
        std::bit_ceil(static_cast<uint64_t>(options_.limits.max_blocks_per_sequence)));
  }

  absl::Status CheckStep(const StepInputs& step) const {
    if (kv_.empty()) return absl::FailedPreconditionError("model: AttachKv comes before Forward");
    if ((blocks_.window > 0) != (step.window_slots.data != nullptr)) {
      return absl::InvalidArgumentError(
          blocks_.window > 0 ? "model: layers with a window have blocks of their own, which the "
                               "step does not name"
                             : "model: the step names window blocks, and there are none");
    }
    if (blocks_.seats > 0 && step.seats.data == nullptr) {
      return absl::InvalidArgumentError("model: layers keep states, and the step names no seats");
    }
    const StepLimits& limits = options_.limits;
    if (step.token_ids.rows() > limits.max_tokens ||
        step.context_lengths.rows() > limits.max_sequences ||
        step.logit_rows.rows() > limits.max_logit_rows ||
        step.block_tables.shape[1] > MaxTableWidth()) {
      return absl::InvalidArgumentError(StrCat(
          "model: a step of ", step.token_ids.rows(), " tokens, ", step.context_lengths.rows(),
          " sequences, ", step.logit_rows.rows(), " logit rows and ", step.block_tables.shape[1],
          " blocks per sequence is above ", "the limits ", limits.max_tokens, ", ",
          limits.max_sequences, ", ", limits.max_logit_rows, " and ", MaxTableWidth()));
    }
    if (step.logit_rows.rows() > step.token_ids.rows()) {
      return absl::InvalidArgumentError(StrCat("model: a step of ", step.token_ids.rows(),
                                               " tokens has no ", step.logit_rows.rows(),
                                               " rows whose logits it could give"));
    }
    return absl::OkStatus();
  }

  const ModelOptions options_;
  const std::unique_ptr<ModelWeights> weights_;
  const ModelBuffers buffers_;
  const std::unique_ptr<DraftHead> draft_head_;
  const std::unique_ptr<Model> draft_model_;
  kernels::Device* const device_;
  std::vector<kernels::KvCacheView> kv_;
  std::vector<LayerStates> states_;  // of all layers, as kv_
  KvBlocks blocks_{0};               // of kv_
  kernels::Buffer attention_memory_;
  TensorView attention_workspace_;
  ForwardPass pass_;
  bool joined_ = false;  // ranks of the stage sum what they compute
};

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> Model::Load(
    const ModelOptions& options, kernels::Device& device,
    const std::function<void(int64_t, int64_t)>& progress) {
  const absl::Status checked = CheckOptions(options);
  if (!checked.ok()) return checked;
  auto weights = LoadWeights(options, device, progress);
  if (!weights.ok()) return weights.status();
  auto buffers = AllocateBuffers(options, **weights, device);
  if (!buffers.ok()) return buffers.status();
  std::unique_ptr<DraftHead> draft_head;
  if (HoldsDraftHead(options.model, options.share)) {
    auto head = DraftHead::Load(options, **weights, device, progress);
    if (!head.ok()) return head.status();
    draft_head = *std::move(head);
  }
  std::unique_ptr<Model> draft_model;
  if (HoldsDraftModel(options.model, options.share)) {
    auto loaded = Load(DraftModelOptions(options), device, progress);
    if (!loaded.ok()) return InDraftModel(options.model, loaded.status());
    draft_model = *std::move(loaded);
  }
  auto model =
      std::make_unique<Transformer>(options, *std::move(weights), *std::move(buffers),
                                    std::move(draft_head), std::move(draft_model), &device);
  const absl::Status prepared = model->Prepare();
  if (!prepared.ok()) return prepared;
  return model;
}

}  // namespace tessera::worker
