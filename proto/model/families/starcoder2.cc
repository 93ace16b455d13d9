// StarCoder2: LayerNorm, biases everywhere, a plain ffn, rotary positions, perhaps a window.
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
  ReadWindow(draft, &attention);
  ffn.set_width(config.Integer("intermediate_size", 1, kMaxWidth));
  ffn.set_activation(ReadActivation(config, "hidden_act", "gelu_pytorch_tanh"));
  ReadLayerNorm(draft, "norm_epsilon");
  const bool biases = config.BoolOr("use_bias", true);
  attention.set_qkv_bias(biases);
  attention.set_output_bias(biases);
  ffn.set_bias(biases);
  AppendLayers(layer, draft.layers, draft.model);
}

constexpr TensorNames kTensors = [] {
  TensorNames names = kLlamaTensors;
  names.gate = "";
  names.up = "mlp.c_fc";
  names.down = "mlp.c_proj";
  return names;
}();

}  // namespace

extern const Family kStarcoder2 = {.architecture = "Starcoder2ForCausalLM",
                                   .name = "StarCoder2",
                                   .read = Read,
                                   .tensors = kTensors,
                                   .norm_epsilon = 1e-5,
                                   .kv_heads = 2,
                                   .max_positions = 4096,
                                   .tied_embeddings = true,
                                   .gguf = {.architecture = "starcoder2",
                                            .layer_norm_key = "norm_epsilon",
                                            .flags = {{{"use_bias", "attn_q.bias"}}}}};

}  // namespace tessera
