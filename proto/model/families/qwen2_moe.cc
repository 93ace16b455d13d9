// Qwen1.5-MoE and Qwen2-MoE: Qwen2's attention; routed experts and a shared one with a gate of its
// own, in some layers perhaps a dense ffn.
#include <vector>

#include "proto/layers/layers.h"
#include "proto/model/families/config_parts.h"
#include "proto/model/families/expert_config.h"

namespace tessera {
namespace {

void Read(ConfigDraft& draft) {
  JsonReader& config = draft.config;
  v1::LayerKind dense;
  ReadLlamaLayer(draft, &dense);
  dense.mutable_attention()->set_qkv_bias(config.BoolOr("qkv_bias", true));
  dense.mutable_attention()->set_output_bias(false);
  v1::Experts experts;
  ReadExperts(draft, {.count = 60, .per_token = 4, .width = 1408}, &experts);
  experts.set_renormalise(config.BoolOr("norm_topk_prob", false));
  const int64_t shared = config.IntegerOr("shared_expert_intermediate_size", 5632, 1, kMaxWidth);
  v1::LayerKind routed = RoutedLayer(dense, experts, shared);
  routed.mutable_ffn()->set_shared_gate(true);

  const auto is_routed = ReadQwenRoutedLayers(draft);
  const int64_t window = ReadQwenWindow(draft);
  const int64_t end = config.IntegerOr("max_window_layers", 28, 0, kMaxLayers);
  const auto every_other = [&](int64_t i) { return window > 0 && i % 2 == 0 && i < end; };
  const std::vector<bool> windowed = ReadLayerTypes(draft, every_other);
  for (int64_t i = 0; i < draft.layers; ++i) {
    v1::LayerKind layer = is_routed(i) ? routed : dense;
    layer.mutable_attention()->set_window(windowed[static_cast<size_t>(i)] ? window : 0);
    AppendLayers(layer, 1, draft.model);
  }
}

constexpr TensorNames kTensors = [] {
  TensorNames names = WithExperts(kLlamaTensors);
  names.shared = "mlp.shared_expert";
  names.shared_gate = "mlp.shared_expert_gate";
  return names;
}();

constexpr GgufFacts::Keys kGgufKeys = {
    {{"expert_shared_feed_forward_length", "shared_expert_intermediate_size"},
     {"expert_weights_norm", "norm_topk_prob"}}};

}  // namespace

extern const Family kQwen2Moe = {.architecture = "Qwen2MoeForCausalLM",
                                 .name = "Qwen1.5-MoE and Qwen2-MoE",
                                 .read = Read,
                                 .tensors = kTensors,
                                 .kv_heads = 16,
                                 .max_positions = 32768,
                                 .gguf = {.architecture = "qwen2moe",
                                          .with_experts = true,
                                          .flags = {{{"qkv_bias", "attn_q.bias"}}},
                                          .keys = kGgufKeys}};

}  // namespace tessera
