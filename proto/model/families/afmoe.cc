// Trinity (AFMoE): norms before and behind each block and over the heads of q and k, a gate on what
// heads read; only layers with a window are rotated. The first layers are dense, then experts are
// chosen by a sigmoid with a correction, beside shared ones.
#include <cmath>

#include "proto/layers/layers.h"
#include "proto/model/families/config_parts.h"
#include "proto/model/families/expert_config.h"

namespace tessera {
namespace {

void ReadRouter(ConfigDraft& draft, v1::Experts* experts) {
  ReadExperts(draft, {.count = 64, .per_token = 6, .width = 1408}, experts);
  experts->set_score(v1::EXPERT_SCORE_SIGMOID);
  experts->set_correction_bias(true);
  experts->set_renormalise(true);
  experts->set_factor(draft.config.NumberOr("route_scale", 1, 0, 1e6));
}

void Read(ConfigDraft& draft) {
  JsonReader& config = draft.config;
  v1::LayerKind layer;
  ReadLlamaLayer(draft, &layer);
  layer.set_norm_place(v1::NORM_PLACE_BOTH);
  v1::Attention& attention = *layer.mutable_attention();
  attention.set_qk_norm(true);
  attention.set_output_gate(true);
  v1::Experts experts;
  ReadRouter(draft, &experts);
  const int64_t shared = config.IntegerOr("num_shared_experts", 2, 0, kMaxExperts);
  const int64_t first = config.IntegerOr("num_dense_layers", 1, 0, kMaxLayers);
  const int64_t nth = config.IntegerOr("global_attn_every_n_layers", 4, 1, kMaxLayers);
  if (config.BoolOr("mup_enabled", false)) {
    draft.model->set_embedding_scale(std::sqrt(static_cast<double>(draft.model->hidden())));
  }
  v1::LayerKind full = layer;
  full.mutable_attention()->clear_rope();
  ReadWindow(draft, &attention);
  int64_t index = 0;
  for (const bool windowed :
       ReadLayerTypes(draft, [nth](int64_t at) { return (at + 1) % nth != 0; })) {
    const v1::LayerKind& dense = windowed ? layer : full;
    AppendLayers(index++ < first ? dense : RoutedLayer(dense, experts, shared * experts.width()), 1,
                 draft.model);
  }
}

constexpr TensorNames kTensors = [] {
  TensorNames names = WithExperts(kQkNormTensors);
  names.attention_after_norm = "post_attention_layernorm";
  names.ffn_norm = "pre_mlp_layernorm";
  names.ffn_after_norm = "post_mlp_layernorm";
  names.head_gate = "self_attn.gate_proj";
  names.router = "mlp.router.gate";
  names.router_correction = "mlp.expert_bias";
  names.shared = "mlp.shared_experts";
  return names;
}();

}  // namespace

extern const Family kAfmoe = {.architecture = "AfmoeForCausalLM",
                              .name = "Trinity (AFMoE)",
                              .read = Read,
                              .tensors = kTensors,
                              .norm_epsilon = 1e-5,
                              .vocabulary = 200192,
                              .head_dim = 128,
                              .max_positions = 16384,
                              .sliding_window = 1024,
                              .gguf = {.architecture = "afmoe",
                                       .with_experts = true,
                                       .config = R"({"mup_enabled": true})",
                                       .keys = {{{"expert_shared_count", "num_shared_experts"},
                                                 {"leading_dense_block_count", "num_dense_layers"},
                                                 {"expert_weights_scale", "route_scale"}}},
                                       .gating = 2}};

}  // namespace tessera
