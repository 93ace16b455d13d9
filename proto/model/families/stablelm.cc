// StableLM 2 and 3B: LayerNorm, a quarter of each head rotated, attention and ffn perhaps parallel
// behind one norm, perhaps a norm of each head of q and k.
#include "proto/layers/layers.h"
#include "proto/model/families/config_parts.h"

namespace tessera {
namespace {

void Read(ConfigDraft& draft) {
  JsonReader& config = draft.config;
  v1::LayerKind layer;
  v1::Attention& attention = *layer.mutable_attention();
  v1::Ffn& ffn = *layer.mutable_ffn();
  ReadHeads(draft, &attention);
  ReadRotation(draft, &attention);
  attention.set_qkv_bias(config.BoolOr("use_qkv_bias", false));
  ffn.set_width(config.Integer("intermediate_size", 1, kMaxWidth));
  ffn.set_gated(true);
  ffn.set_activation(ReadActivation(config, "hidden_act", "silu"));
  ReadLayerNorm(draft, "layer_norm_eps");
  const bool parallel = config.BoolOr("use_parallel_residual", false);
  layer.set_parallel(parallel);
  layer.set_shared_norm(parallel);
  const bool qk_norm = config.BoolOr("qk_layernorm", false);
  attention.set_qk_norm(qk_norm);
  attention.set_qk_norm_by_head(qk_norm);
  AppendLayers(layer, draft.layers, draft.model);
}

constexpr TensorNames kTensors = [] {
  TensorNames names = kLlamaTensors;
  names.q_norm = "self_attn.q_layernorm.norms";
  names.k_norm = "self_attn.k_layernorm.norms";
  names.norm_of_each_head = true;
  return names;
}();

}  // namespace

extern const Family kStableLm = {
    .architecture = "StableLmForCausalLM",
    .name = "StableLM",
    .read = Read,
    .tensors = kTensors,
    .norm_epsilon = 1e-5,
    .max_positions = 4096,
    .partial_rotary = 0.25,
    .gguf = {.architecture = "stablelm",
             .flags = {{{"use_qkv_bias", "attn_q.bias"}, {"qk_layernorm", "attn_q_norm.weight"}}}}};

}  // namespace tessera
