// Qwen3-MoE: Qwen3's attention; routed experts, in some layers perhaps a dense ffn.
#include <vector>

#include "proto/layers/layers.h"
#include "proto/model/families/config_parts.h"

namespace tessera {
namespace {

// By layer.
std::vector<bool> ReadDenseLayers(ConfigDraft& draft) {
  const int64_t step = draft.config.IntegerOr("decoder_sparse_step", 1, 1, kMaxLayers);
  std::vector<bool> dense(static_cast<size_t>(draft.layers));
  for (int64_t i = 0; i < draft.layers; ++i) dense[static_cast<size_t>(i)] = (i + 1) % step != 0;
  for (const int64_t layer : draft.config.Integers("mlp_only_layers", 0, kMaxLayers)) {
    if (layer < draft.layers) dense[static_cast<size_t>(layer)] = true;
  }
  return dense;
}

void Read(ConfigDraft& draft) {
  JsonReader& config = draft.config;
  v1::LayerKind dense;
  ReadLlamaLayer(draft, &dense);
  dense.mutable_attention()->set_qk_norm(true);
  dense.mutable_attention()->set_window(ReadQwenWindow(draft));

  v1::LayerKind routed = dense;
  routed.mutable_ffn()->set_width(0);
  v1::Experts& experts = *routed.mutable_ffn()->mutable_experts();
  // transformers 5 writes the second.
  const char* count = config.Has("num_experts") ? "num_experts" : "num_local_experts";
  experts.set_count(config.IntegerOr(count, 128, 1, kMaxExperts));
  experts.set_per_token(config.IntegerOr("num_experts_per_tok", 8, 1, kMaxExperts));
  experts.set_width(config.IntegerOr("moe_intermediate_size", 768, 1, kMaxWidth));
  experts.set_renormalise(config.BoolOr("norm_topk_prob", false));
  CheckExperts(draft, experts);
  for (const bool is_dense : ReadDenseLayers(draft)) {
    AppendLayers(is_dense ? dense : routed, 1, draft.model);
  }
}

constexpr TensorNames kTensors = [] {
  TensorNames names = kQkNormTensors;
  names.router = "mlp.gate";
  names.experts = "mlp.experts";
  names.expert_gate = "gate_proj";
  names.expert_up = "up_proj";
  names.expert_down = "down_proj";
  return names;
}();

}  // namespace

extern const Family kQwen3Moe = {.architecture = "Qwen3MoeForCausalLM",
                                 .name = "Qwen3-MoE",
                                 .read = Read,
                                 .tensors = kTensors,
                                 .kv_heads = 4,
                                 .max_positions = 32768};

}  // namespace tessera
