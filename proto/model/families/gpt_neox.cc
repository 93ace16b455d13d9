// GPT-NeoX, Pythia: LayerNorm, biases, q, k and v of each head together, attention and ffn parallel
// behind norms of their own.
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
  ReadRotation(draft, config.NumberOr("rotary_emb_base", draft.family.rope_theta, 1, 1e12),
               config.NumberOr("rotary_pct", draft.family.partial_rotary, 0, 1), &attention);
  const bool biases = config.BoolOr("attention_bias", true);
  attention.set_qkv_bias(biases);
  attention.set_output_bias(biases);
  ffn.set_width(config.Integer("intermediate_size", 1, kMaxWidth));
  ffn.set_activation(ReadActivation(config, "hidden_act", "gelu"));
  ffn.set_bias(true);
  ReadLayerNorm(draft, "layer_norm_eps");
  layer.set_parallel(config.BoolOr("use_parallel_residual", true));
  AppendLayers(layer, draft.layers, draft.model);
}

constexpr TensorNames kTensors = {.roots = {"gpt_neox.", ""},
                                  .embedding = "embed_in",
                                  .final_norm = "final_layer_norm",
                                  .head = "embed_out",
                                  .other_head = "lm_head",
                                  .layers = "layers",
                                  .attention_norm = "input_layernorm",
                                  .o = "attention.dense",
                                  .qkv = "attention.query_key_value",
                                  .qkv_rows = QkvRows::kByHead,
                                  .ffn_norm = "post_attention_layernorm",
                                  .up = "mlp.dense_h_to_4h",
                                  .down = "mlp.dense_4h_to_h"};

}  // namespace

extern const Family kGptNeoX = {.architecture = "GPTNeoXForCausalLM",
                                .name = "GPT-NeoX, Pythia",
                                .read = Read,
                                .tensors = kTensors,
                                .norm_epsilon = 1e-5,
                                .max_positions = 2048,
                                .partial_rotary = 0.25,
                                .gguf = {.architecture = "gptneox"}};

}  // namespace tessera
