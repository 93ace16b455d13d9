// Nemotron-4, Minitron: LayerNorm that multiplies by 1 + w, half of each head rotated, a plain ffn
// of squared ReLU.
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
  ReadAttentionBias(draft, &attention);
  ffn.set_width(config.Integer("intermediate_size", 1, kMaxWidth));
  ffn.set_activation(ReadActivation(config, "hidden_act", "relu2"));
  ffn.set_bias(config.BoolOr("mlp_bias", false));
  ReadLayerNorm(draft, "norm_eps");
  AppendLayers(layer, draft.layers, draft.model);
}

constexpr TensorNames kTensors = [] {
  TensorNames names = kLlamaTensors;
  names.gate = "";
  names.norm_offset = 1;
  return names;
}();

}  // namespace

extern const Family kNemotron = {
    .architecture = "NemotronForCausalLM",
    .name = "Nemotron-4, Minitron",
    .read = Read,
    .tensors = kTensors,
    .norm_epsilon = 1e-5,
    .max_positions = 4096,
    .partial_rotary = 0.5,
    .gguf = {.architecture = "nemotron", .layer_norm_key = "norm_eps"}};

}  // namespace tessera
