// Qwen3.5 and 3.6 with experts (35B-A3B and larger), alone and as the text part of what takes
// images: Qwen3.5 with routed experts, and a shared one with a gate of its own, in every layer.
#include "proto/model/families/config_parts.h"
#include "proto/model/families/delta_config.h"

namespace tessera {
namespace {

void Read(ConfigDraft& draft) {
  v1::LayerKind attending;
  ReadGatedAttention(draft, &attending);
  ReadGatedExperts(draft, {.count = 256, .per_token = 8, .width = 512}, &attending);
  draft.config.Pass("intermediate_size");  // no layer has an ffn without experts
  AppendDeltaLayers(draft, attending, [](v1::LayerKind layer, int64_t) { return layer; });
}

}  // namespace

extern const Family kQwen35Moe = {
    .architecture = "Qwen3_5MoeForCausalLM",
    .name = "Qwen3.5 MoE (text)",
    .read = Read,
    .tensors = kDeltaExpertTensors,
    .vocabulary = 248320,
    .heads = 16,
    .kv_heads = 2,
    .head_dim = 256,
    .max_positions = 32768,
    .partial_rotary = 0.25,
    .gguf = {.architecture = "qwen35moe",
             .with_experts = true,
             .ffn_norm = "post_attention_norm",
             .keys = {{{"expert_shared_feed_forward_length", "shared_expert_intermediate_size"},
                       {"nextn_predict_layers", ""}}},  // heads are left out
             .delta = true}};

extern const Family kQwen35MoeWrapped = {.architecture = "Qwen3_5MoeForConditionalGeneration",
                                         .name = "Qwen3.5 MoE (its text part)",
                                         .read = Read,
                                         .tensors = Wrapped(kDeltaExpertTensors),
                                         .wrapped = true,
                                         .vocabulary = 248320,
                                         .heads = 16,
                                         .kv_heads = 2,
                                         .head_dim = 256,
                                         .max_positions = 32768,
                                         .partial_rotary = 0.25};

}  // namespace tessera
