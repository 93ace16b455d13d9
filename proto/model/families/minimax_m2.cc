// MiniMax M2: part of each head rotated, norms over the full width of q and k; in every layer
// experts chosen by a sigmoid with a correction.
#include "proto/layers/layers.h"
#include "proto/model/families/config_parts.h"
#include "proto/model/families/expert_config.h"

namespace tessera {
namespace {

void Read(ConfigDraft& draft) {
  JsonReader& config = draft.config;
  v1::LayerKind layer;
  ReadLlamaLayer(draft, &layer);
  v1::Attention& attention = *layer.mutable_attention();
  if (config.Has("rotary_dim") && config.ok()) {
    const auto rotary = static_cast<double>(config.Integer("rotary_dim", 2, attention.head_dim()));
    ReadRotation(draft, draft.family.rope_theta, rotary / attention.head_dim(), &attention);
  }
  attention.set_qk_norm(true);
  attention.set_qk_norm_full_width(true);
  v1::Experts experts;
  ReadExperts(draft, {.count = 256, .per_token = 8, .width = layer.ffn().width()}, &experts);
  experts.set_score(v1::EXPERT_SCORE_SIGMOID);
  experts.set_correction_bias(true);
  experts.set_renormalise(true);
  AppendLayers(RoutedLayer(layer, experts, 0), draft.layers, draft.model);
}

constexpr TensorNames kTensors = [] {
  TensorNames names = WithBlockSparseMoe(kQkNormTensors, "mlp.gate");
  names.router_correction = "block_sparse_moe.e_score_correction_bias";
  names.stacked_correction = "mlp.e_score_correction_bias";
  return names;
}();

}  // namespace

extern const Family kMiniMaxM2 = {
    .architecture = "MiniMaxM2ForCausalLM",
    .name = "MiniMax M2",
    .read = Read,
    .tensors = kTensors,
    .rope_theta = 5e6,
    .kv_heads = 8,
    .head_dim = 128,
    .max_positions = 196608,
    .partial_rotary = 1,
    .gguf = {.architecture = "minimax-m2", .with_experts = true, .gating = 2}};

}  // namespace tessera
