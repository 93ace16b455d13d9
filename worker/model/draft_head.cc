#include "worker/model/draft_head.h"

#include <utility>

#include "proto/layers/layer_sizes.h"
#include "proto/layers/layers.h"
#include "worker/model/model_constants.h"

namespace tessera::worker {

using kernels::DType;
using kernels::TensorView;

absl::StatusOr<std::unique_ptr<DraftHead>> DraftHead::Load(
    const ModelOptions& options, const ModelWeights& model, kernels::Device& device,
    const std::function<void(int64_t, int64_t)>& progress) {
  ModelOptions head = options;
  head.model = DraftHeadModel(options.model);
  head.share = DraftHeadShare(options.share);
  head.limits.max_logit_rows = options.limits.max_sequences;
  auto weights = LoadDraftHead(options, model, device, progress);
  if (!weights.ok()) return weights.status();
  auto buffers = AllocateBuffers(head, **weights, device);
  if (!buffers.ok()) return buffers.status();
  auto fused = device.Allocate(head.limits.max_tokens * 2 * head.model.hidden() *
                               static_cast<int64_t>(sizeof(float)));
  if (!fused.ok()) return fused.status();
  const int64_t layer = options.share.layers().end() - options.share.layers().begin();
  return std::unique_ptr<DraftHead>(new DraftHead(head, layer, *std::move(weights),
                                                  *std::move(buffers), *std::move(fused), &device));
}

DraftHead::DraftHead(const ModelOptions& options, int64_t layer,
                     std::unique_ptr<ModelWeights> weights, ModelBuffers buffers,
                     kernels::Buffer fused, kernels::Device* device)
    : options_(options),
      layer_(layer),
      weights_(std::move(weights)),
      buffers_(std::move(buffers)),
      fused_memory_(std::move(fused)),
      device_(device),
      pass_(options_, *weights_, buffers_, kv_, states_, attention_workspace_, device->ops()) {}

absl::Status DraftHead::Prepare(kernels::Stream& stream) {
  return FillConstants(options_, buffers_, stream);
}

void DraftHead::AttachKv(std::byte* memory, int64_t blocks, int64_t block_tokens) {
  const LayerShape shape = ShapeOf(options_.model, KindOf(options_.model, 0));
  const LayerPart part = PartOf(ShareOf(options_.model, options_.share, 0));
  const auto plane = [&] {
    const TensorView view(memory, options_.kv_dtype,
                          {part.kv_heads, blocks, block_tokens,
                           kernels::KvRowElements(options_.kv_dtype, shape.head_dim)});
    memory += view.Elements() * kernels::SizeInBytes(options_.kv_dtype);
    return view;
  };
  const TensorView keys = plane();
  kv_ = {{.keys = keys, .values = shape.kv_planes == 1 ? keys : plane()}};
}

int64_t DraftHead::AttentionWorkspaceBytes(int64_t max_context_tokens) const {
  const LayerPart part = PartOf(ShareOf(options_.model, options_.share, 0));
  const StepLimits& limits = options_.limits;
  return device_->ops().AttentionWorkspaceBytes(
      {.tokens = limits.max_tokens,
       .sequences = limits.max_sequences,
       .heads = part.query_heads,
       .kv_heads = part.kv_heads,
       .head_dim = ShapeOf(options_.model, KindOf(options_.model, 0)).head_dim,
       .max_context_tokens = max_context_tokens});
}

absl::Status DraftHead::Forward(const StepInputs& given, const TensorView& rows,
                                kernels::Stream& stream) {
  StepInputs step = given;
  step.kv_listener = nullptr;
  const TensorView before = rows.data == nullptr ? pass_.FinalRows(step.token_ids.rows()) : rows;
  const TensorView fused(fused_memory_.data(), DType::kF32,
                         {options_.limits.max_tokens * 2 * options_.model.hidden()});
  absl::Status status = pass_.FuseDrafts(step, before, fused, stream);
  if (status.ok()) status = pass_.PrepareRotation(step, stream);
  if (status.ok()) status = pass_.Layer(0, step, stream);
  if (status.ok()) status = pass_.TellKvListener(layer_, given, stream);
  return status.ok() ? pass_.Head(step, stream) : status;
}

}  // namespace tessera::worker
