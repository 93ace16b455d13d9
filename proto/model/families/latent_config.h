// Latent attention in a config.json, as DeepSeek and its descendants have it, and under which names
// their checkpoints keep it. Failures go to the draft's reader.
#pragma once

#include <cstdint>
#include <string_view>

#include "proto/model/families/expert_config.h"
#include "proto/model/families/family.h"

namespace tessera {

// What a family's configuration class assumes for absent keys.
struct LatentDefaults {
  int64_t rank = 512;
  int64_t query_rank = 1536;  // null in the file: queries are projected from the block's input
  int64_t plain_dim = 128;
  int64_t value_dim = 128;
  bool says_part = false;  // partial_rotary_factor may say which part of a head is rotated
};

// Latent attention (with 64 rotated dimensions where the file says nothing) and a
// dense ffn behind RMS norms.
void ReadLatentLayer(ConfigDraft& draft, const LatentDefaults& defaults, v1::LayerKind* layer);

// Reads what only the first published files say, of which one value is supported: scoring_func,
// topk_method and moe_layer_freq.
void ReadFixedRouting(ConfigDraft& draft, std::string_view scores, std::string_view method);

inline constexpr TensorNames kLatentTensors = [] {
  TensorNames names = WithExperts(kLlamaTensors);
  names.k = names.v = {};
  names.latent = {.down = "self_attn.kv_a_proj_with_mqa",
                  .norm = "self_attn.kv_a_layernorm",
                  .up = "self_attn.kv_b_proj",
                  .query_down = "self_attn.q_a_proj",
                  .query_norm = "self_attn.q_a_layernorm",
                  .query_up = "self_attn.q_b_proj"};
  names.shared = "mlp.shared_experts";
  return names;
}();

// The same with a correction of scores.
inline constexpr TensorNames kCorrectedLatentTensors = [] {
  TensorNames names = kLatentTensors;
  names.router_correction = "mlp.gate.e_score_correction_bias";
  names.draft_head = kLayerDraftHead;
  return names;
}();

// GGUF's keys (GgufFacts::keys).
inline constexpr GgufFacts::Keys kLatentGgufKeys = {
    {{.gguf = "expert_shared_count", .config = "n_shared_experts"},
     {.gguf = "leading_dense_block_count", .config = "first_k_dense_replace"},
     {.gguf = "expert_weights_scale", .config = "routed_scaling_factor"},
     {.gguf = "expert_weights_norm", .config = "norm_topk_prob"},
     {.gguf = "expert_group_count", .config = "n_group"},
     {.gguf = "expert_group_used_count", .config = "topk_group"}}};

}  // namespace tessera
