// A model's head for further tokens (v1::DraftHead) on one worker of the last stage: one layer with
// keys and values of its own, over rows that the model has computed. It shares embedding and output
// head with the model, and its ranks are cut as the model's.
//
// Thread rule: one thread. Ownership: owns its weights and activations, all allocated by Load;
// borrows the model's weights, the device and, once attached, memory for keys and values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/collectives/group.h"
#include "kernels/device.h"
#include "kernels/ops.h"
#include "worker/model/model.h"
#include "worker/model/model_buffers.h"
#include "worker/model/model_forward.h"
#include "worker/weights/weights.h"

namespace tessera::worker {

class DraftHead {
 public:
  // The head of options.model, beside `model`. Errors name a tensor that is missing.
  static absl::StatusOr<std::unique_ptr<DraftHead>> Load(
      const ModelOptions& options, const ModelWeights& model, kernels::Device& device,
      const std::function<void(int64_t, int64_t)>& progress);
  DraftHead(const DraftHead&) = delete;
  DraftHead& operator=(const DraftHead&) = delete;

  absl::Status Prepare(kernels::Stream& stream);
  // Memory for `blocks` blocks of the layer's keys and values (proto/layers/kv_sizes.h).
  void AttachKv(std::byte* memory, int64_t blocks, int64_t block_tokens);
  int64_t AttentionWorkspaceBytes(int64_t max_context_tokens) const;
  void set_attention_workspace(const kernels::TensorView& workspace) {
    attention_workspace_ = workspace;
  }
  absl::Status JoinRanks(kernels::Group* group, kernels::Stream& stream) {
    return pass_.JoinRanks(group, stream);
  }
  int64_t group_staging_bytes() const { return GroupStagingBytes(buffers_); }

  // See Model::Draft. `rows`: of the model, behind its final norm; no data: its own, of the last
  // Forward. given.kv_listener hears of its layer under the number behind the share's own ones.
  absl::Status Forward(const StepInputs& given, const kernels::TensorView& rows,
                       kernels::Stream& stream);
  kernels::TensorView logits() const { return buffers_.logits; }

  int64_t weight_bytes() const { return weights_->memory.size_bytes(); }
  int64_t activation_bytes() const { return buffers_.bytes + fused_memory_.size_bytes(); }

 private:
  DraftHead(const ModelOptions& options, int64_t layer, std::unique_ptr<ModelWeights> weights,
            ModelBuffers buffers, kernels::Buffer fused, kernels::Device* device);

  const ModelOptions options_;  // of a model that is this layer alone
  const int64_t layer_;         // its number, counted from the share's first layer
  const std::unique_ptr<ModelWeights> weights_;
  const ModelBuffers buffers_;
  const kernels::Buffer fused_memory_;
  kernels::Device* const device_;
  std::vector<kernels::KvCacheView> kv_;
  const std::vector<LayerStates> states_{1};
  kernels::TensorView attention_workspace_;
  ForwardPass pass_;
};

}  // namespace tessera::worker
