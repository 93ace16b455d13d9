// gpt-oss: a sink of each head, every other layer with a window, biases everywhere, and experts
// with a clamped gate, all of a layer in one tensor.
#include <vector>

#include "proto/layers/layers.h"
#include "proto/model/families/config_parts.h"
#include "proto/model/families/expert_config.h"
#include "proto/model/families/rope_config.h"

namespace tessera {
namespace {

void Read(ConfigDraft& draft) {
  JsonReader& config = draft.config;
  v1::LayerKind layer;
  RequireRope(config);
  ReadLlamaLayer(draft, &layer);
  v1::Attention& attention = *layer.mutable_attention();
  const bool biases = config.BoolOr("attention_bias", true);
  attention.set_qkv_bias(biases);
  attention.set_output_bias(biases);
  attention.set_sinks(true);
  v1::Ffn& ffn = *layer.mutable_ffn();
  ffn.set_gate_limit(config.NumberOr("swiglu_limit", 7.0, 1e-6, 1e6));
  ffn.set_gate_alpha(config.NumberOr("swiglu_alpha", 1.702, 0.0, 1e3));
  v1::Experts experts;
  ReadExperts(draft, {.count = 128, .per_token = 4, .width = ffn.width()}, &experts);
  experts.set_renormalise(true);
  experts.set_router_bias(true);
  experts.set_biases(true);
  layer = RoutedLayer(layer, experts, 0);

  // Published files repeat these under other names.
  config.Pass("experts_per_token");
  config.Pass("initial_context_length");

  const int64_t window = config.IntegerOr("sliding_window", 128, 1, kMaxPositions);
  const std::vector<bool> windowed = ReadLayerTypes(draft, [](int64_t i) { return i % 2 == 0; });
  for (const bool slides : windowed) {
    layer.mutable_attention()->set_window(slides ? window : 0);
    AppendLayers(layer, 1, draft.model);
  }
}

constexpr TensorNames kTensors = [] {
  TensorNames names = kLlamaTensors;
  names.router = "mlp.router";
  names.stacked_up = "mlp.experts.gate_up_proj";
  names.stacked_down = "mlp.experts.down_proj";
  names.stacked = StackedExperts::kInputs;
  names.stacked_up_bias = "mlp.experts.gate_up_proj_bias";
  names.stacked_down_bias = "mlp.experts.down_proj_bias";
  names.sinks = "self_attn.sinks";
  return names;
}();

}  // namespace

extern const Family kGptOss = {.architecture = "GptOssForCausalLM",
                               .name = "gpt-oss",
                               .read = Read,
                               .tensors = kTensors,
                               .rope_theta = 150000.0,
                               .norm_epsilon = 1e-5,
                               .kv_heads = 8,
                               .head_dim = 64,
                               .max_positions = 131072,
                               .gguf = {.architecture = "gpt-oss",
                                        .with_experts = true,
                                        .ffn_norm = "post_attention_norm",
                                        .config = R"({"rope_scaling": {"truncate": false}})",
                                        .gating = 3}};

}  // namespace tessera
