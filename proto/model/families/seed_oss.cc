// Seed-OSS: Llama with biases on q, k and v, and heads wider than hidden / heads.
#include "proto/layers/layers.h"
#include "proto/model/families/config_parts.h"

namespace tessera {
namespace {

void Read(ConfigDraft& draft) {
  v1::LayerKind layer;
  ReadLlamaLayer(draft, &layer);
  v1::Attention& attention = *layer.mutable_attention();
  attention.set_qkv_bias(draft.config.BoolOr("attention_bias", true));
  attention.set_output_bias(draft.config.BoolOr("attention_out_bias", false));
  AppendLayers(layer, draft.layers, draft.model);
}

}  // namespace

extern const Family kSeedOss = {.architecture = "SeedOssForCausalLM",
                                .name = "Seed-OSS",
                                .read = Read,
                                .tensors = kLlamaTensors,
                                .kv_heads = 8,
                                .head_dim = 128,
                                .max_positions = 524288,
                                .gguf = {.architecture = "seed_oss",
                                         .ffn_norm = "post_attention_norm",
                                         .flags = {{{"attention_out_bias", "attn_output.bias"}}}}};

}  // namespace tessera
