#include "proto/model/families/config_parts.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "proto/layers/layers.h"
#include "proto/model/families/rope_config.h"
#include "third_party/absl/str_cat.h"

namespace tessera {
namespace {

// ACT2CLS of transformers, but for those with weights of their own.
constexpr std::pair<std::string_view, v1::ActivationKind> kActivations[] = {
    {"silu", v1::ACTIVATION_KIND_SILU},
    {"swish", v1::ACTIVATION_KIND_SILU},
    {"relu", v1::ACTIVATION_KIND_RELU},
    {"gelu", v1::ACTIVATION_KIND_GELU_ERF},
    {"gelu_python", v1::ACTIVATION_KIND_GELU_ERF},
    {"gelu_new", v1::ACTIVATION_KIND_GELU_TANH},
    {"gelu_fast", v1::ACTIVATION_KIND_GELU_TANH},
    {"gelu_accurate", v1::ACTIVATION_KIND_GELU_TANH},
    {"gelu_pytorch_tanh", v1::ACTIVATION_KIND_GELU_TANH},
    {"gelu_python_tanh", v1::ACTIVATION_KIND_GELU_TANH},
    {"gelu_10", v1::ACTIVATION_KIND_GELU_10},
    {"quick_gelu", v1::ACTIVATION_KIND_QUICK_GELU},
    {"relu2", v1::ACTIVATION_KIND_RELU2},
    {"relu6", v1::ACTIVATION_KIND_RELU6},
    {"leaky_relu", v1::ACTIVATION_KIND_LEAKY_RELU},
    {"sigmoid", v1::ACTIVATION_KIND_SIGMOID},
    {"tanh", v1::ACTIVATION_KIND_TANH},
    {"linear", v1::ACTIVATION_KIND_LINEAR},
    {"hardswish", v1::ACTIVATION_KIND_HARDSWISH},
    {"mish", v1::ACTIVATION_KIND_MISH},
    {"laplace", v1::ACTIVATION_KIND_LAPLACE},
    {"sqrtsoftplus", v1::ACTIVATION_KIND_SQRT_SOFTPLUS},
};

// `value` as a number with so many binary digits, the nearest one, of two the even one.
double RoundedTo(int digits, double value) {
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(fraction, digits)), exponent - digits);
}

}  // namespace

v1::ActivationKind ReadActivation(JsonReader& config, const char* key, std::string_view fallback) {
  const std::string name = config.StringOr(key, fallback);
  std::string known;
  for (const auto& [activation, kind] : kActivations) {
    if (name == activation) return kind;
    known += StrCat(known.empty() ? "" : ", ", activation);
  }
  config.Fail(key, StrCat("'", name, "' is not supported; known are ", known));
  return v1::ACTIVATION_KIND_UNSPECIFIED;
}

