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

// Its parts: width, activation (of which the key and the default are given) and the model's norm;
// attention_bias.
void ReadLlamaFfn(ConfigDraft& draft, const char* activation_key, std::string_view activation,
                  v1::LayerKind* layer);
void ReadAttentionBias(ConfigDraft& draft, v1::Attention* attention);

// Cohere: attention and gated ffn behind one layer norm without bias; scaled logits.
void ReadCohereLayer(ConfigDraft& draft, v1::LayerKind* layer);

// Granite: multipliers of embeddings, scores, blocks and logits (these are divided).
void ReadGraniteMultipliers(ConfigDraft& draft, v1::Attention* attention);

// Rotary positions of the attention's heads; raises the model's max_positions where the scaling
// stretches it. Requires head_dim.
void ReadRotation(ConfigDraft& draft, v1::Attention* attention);
// The same with another base and part than the family's where the usual keys say nothing.
void ReadRotation(ConfigDraft& draft, double theta, double partial_rotary,
                  v1::Attention* attention);

// Queries that grow with their position, as rope_parameters say it (llama_4_scaling_beta). The
// period is the rotation's original length, for which the key of the top level wins.
void ReadQueryGain(ConfigDraft& draft, v1::Attention* attention);

// Which layers have a window: those that layer_types calls sliding_attention; without it those for
// which `fallback` holds.
std::vector<bool> ReadLayerTypes(ConfigDraft& draft,
                                 const std::function<bool(int64_t layer)>& fallback);

// num_nextn_predict_layers, behind the model's layers: a head for further tokens, of the last one's
// kind. Several are left out.
void ReadLayerDraftHead(ConfigDraft& draft);

// Layer norms, with their epsilon under `epsilon_key`.
void ReadLayerNorm(ConfigDraft& draft, const char* epsilon_key);

// sliding_window; 0: none.
int64_t ReadWindowSize(ConfigDraft& draft);
// Which layers have it, where every `pattern`th one (sliding_window_pattern may say another number)
// has none.
std::vector<bool> ReadPatternLayers(ConfigDraft& draft, int64_t pattern);
// sliding_window of a family whose layers all have it where it is given.
void ReadWindow(ConfigDraft& draft, v1::Attention* attention);

// Gemma: embeddings are multiplied by the root of their width, rounded to the stored type.
double GemmaScale(const v1::Model& model, int64_t width);
void ScaleGemmaEmbedding(ConfigDraft& draft);
// Gemma 2 and 3: query_pre_attn_scalar.
void ReadQueryScale(ConfigDraft& draft, v1::Attention* attention);
// Refuses use_bidirectional_attention.
void RefuseBidirectional(ConfigDraft& draft);

// Keys a token sees where Qwen's use_sliding_window is set; 0: all.
int64_t ReadQwenWindow(ConfigDraft& draft);
// Appends the model's layers, alike but for Qwen's window: those have it that layer_types
// (transformers 5) calls sliding_attention; without it the layers from max_window_layers on.
void AppendQwenLayers(ConfigDraft& draft, v1::LayerKind layer);

// Refuses shared experts of a family that has none.
void RefuseSharedExperts(JsonReader& config);

}  // namespace tessera
