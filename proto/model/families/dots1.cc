// dots.llm1: Qwen3's attention, of which the last layers may have a window; the first layers dense,
// then experts chosen by a sigmoid with a correction, and shared ones.
#include "proto/layers/layers.h"
#include "proto/model/families/config_parts.h"
#include "proto/model/families/expert_config.h"

namespace tessera {
namespace {

void Read(ConfigDraft& draft) {
  JsonReader& config = draft.config;
  v1::LayerKind layer;
  ReadLlamaLayer(draft, &layer);
  layer.mutable_attention()->set_qk_norm(true);
  v1::Experts experts;
  ReadExperts(draft, {.count = 0, .per_token = 0}, &experts);
  experts.set_score(v1::EXPERT_SCORE_SIGMOID);
  experts.set_correction_bias(true);
  ReadScoredRouting(draft, &experts);
  experts.set_renormalise(config.BoolOr("norm_topk_prob", false));
  const int64_t shared = config.Integer("n_shared_experts", 0, kMaxExperts);
  const int64_t first = config.IntegerOr("first_k_dense_replace", 0, 0, kMaxLayers);
  const int64_t window = ReadWindowSize(draft);
  const int64_t full = config.IntegerOr("max_window_layers", 62, 0, kMaxLayers);
  const auto behind_full = [&](int64_t at) { return window > 0 && at >= full; };
  int64_t index = 0;
  for (const bool windowed : ReadLayerTypes(draft, behind_full)) {
    layer.mutable_attention()->set_window(windowed ? window : 0);
    AppendLayers(index++ < first ? layer : RoutedLayer(layer, experts, shared * experts.width()), 1,
                 draft.model);
  }
}

constexpr TensorNames kTensors = [] {
  TensorNames names = WithExperts(kQkNormTensors);
  names.router_correction = "mlp.gate.e_score_correction_bias";
  names.shared = "mlp.shared_experts";
  return names;
}();

}  // namespace

extern const Family kDots1 = {
    .architecture = "Dots1ForCausalLM",
    .name = "dots.llm1",
    .read = Read,
    .tensors = kTensors,
    .vocabulary = 152064,
    .kv_heads = 32,
    .max_positions = 2048,
    .sliding_window = 4096,
    .gguf = {.architecture = "dots1",
             .with_experts = true,
             .config = R"({"sliding_window": null})",
             .keys = {{{"expert_shared_count", "n_shared_experts"},
                       {"leading_dense_block_count", "first_k_dense_replace"},
                       {"expert_weights_scale", "routed_scaling_factor"},
                       {"expert_weights_norm", "norm_topk_prob"}}},
             .gating = 2}};

}  // namespace tessera
