#include "tests/bench/model_steps.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <span>

#include "kernels/graph_stream.h"
#include "kvcache/block_pool.h"
#include "proto/activations.h"
#include "proto/layers/layers.h"
#include "proto/model/model_folder.h"
#include "worker/model/model_dtypes.h"

namespace tessera::bench {
namespace {

using kernels::DType;
using kernels::LinearSpec;

[[noreturn]] void Die(const std::string& why) {
  std::cerr << "model steps: " << why << "\n";
  std::exit(2);
}

void Need(const absl::Status& status) {
  if (!status.ok()) Die(status.ToString());
}

}  // namespace

absl::StatusOr<std::unique_ptr<ModelSteps>> ModelSteps::Load(const ModelStepsOptions& options,
                                                             kernels::Device& device) {
  auto model = ReadModelFolder(options.folder);
  if (!model.ok()) return model.status();
  const kernels::Ops& ops = device.ops();
  const auto types = worker::ResolveDTypes(
      *model, options.weights, v1::DATA_TYPE_UNSPECIFIED,
      {.float16 = ops.ComputesIn(DType::kF16), .bfloat16 = ops.ComputesIn(DType::kBF16)});
  if (!types.ok()) return types.status();
  std::unique_ptr<ModelSteps> steps(new ModelSteps);
  steps->device_ = &device;
  steps->max_batch_ = options.max_batch;
  steps->context_tokens_ =
      (options.context_tokens + kBlockTokens - 1) / kBlockTokens * kBlockTokens;
  worker::ModelOptions& made = steps->options_;
  made.folder = options.folder;
  made.model = *std::move(model);
  made.share = options.share.value_or(WholeModelShare(made.model));
  made.weight_dtype = types->weight_dtype;
  made.kv_dtype = types->kv_dtype;
  made.product_dtype = types->product_dtype;
  made.limits = {.max_tokens = options.max_chunk,
                 .max_sequences = options.max_batch,
                 .max_logit_rows = options.max_batch,
                 .max_blocks_per_sequence = steps->context_tokens_ / kBlockTokens};
  auto loaded = worker::Model::Load(made, device, nullptr);
  if (!loaded.ok()) return loaded.status();
  steps->model_ = *std::move(loaded);
  steps->arrays_ = std::make_unique<worker::StepArrays>(made.limits);
  auto upload = worker::StepUpload::Create(made.limits, device);
  if (!upload.ok()) return upload.status();
  steps->upload_ = *std::move(upload);
  auto stream = device.CreateStream();
  if (!stream.ok()) return stream.status();
  steps->stream_ = *std::move(stream);
  steps->pads_ = steps->stream_->repeating() != nullptr;
  if (absl::Status status = steps->MakeKv(); !status.ok()) return status;
  for (int64_t i = 0; i < steps->context_tokens_; ++i) {
    steps->tokens_.push_back(static_cast<int32_t>(10 + (i * i) % 400));
  }
  return steps;
}

absl::Status ModelSteps::MakeKv() {
  const int64_t blocks = context_tokens_ / kBlockTokens;
  seats_ = KeepsStates(shape()) ? max_batch_ : 0;
  auto kv =
      device_->Allocate(blocks * model_->KvBlockBytes(kBlockTokens) + seats_ * model_->SeatBytes());
  if (!kv.ok()) return kv.status();
  kv_ = *std::move(kv);
  const std::vector<std::byte> zeros(4 << 20);
  for (int64_t begin = 0; begin < kv_.size_bytes();) {
    const int64_t piece = std::min(static_cast<int64_t>(zeros.size()), kv_.size_bytes() - begin);
    absl::Status status = stream_->CopyToDevice(kv_.data() + begin, zeros.data(), piece);
    if (!status.ok()) return status;
    begin += piece;
  }
  if (absl::Status status = stream_->Synchronize(); !status.ok()) return status;
  return model_->AttachKv(kv_.data(), KvBlocks(blocks, 0, seats_), kBlockTokens);
}

absl::Status ModelSteps::Join(kernels::Group* group, int64_t device_bytes) {
  if (stream_->repeating() != nullptr) stream_->repeating()->set_group_call_bytes(device_bytes);
  return model_->JoinRanks(group, *stream_);
}

int64_t ModelSteps::graphs() const {
  return stream_->repeating() == nullptr ? 0 : stream_->repeating()->kept().count;
}

double ModelSteps::Decode(int64_t batch, int64_t context) {
  const int64_t blocks_each = (context + kBlockTokens - 1) / kBlockTokens;
  if (batch > max_batch_ || batch * blocks_each * kBlockTokens > context_tokens_) {
    Die(std::to_string(batch) + " sequences of " + std::to_string(context) + " tokens are above " +
        std::to_string(max_batch_) + " sequences or " + std::to_string(context_tokens_) +
        " tokens in all");
  }
  kvcache::BlockPool blocks(static_cast<int32_t>(context_tokens_ / kBlockTokens), kBlockTokens);
  std::vector<kvcache::BlockTable> tables;
  for (int64_t i = 0; i < batch; ++i) {
    tables.emplace_back(&blocks);
    tables.back().Grow(context);
  }
  arrays_->Begin();
  for (int64_t i = 0; i < batch; ++i) {
    const std::span<const int32_t> known(tokens_.data(), context);
    arrays_->AddLogitRow(arrays_->AddSequence({.tokens = known,
                                               .prompt_tokens = context,
                                               .first = context - 1,
                                               .rows = 1,
                                               .blocks = &tables[i],
                                               .seat = Seat(i)}));
  }
  return RunStep();
}

double ModelSteps::Prefill(int64_t tokens, int64_t chunk) {
  kvcache::BlockPool blocks(static_cast<int32_t>(context_tokens_ / kBlockTokens), kBlockTokens);
  kvcache::BlockTable table(&blocks);
  table.Grow(tokens);
  double seconds = 0;
  for (int64_t first = 0; first < tokens; first += chunk) {
    const int64_t rows = std::min(chunk, tokens - first);
    arrays_->Begin();
    const int32_t row =
        arrays_->AddSequence({.tokens = std::span<const int32_t>(tokens_.data(), tokens),
                              .prompt_tokens = tokens,
                              .first = first,
                              .rows = rows,
                              .blocks = &table,
                              .seat = Seat(0)});
    if (first + rows == tokens) arrays_->AddLogitRow(row + static_cast<int32_t>(rows) - 1);
    seconds += RunStep();
  }
  return seconds;
}

int64_t ModelSteps::BytesRead(int64_t batch, int64_t context) const {
  const kernels::Ops& ops = device_->ops();
  int64_t layer = 0;
  for (const LinearSpec& spec : LayerSpecs()) layer += ops.PackedWeightBytes(spec);
  return LayerCount(shape()) * layer + ops.PackedWeightBytes(HeadSpec()) +
         batch * context * model_->KvBlockBytes(kBlockTokens) / kBlockTokens;
}

int64_t ModelSteps::Products(int64_t batch, int64_t context) const {
  int64_t layer = 0;
  for (const LinearSpec& spec : LayerSpecs()) layer += spec.in_features * spec.out_features;
  const v1::Model& m = shape();
  return batch * (LayerCount(m) * layer + m.hidden() * m.vocabulary() +
                  2 * LayerCount(m) * m.kinds(0).attention().heads() * KvHeadDim(m) * context);
}

LinearSpec ModelSteps::HeadSpec() const {
  return {.in_features = shape().hidden(),
          .out_features = shape().vocabulary(),
          .weight_dtype = options_.weight_dtype,
          .group_size = options_.int8_group_size};
}

LinearSpec ModelSteps::LayerSpec(int64_t in_features, int64_t out_features) const {
  LinearSpec spec = HeadSpec();
  spec.in_features = in_features;
  spec.out_features = out_features;
  if (KeepsInt4(shape())) {
    spec.weight_dtype = DType::kI4;
    spec.group_size = Int4GroupInputs(shape().quantization().group_size());
  }
  return spec;
}

std::vector<LinearSpec> ModelSteps::LayerSpecs() const {
  const v1::Model& m = shape();
  const v1::Attention& attention = m.kinds(0).attention();
  const v1::Ffn& ffn = m.kinds(0).ffn();
  const int64_t heads = attention.heads() + 2 * attention.kv_heads();
  return {LayerSpec(m.hidden(), heads * attention.head_dim()),
          LayerSpec(attention.heads() * attention.head_dim(), m.hidden()),
          LayerSpec(m.hidden(), (ffn.gated() ? 2 : 1) * ffn.width()),
          LayerSpec(ffn.width(), m.hidden())};
}

double ModelSteps::RunStep() {
  const auto begin = std::chrono::steady_clock::now();
  arrays_->Seal();
  const auto inputs = upload_->Copy(*arrays_, pads_, *stream_);
  Need(inputs.status());
  Need(model_->Forward(*inputs, *stream_));
  Need(stream_->Synchronize());
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace tessera::bench
