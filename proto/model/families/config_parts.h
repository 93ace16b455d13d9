// Parts of a config.json that several families have under the same keys. Failures go to the draft's
// reader; values read after one are defaults.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "proto/model/families/family.h"

namespace tessera {

// Far above any published model, and low enough that the bytes of one layer's KV or of one matrix
// do not overflow.
inline constexpr int64_t kMaxWidth = int64_t{1} << 22;
inline constexpr int64_t kMaxHeads = int64_t{1} << 12;
inline constexpr int64_t kMaxExperts = int64_t{1} << 12;
inline constexpr int64_t kMaxPositions = int64_t{1} << 30;

v1::ActivationKind ReadActivation(JsonReader& config, const char* key, std::string_view fallback);

// heads, kv_heads and head_dim.
void ReadHeads(ConfigDraft& draft, v1::Attention* attention);

// Llama and its descendants: RMSNorm before each block, rotary positions, gated ffn. Sets the
// model's norm too.
void ReadLlamaLayer(ConfigDraft& draft, v1::LayerKind* layer);

// Rotary positions of the attention's heads; raises the model's max_positions where the scaling
// stretches it. Requires head_dim.
void ReadRotation(ConfigDraft& draft, v1::Attention* attention);
// The same with another base and part than the family's where the usual keys say nothing.
void ReadRotation(ConfigDraft& draft, double theta, double partial_rotary,
                  v1::Attention* attention);

// Which layers have a window: those that layer_types calls sliding_attention; without it those for
// which `fallback` holds.
std::vector<bool> ReadLayerTypes(ConfigDraft& draft,
                                 const std::function<bool(int64_t layer)>& fallback);

// Layer norms, with their epsilon under `epsilon_key`.
void ReadLayerNorm(ConfigDraft& draft, const char* epsilon_key);

// sliding_window of a family whose layers all have it where it is given.
void ReadWindow(ConfigDraft& draft, v1::Attention* attention);

// Keys a token sees where Qwen's use_sliding_window is set; 0: all.
int64_t ReadQwenWindow(ConfigDraft& draft);
// Appends the model's layers, alike but for Qwen's window: those have it that layer_types
// (transformers 5) calls sliding_attention; without it the layers from max_window_layers on.
void AppendQwenLayers(ConfigDraft& draft, v1::LayerKind layer);

// Refuses shared experts of a family that has none.
void RefuseSharedExperts(JsonReader& config);

}  // namespace tessera
