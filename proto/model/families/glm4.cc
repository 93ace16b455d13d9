// GLM-4-0414 (dense), alone and as the text part of GLM-4.1V and 4.6V-Flash: norms before and
// behind each block, half of each head rotated by neighbouring pairs, gate and up in one matrix.
#include "proto/layers/layers.h"
#include "proto/model/families/config_parts.h"

namespace tessera {
namespace {

void Read(ConfigDraft& draft) {
  v1::LayerKind layer;
  ReadLlamaLayer(draft, &layer);
  layer.set_norm_place(v1::NORM_PLACE_BOTH);
  layer.mutable_attention()->set_qkv_bias(draft.config.BoolOr("attention_bias", true));
  layer.mutable_attention()->set_output_bias(false);
  AppendLayers(layer, draft.layers, draft.model);
}

// Rotations for images (mrope) are plain ones for text.
void ReadText(ConfigDraft& draft) {
  v1::LayerKind layer;
  ReadLlamaLayer(draft, &layer);
  layer.set_norm_place(v1::NORM_PLACE_BOTH);
  layer.mutable_attention()->set_qkv_bias(true);
  layer.mutable_attention()->set_output_bias(false);
  AppendLayers(layer, draft.layers, draft.model);
}

constexpr TensorNames kTensors = [] {
  TensorNames names = kLlamaTensors;
  names.attention_after_norm = "post_self_attn_layernorm";
  names.ffn_norm = "post_attention_layernorm";  // before the ffn, whatever its name says
  names.ffn_after_norm = "post_mlp_layernorm";
  names.gate_up = "mlp.gate_up_proj";
  return names;
}();

}  // namespace

extern const Family kGlm4 = {.architecture = "Glm4ForCausalLM",
                             .name = "GLM-4-0414",
                             .read = Read,
                             .tensors = kTensors,
                             .norm_epsilon = 1.5625e-7,
                             .kv_heads = 2,
                             .head_dim = 128,
                             .max_positions = 131072,
                             .partial_rotary = 0.5,
                             .neighbour_pairs = true,
                             .gguf = {.architecture = "glm4"}};

extern const Family kGlm4vWrapped = {.architecture = "Glm4vForConditionalGeneration",
                                     .published_as = "Glm46VForConditionalGeneration",
                                     .name = "GLM-4.1V, GLM-4.6V-Flash (their text parts)",
                                     .read = ReadText,
                                     .tensors = Wrapped(kTensors),
                                     .wrapped = true,
                                     .norm_epsilon = 1e-5,
                                     .vocabulary = 151552,
                                     .heads = 32,
                                     .kv_heads = 2,
                                     .max_positions = 32768,
                                     .partial_rotary = 1,
                                     .neighbour_pairs = true};

}  // namespace tessera
