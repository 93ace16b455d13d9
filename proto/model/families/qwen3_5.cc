// Qwen3.5, 3.6 and 3.8 (dense), alone and as the text part of what takes images: three gated delta
// nets for each layer that attends. Rotations for images (mrope) are plain ones for text.
#include "proto/model/families/config_parts.h"
#include "proto/model/families/delta_config.h"

namespace tessera {
namespace {

void Read(ConfigDraft& draft) {
  v1::LayerKind attending;
  ReadGatedAttention(draft, &attending);
  ReadLlamaFfn(draft, "hidden_act", "silu", &attending);
  AppendDeltaLayers(draft, attending, [](v1::LayerKind layer, int64_t) { return layer; });
}

}  // namespace

extern const Family kQwen35 = {
    .architecture = "Qwen3_5ForCausalLM",
    .name = "Qwen3.5 to 3.8 (text)",
    .read = Read,
    .tensors = kDeltaTensors,
    .vocabulary = 248320,
    .heads = 16,
    .kv_heads = 4,
    .head_dim = 256,
    .max_positions = 32768,
    .partial_rotary = 0.25,
    .gguf = {.architecture = "qwen35",
             .ffn_norm = "post_attention_norm",
             .keys = {{{"nextn_predict_layers", ""}}},  // heads are left out
             .delta = true}};

extern const Family kQwen35Wrapped = {.architecture = "Qwen3_5ForConditionalGeneration",
                                      .name = "Qwen3.5 to 3.8 (their text part)",
                                      .read = Read,
                                      .tensors = Wrapped(kDeltaTensors),
                                      .wrapped = true,
                                      .vocabulary = 248320,
                                      .heads = 16,
                                      .kv_heads = 4,
                                      .head_dim = 256,
                                      .max_positions = 32768,
                                      .partial_rotary = 0.25};

}  // namespace tessera
