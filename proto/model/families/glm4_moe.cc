// GLM-4.5, 4.6 and 4.7, alone and as the text part of GLM-4.5V and 4.6V: half of each head rotated,
// perhaps norms over the heads of q and k; the first layers dense, then experts chosen by a sigmoid
// with a correction, and shared ones.

#include "proto/layers/layers.h"
#include "proto/model/families/config_parts.h"
#include "proto/model/families/expert_config.h"

namespace tessera {
namespace {

// Experts behind dense layers that are alike.
void AppendExperts(ConfigDraft& draft, const v1::LayerKind& dense) {
  JsonReader& config = draft.config;
  v1::Experts experts;
  ReadExperts(draft, {.count = 128, .per_token = 8, .width = 1408}, &experts);
  experts.set_score(v1::EXPERT_SCORE_SIGMOID);
  experts.set_correction_bias(true);
  ReadScoredRouting(draft, &experts);
  const int64_t shared = config.IntegerOr("n_shared_experts", 1, 0, kMaxExperts);
  const int64_t first = config.IntegerOr("first_k_dense_replace", 1, 0, kMaxLayers);
  AppendMixedLayers(draft, dense, RoutedLayer(dense, experts, shared * experts.width()),
                    [first](int64_t layer) { return layer >= first; });
}

void Read(ConfigDraft& draft) {
  v1::LayerKind dense;
  ReadLlamaLayer(draft, &dense);
  dense.mutable_attention()->set_output_bias(false);
  dense.mutable_attention()->set_qk_norm(draft.config.BoolOr("use_qk_norm", false));
  AppendExperts(draft, dense);
  ReadLayerDraftHead(draft);
}

// Rotations for images (mrope) are plain ones for text.
void ReadText(ConfigDraft& draft) {
  v1::LayerKind dense;
  ReadLlamaLayer(draft, &dense);
  dense.mutable_attention()->set_qkv_bias(draft.config.BoolOr("attention_bias", true));
  dense.mutable_attention()->set_output_bias(false);
  AppendExperts(draft, dense);
}

constexpr TensorNames kTensors = [] {
  TensorNames names = WithExperts(kQkNormTensors);
  names.router_correction = "mlp.gate.e_score_correction_bias";
  names.shared = "mlp.shared_experts";
  names.draft_head = kLayerDraftHead;
  return names;
}();

constexpr GgufFacts::Keys kGgufKeys = {{{"expert_shared_count", "n_shared_experts"},
                                        {"leading_dense_block_count", "first_k_dense_replace"},
                                        {"expert_group_count", "n_group"},
                                        {"expert_group_used_count", "topk_group"},
                                        {"expert_weights_scale", "routed_scaling_factor"},
                                        {"expert_weights_norm", "norm_topk_prob"},
                                        {"nextn_predict_layers", "num_nextn_predict_layers"}}};

}  // namespace

extern const Family kGlm4Moe = {.architecture = "Glm4MoeForCausalLM",
                                .name = "GLM-4.5, 4.6 and 4.7",
                                .read = Read,
                                .tensors = kTensors,
                                .norm_epsilon = 1e-5,
                                .kv_heads = 8,
                                .max_positions = 131072,
                                .partial_rotary = 0.5,
                                .gguf = {.architecture = "glm4moe",
                                         .with_experts = true,
                                         .ffn_norm = "post_attention_norm",
                                         .flags = {{{"use_qk_norm", "attn_q_norm.weight"}}},
                                         .keys = kGgufKeys,
                                         .gating = 2}};

extern const Family kGlm4vMoeWrapped = {.architecture = "Glm4vMoeForConditionalGeneration",
                                        .name = "GLM-4.5V, GLM-4.6V (their text parts)",
                                        .read = ReadText,
                                        .tensors = Wrapped(kTensors),
                                        .wrapped = true,
                                        .norm_epsilon = 1e-5,
                                        .vocabulary = 151424,
                                        .heads = 96,
                                        .kv_heads = 8,
                                        .max_positions = 65536,
                                        .partial_rotary = 0.5};

}  // namespace tessera
