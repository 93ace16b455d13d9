#include "proto/model/families/config_parts.h"

#include <string>
#include <vector>

#include "proto/layers/layers.h"
#include "proto/model/families/rope_config.h"
#include "third_party/absl/str_cat.h"

namespace tessera {
v1::ActivationKind ReadActivation(JsonReader& config, const char* key, std::string_view fallback) {
  const std::string name = config.StringOr(key, fallback);
  if (name == "silu" || name == "swish") return v1::ACTIVATION_KIND_SILU;
  if (name == "relu") return v1::ACTIVATION_KIND_RELU;
  if (name == "gelu") return v1::ACTIVATION_KIND_GELU_ERF;
  if (name == "gelu_new" || name == "gelu_fast" || name == "gelu_pytorch_tanh") {
    return v1::ACTIVATION_KIND_GELU_TANH;
  }
  config.Fail(key, StrCat("'", name,
                          "' is not supported; known are silu, relu, gelu, gelu_new, "
                          "gelu_fast and gelu_pytorch_tanh"));
  return v1::ACTIVATION_KIND_UNSPECIFIED;
}

void ReadHeads(ConfigDraft& draft, v1::Attention* attention) {
  JsonReader& config = draft.config;
  const Family& family = draft.family;
  const int64_t heads = config.Integer("num_attention_heads", 1, kMaxHeads);
  const int64_t kv_default = family.kv_heads == 0 ? heads : family.kv_heads;
  attention->set_heads(heads);
  attention->set_kv_heads(config.IntegerOr("num_key_value_heads", kv_default, 1, kMaxHeads));
  if (!config.ok()) return;
  if (heads % attention->kv_heads() != 0) {
    config.Fail("num_attention_heads",
                StrCat("(", heads, ") is not a multiple of num_key_value_heads (",
                       attention->kv_heads(), ")"));
  }
  const int64_t hidden = draft.model->hidden();
  if (config.Has("head_dim") || family.head_dim != 0) {
    attention->set_head_dim(config.IntegerOr("head_dim", family.head_dim, 1, kMaxHeads));
  } else if (hidden % heads != 0) {
    config.Fail("hidden_size", StrCat("(", hidden, ") is not a multiple of num_attention_heads (",
                                      heads, "), and head_dim is not given"));
  } else {
    attention->set_head_dim(hidden / heads);
  }
}

void ReadLlamaLayer(ConfigDraft& draft, v1::LayerKind* layer) {
  JsonReader& config = draft.config;
  v1::Attention& attention = *layer->mutable_attention();
  v1::Ffn& ffn = *layer->mutable_ffn();
  ReadHeads(draft, &attention);
  ffn.set_width(config.Integer("intermediate_size", 1, kMaxWidth));
  ffn.set_gated(true);
  draft.model->set_norm(v1::NORM_KIND_RMS);
  draft.model->set_norm_epsilon(
      config.NumberOr("rms_norm_eps", draft.family.norm_epsilon, 0.0, 1.0));
  ffn.set_activation(ReadActivation(config, "hidden_act", "silu"));
  const bool attention_bias = config.BoolOr("attention_bias", false);
  attention.set_qkv_bias(attention_bias);
  attention.set_output_bias(attention_bias);
  ffn.set_bias(config.BoolOr("mlp_bias", false));
  ReadRotation(draft, &attention);
}

void ReadRotation(ConfigDraft& draft, v1::Attention* attention) {
  ReadRotation(draft, draft.family.rope_theta, draft.family.partial_rotary, attention);
}

void ReadRotation(ConfigDraft& draft, double theta, double partial_rotary,
                  v1::Attention* attention) {
  if (!draft.config.ok()) return;
  const RopeConfig rope = ReadRope(draft.config, theta, partial_rotary, attention->head_dim(),
                                   draft.model->max_positions());
  *attention->mutable_rope() = rope.rope;
  attention->mutable_rope()->set_neighbour_pairs(draft.family.neighbour_pairs);
  draft.model->set_max_positions(rope.max_positions);
}

std::vector<bool> ReadLayerTypes(ConfigDraft& draft,
                                 const std::function<bool(int64_t layer)>& fallback) {
  JsonReader& config = draft.config;
  std::vector<bool> windowed(static_cast<size_t>(draft.layers));
  const std::vector<std::string> types = config.Strings("layer_types");
  if (types.empty()) {
    for (int64_t i = 0; i < draft.layers; ++i) windowed[static_cast<size_t>(i)] = fallback(i);
    return windowed;
  }
  if (static_cast<int64_t>(types.size()) != draft.layers) {
    config.Fail("layer_types",
                StrCat("names ", types.size(), " layers, num_hidden_layers ", draft.layers));
    return windowed;
  }
  for (size_t i = 0; i < types.size(); ++i) {
    windowed[i] = types[i] == "sliding_attention";
    if (windowed[i] || types[i] == "full_attention") continue;
    config.Fail("layer_types", StrCat("'", types[i],
                                      "' is not supported; known are full_attention and "
                                      "sliding_attention"));
  }
  return windowed;
}

void ReadLayerNorm(ConfigDraft& draft, const char* epsilon_key) {
  draft.model->set_norm(v1::NORM_KIND_LAYER);
  draft.model->set_norm_epsilon(
      draft.config.NumberOr(epsilon_key, draft.family.norm_epsilon, 0.0, 1.0));
}

void ReadWindow(ConfigDraft& draft, v1::Attention* attention) {
  // null is "none"; absent is the family's default.
  const bool given = draft.config.HasKey("sliding_window");
  attention->set_window(draft.config.IntegerOr(
      "sliding_window", given ? 0 : draft.family.sliding_window, 1, kMaxPositions));
}

int64_t ReadQwenWindow(ConfigDraft& draft) {
  const int64_t window = draft.config.IntegerOr("sliding_window", 0, 0, kMaxPositions);
  return draft.config.BoolOr("use_sliding_window", false) ? window : 0;
}

void AppendQwenLayers(ConfigDraft& draft, v1::LayerKind layer) {
  const int64_t window = ReadQwenWindow(draft);
  if (window == 0) return AppendLayers(layer, draft.layers, draft.model);
  const int64_t first = draft.config.IntegerOr("max_window_layers", 28, 0, kMaxLayers);
  const auto behind_first = [first](int64_t at) { return at >= first; };
  for (const bool windowed : ReadLayerTypes(draft, behind_first)) {
    layer.mutable_attention()->set_window(windowed ? window : 0);
    AppendLayers(layer, 1, draft.model);
  }
}

void RefuseSharedExperts(JsonReader& config) {
  for (const char* key :
       {"n_shared_experts", "num_shared_experts", "shared_expert_intermediate_size",
        "moe_shared_expert_intermediate_size"}) {
    if (config.IntegerOr(key, 0, 0, kMaxWidth) > 0) {
      config.Fail(key, "shared experts are not supported: their weights would be left out");
    }
  }
}

}  // namespace tessera