void ReadHeads(ConfigDraft& draft, v1::Attention* attention) {
  JsonReader& config = draft.config;
  const Family& family = draft.family;
  const int64_t heads = family.heads == 0
                            ? config.Integer("num_attention_heads", 1, kMaxHeads)
                            : config.IntegerOr("num_attention_heads", family.heads, 1, kMaxHeads);
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

void ReadAttentionBias(ConfigDraft& draft, v1::Attention* attention) {
  const bool bias = draft.config.BoolOr("attention_bias", false);
  attention->set_qkv_bias(bias);
  attention->set_output_bias(bias);
}

void ReadLlamaFfn(ConfigDraft& draft, const char* activation_key, std::string_view activation,
                  v1::LayerKind* layer) {
  JsonReader& config = draft.config;
  v1::Ffn& ffn = *layer->mutable_ffn();
  ffn.set_width(config.Integer("intermediate_size", 1, kMaxWidth));
  ffn.set_gated(true);
  ffn.set_activation(ReadActivation(config, activation_key, activation));
  draft.model->set_norm(v1::NORM_KIND_RMS);
  draft.model->set_norm_epsilon(
      config.NumberOr("rms_norm_eps", draft.family.norm_epsilon, 0.0, 1.0));
}

void ReadLlamaLayer(ConfigDraft& draft, v1::LayerKind* layer) {
  v1::Attention& attention = *layer->mutable_attention();
  ReadHeads(draft, &attention);
  ReadLlamaFfn(draft, "hidden_act", "silu", layer);
  ReadAttentionBias(draft, &attention);
  layer->mutable_ffn()->set_bias(draft.config.BoolOr("mlp_bias", false));
  ReadRotation(draft, &attention);
}

void ReadCohereLayer(ConfigDraft& draft, v1::LayerKind* layer) {
  JsonReader& config = draft.config;
  v1::Attention& attention = *layer->mutable_attention();
  ReadHeads(draft, &attention);
  ReadLlamaFfn(draft, "hidden_act", "silu", layer);
  ReadAttentionBias(draft, &attention);
  ReadRotation(draft, &attention);
  layer->set_parallel(true);
  layer->set_shared_norm(true);
  ReadLayerNorm(draft, "layer_norm_eps");
  draft.model->set_norm(v1::NORM_KIND_LAYER_WITHOUT_BIAS);
  draft.model->set_logits_scale(config.NumberOr("logit_scale", 0.0625, 1e-9, 1e9));
}

void ReadGraniteMultipliers(ConfigDraft& draft, v1::Attention* attention) {
  constexpr double kMinMultiplier = 1e-9, kMaxMultiplier = 1e9;
  JsonReader& config = draft.config;
  v1::Model& model = *draft.model;
  attention->set_scale(config.NumberOr("attention_multiplier", 1, kMinMultiplier, kMaxMultiplier));
  model.set_embedding_scale(
      config.NumberOr("embedding_multiplier", 1, kMinMultiplier, kMaxMultiplier));
  model.set_residual_scale(
      config.NumberOr("residual_multiplier", 1, kMinMultiplier, kMaxMultiplier));
  model.set_logits_scale(1 / config.NumberOr("logits_scaling", 1, kMinMultiplier, kMaxMultiplier));
}

double GemmaScale(const v1::Model& model, int64_t width) {
  const double scale = std::sqrt(static_cast<double>(width));
  switch (model.dtype()) {
    case v1::DATA_TYPE_BFLOAT16: return RoundedTo(8, scale);
    case v1::DATA_TYPE_FLOAT16: return RoundedTo(11, scale);
    default: return RoundedTo(24, scale);
  }
}

void ScaleGemmaEmbedding(ConfigDraft& draft) {
  draft.model->set_embedding_scale(GemmaScale(*draft.model, draft.model->hidden()));
}

void ReadQueryScale(ConfigDraft& draft, v1::Attention* attention) {
  const double scalar = draft.config.NumberOr("query_pre_attn_scalar", 256, 1e-6, 1e12);
  attention->set_scale(1 / std::sqrt(scalar));
}

void RefuseBidirectional(ConfigDraft& draft) {
  constexpr const char* kKey = "use_bidirectional_attention";
  JsonReader& config = draft.config;
  // "vision": tokens of images alone, of which there are none.
  if (config.Has(kKey) && config.At(kKey).is_string() && config.StringOr(kKey, "") == "vision") {
    return;
  }
  if (config.BoolOr(kKey, false)) {
    config.Fail(kKey, "true (an embedding model: tokens see those behind them) is not supported");
  }
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

void ReadQueryGain(ConfigDraft& draft, v1::Attention* attention) {
  constexpr const char* kRope = "rope_parameters";
  JsonReader& config = draft.config;
  const char* key = config.Has(kRope) ? kRope : "rope_scaling";
  if (!config.Has(key) || !config.At(key).is_object()) return;
  JsonReader rope = config.Nested(key);
  constexpr const char* kPeriod = "original_max_position_embeddings";
  attention->set_query_gain(rope.NumberOr("llama_4_scaling_beta", 0, 0, 1e6));
  if (attention->query_gain() != 0) {
    JsonReader& reader = config.Has(kPeriod) ? config : rope;
    attention->set_query_gain_period(reader.Integer(kPeriod, 1, kMaxPositions));
  }
  config.Adopt(rope.status());
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

int64_t ReadWindowSize(ConfigDraft& draft) {
  // null is "none"; absent is the family's default.
  const bool given = draft.config.HasKey("sliding_window");
  return draft.config.IntegerOr("sliding_window", given ? 0 : draft.family.sliding_window, 1,
                                kMaxPositions);
}

void ReadWindow(ConfigDraft& draft, v1::Attention* attention) {
  attention->set_window(ReadWindowSize(draft));
}

std::vector<bool> ReadPatternLayers(ConfigDraft& draft, int64_t pattern) {
  const int64_t nth = draft.config.IntegerOr("sliding_window_pattern", pattern, 1, kMaxLayers);
  return ReadLayerTypes(draft, [nth](int64_t layer) { return (layer + 1) % nth != 0; });
}

int64_t ReadQwenWindow(ConfigDraft& draft) {
  const int64_t window = draft.config.IntegerOr("sliding_window", 0, 0, kMaxPositions);
  return draft.config.BoolOr("use_sliding_window", false) ? window : 0;
}

void AppendQwenLayers(ConfigDraft& draft, v1::LayerKind layer) {
  const int64_t window = ReadQwenWindow(draft);
  if (window == 0) {
    draft.config.Pass("max_window_layers");
    draft.config.Pass("layer_types");
    return AppendLayers(layer, draft.layers, draft.model);
  }
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

void ReadLayerDraftHead(ConfigDraft& draft) {
  const int64_t layers = draft.config.IntegerOr("num_nextn_predict_layers", 0, 0, kMaxLayers);
  if (!draft.config.ok() || layers != 1 || draft.model->layers().empty()) return;
  SetDraftHead(draft.model->kinds(draft.model->layers().rbegin()->kind()), draft.model);
}

}  // namespace tessera
