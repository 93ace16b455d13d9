// Hunyuan: Llama with norms over the heads of q and k behind their rotation, whose base a fixed
// alpha stretches; dense, or with routed experts and a shared one.
#include <cmath>
#include <nlohmann/json.hpp>

#include "proto/layers/layers.h"
#include "proto/model/families/config_parts.h"
#include "proto/model/families/expert_config.h"

namespace tessera {
namespace {

// "dynamic" with an alpha does not depend on lengths: the base is alpha^(d / (d - 2)) times as
// large. Other rotations are as everywhere.
void ReadAlphaRotation(ConfigDraft& draft, v1::Attention* attention) {
  JsonReader& config = draft.config;
  const char* key = config.Has("rope_scaling") ? "rope_scaling" : "rope_parameters";
  if (!config.Has(key) || !config.At(key).is_object()) return ReadRotation(draft, attention);
  JsonReader rope = config.Nested(key);
  const std::string type = rope.StringOr(rope.Has("rope_type") ? "rope_type" : "type", "");
  const double alpha = rope.NumberOr("alpha", 0, 0, 1e9);
  config.Adopt(rope.status());
  if (type != "dynamic" || alpha == 0) return ReadRotation(draft, attention);
  const auto d = static_cast<double>(attention->head_dim());
  const double outer = config.NumberOr("rope_theta", draft.family.rope_theta, 1, 1e12);
  const double theta = rope.NumberOr("rope_theta", outer, 1, 1e12);
  if (attention->head_dim() <= 2 || attention->head_dim() % 2 != 0) {
    config.Fail("head_dim", "must be even and above 2 to be rotated");
    return;
  }
  attention->mutable_rope()->set_theta(theta * std::pow(alpha, d / (d - 2)));
  attention->mutable_rope()->set_rotary_dim(attention->head_dim());
  config.Adopt(rope.status());
}

v1::LayerKind ReadLayer(ConfigDraft& draft) {
  v1::LayerKind layer;
  v1::Attention& attention = *layer.mutable_attention();
  ReadHeads(draft, &attention);
  ReadLlamaFfn(draft, "hidden_act", "silu", &layer);
  ReadAttentionBias(draft, &attention);
  if (!draft.config.ok()) return layer;
  ReadAlphaRotation(draft, &attention);
  attention.set_qk_norm(true);
  attention.set_qk_norm_after_rope(true);
  return layer;
}

void ReadDense(ConfigDraft& draft) { AppendLayers(ReadLayer(draft), draft.layers, draft.model); }

// The shared expert is as wide as the routed ones.
void ReadMoe(ConfigDraft& draft) {
  const v1::LayerKind layer = ReadLayer(draft);
  v1::Experts experts;
  ReadExperts(draft, {.count = 1, .per_token = 1, .width = layer.ffn().width()}, &experts);
  experts.set_renormalise(true);
  AppendLayers(RoutedLayer(layer, experts, experts.width()), draft.layers, draft.model);
}

constexpr TensorNames kTensors = [] {
  TensorNames names = WithExperts(kLlamaTensors);
  names.router = "mlp.gate.wg";
  names.shared = "mlp.shared_mlp";
  names.q_norm = "self_attn.query_layernorm";
  names.k_norm = "self_attn.key_layernorm";
  return names;
}();

// The tensors say how wide the shared expert is.
constexpr GgufFacts::Keys kGgufKeys = {
    {{"expert_shared_count", ""}, {"expert_shared_feed_forward_length", ""}}};

}  // namespace

extern const Family kHunyuanDense = {.architecture = "HunYuanDenseV1ForCausalLM",
                                     .name = "Hunyuan (dense)",
                                     .read = ReadDense,
                                     .tensors = kTensors,
                                     .norm_epsilon = 1e-5,
                                     .max_positions = 2048,
                                     // Its base is the stretched one.
                                     .gguf = {.architecture = "hunyuan-dense"}};

extern const Family kHunyuanMoe = {
    .architecture = "HunYuanMoEV1ForCausalLM",
    .name = "Hunyuan with experts",
    .read = ReadMoe,
    .tensors = kTensors,
    .norm_epsilon = 1e-5,
    .max_positions = 2048,
    .gguf = {.architecture = "hunyuan-moe", .with_experts = true, .keys = kGgufKeys}};

}  // namespace tessera
