// ERNIE 4.5 (dense): Llama rotated by neighbouring pairs; biases of all linears by one key.
#include "proto/layers/layers.h"
#include "proto/model/families/config_parts.h"

namespace tessera {
namespace {

void Read(ConfigDraft& draft) {
  v1::LayerKind layer;
  ReadLlamaLayer(draft, &layer);
  const bool biases = draft.config.BoolOr("use_bias", false);
  layer.mutable_attention()->set_qkv_bias(biases);
  layer.mutable_attention()->set_output_bias(biases);
  layer.mutable_ffn()->set_bias(biases);
  AppendLayers(layer, draft.layers, draft.model);
}

}  // namespace

extern const Family kErnie45 = {
    .architecture = "Ernie4_5ForCausalLM",
    .name = "ERNIE 4.5",
    .read = Read,
    .tensors = kLlamaTensors,
    .rope_theta = 5e5,
    .norm_epsilon = 1e-5,
    .kv_heads = 2,
    .head_dim = 128,
    .max_positions = 131072,
    .neighbour_pairs = true,
    .tied_embeddings = true,
    .gguf = {.architecture = "ernie4_5", .flags = {{{"use_bias", "attn_q.bias"}}}}};

}  // namespace tessera
