// Layers of Qwen3-Next and its descendants in a config.json: gated delta nets between gated
// attention. Failures go to the draft's reader.
#pragma once

#include <cstdint>
#include <functional>

#include "proto/model/families/expert_config.h"
#include "proto/model/families/family.h"

namespace tessera {

// Attention with norms over heads, part of a head rotated, and a gate; the model's norm too. No
// ffn.
void ReadGatedAttention(ConfigDraft& draft, v1::LayerKind* layer);

// `attending` with a gated delta net instead of its attention.
v1::LayerKind ReadDeltaLayer(ConfigDraft& draft, const v1::LayerKind& attending);

// Routed experts beside a shared one with a gate of its own, renormalised where nothing says else.
void ReadGatedExperts(ConfigDraft& draft, const ExpertDefaults& defaults, v1::LayerKind* layer);

// Appends the model's layers, which attend where layer_types says full_attention; without it every
// full_attention_interval-th one. `ffn_of`: a layer as it is with its ffn. `head_layers`: of the
// head for further tokens where the file does not say it.
void AppendDeltaLayers(ConfigDraft& draft, const v1::LayerKind& attending,
                       const std::function<v1::LayerKind(v1::LayerKind, int64_t)>& ffn_of,
                       int64_t head_layers = 0);

// Names of Qwen3.5; norms multiply by 1 + w.
inline constexpr TensorNames kDeltaTensors = [] {
  TensorNames names = kQkNormTensors;
  names.norm_offset = 1;
  names.draft_head = {.base = "mtp.",
                      .layer = "layers.0.",
                      .fuse = "fc",
                      .embedding_norm = "pre_fc_norm_embedding",
                      .hidden_norm = "pre_fc_norm_hidden",
                      .final_norm = "norm"};
  names.delta = {.qkv = "linear_attn.in_proj_qkv",
                 .z = "linear_attn.in_proj_z",
                 .b = "linear_attn.in_proj_b",
                 .a = "linear_attn.in_proj_a",
                 .conv = "linear_attn.conv1d",
                 .decay_log = "linear_attn.A_log",
                 .decay_bias = "linear_attn.dt_bias",
                 .norm = "linear_attn.norm",
                 .output = "linear_attn.out_proj"};
  return names;
}();

// The same with routed experts and a shared one.
inline constexpr TensorNames kDeltaExpertTensors = [] {
  TensorNames names = WithExperts(kDeltaTensors);
  names.shared = "mlp.shared_expert";
  names.shared_gate = "mlp.shared_expert_gate";
  return names;
}();

}  // namespace tessera
