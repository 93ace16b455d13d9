// Solar Open: Llama's attention; in every layer experts chosen by a sigmoid with a correction, and
// shared ones.
#include "proto/layers/layers.h"
#include "proto/model/families/config_parts.h"
#include "proto/model/families/expert_config.h"

namespace tessera {
namespace {

// Keys of GLM-4.5, which the published files keep: at these values the class does what they say.
void ReadKeptKeys(JsonReader& config) {
  config.Pass("intermediate_size");  // of dense layers, of which there are none
  config.IntegerOr("first_k_dense_replace", 0, 0, 0);
  if (config.BoolOr("use_qk_norm", false)) {
    config.Fail("use_qk_norm", "true is not supported for this class: it has no such norms");
  }
}

void Read(ConfigDraft& draft) {
  JsonReader& config = draft.config;
  v1::LayerKind layer;
  v1::Attention& attention = *layer.mutable_attention();
  ReadHeads(draft, &attention);
  ReadAttentionBias(draft, &attention);
  attention.set_output_bias(false);
  ReadRotation(draft, &attention);
  layer.mutable_ffn()->set_gated(true);
  layer.mutable_ffn()->set_activation(ReadActivation(config, "hidden_act", "silu"));
  draft.model->set_norm(v1::NORM_KIND_RMS);
  draft.model->set_norm_epsilon(
      config.NumberOr("rms_norm_eps", draft.family.norm_epsilon, 0.0, 1.0));
  v1::Experts experts;
  ReadExperts(draft, {.count = 128, .per_token = 8, .width = 1280}, &experts);
  experts.set_score(v1::EXPERT_SCORE_SIGMOID);
  experts.set_correction_bias(true);
  ReadScoredRouting(draft, &experts);
  const int64_t shared = config.IntegerOr("n_shared_experts", 1, 0, kMaxExperts);
  ReadKeptKeys(config);
  AppendLayers(RoutedLayer(layer, experts, shared * experts.width()), draft.layers, draft.model);
}

constexpr TensorNames kTensors = [] {
  TensorNames names = WithExperts(kLlamaTensors);
  names.router_correction = "mlp.gate.e_score_correction_bias";
  names.shared = "mlp.shared_experts";
  return names;
}();

}  // namespace

extern const Family kSolarOpen = {.architecture = "SolarOpenForCausalLM",
                                  .name = "Solar Open",
                                  .read = Read,
                                  .tensors = kTensors,
                                  .rope_theta = 1e6,
                                  .norm_epsilon = 1e-5,
                                  .vocabulary = 196608,
                                  .heads = 64,
                                  .kv_heads = 8,
                                  .head_dim = 128,
                                  .max_positions = 131072};

}  // namespace tessera
