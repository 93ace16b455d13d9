// Mellum 2: Qwen3-MoE with windows by layer, and a rotation for either type of layers.
#include "proto/layers/layers.h"
#include "proto/model/families/config_parts.h"
#include "proto/model/families/expert_config.h"
#include "proto/model/families/rope_config.h"

namespace tessera {
namespace {

// Rotations stand by type of layer in rope_parameters alone.
void RefuseOneRotation(JsonReader& config) {
  for (const char* key : {"rope_theta", "rope_scaling"}) {
    if (!config.Has(key)) continue;
    config.Fail(key,
                "is not read by transformers for this class: write it into rope_parameters, "
                "for each type of layers");
  }
}

void Read(ConfigDraft& draft) {
  JsonReader& config = draft.config;
  v1::LayerKind full;
  v1::Attention& attention = *full.mutable_attention();
  ReadHeads(draft, &attention);
  ReadLlamaFfn(draft, "hidden_act", "silu", &full);
  ReadAttentionBias(draft, &attention);
  attention.set_qk_norm(true);
  RefuseOneRotation(config);
  for (const char* of_head : {"num_mtp_layers", "mtp_layer_types", "mtp_mlp_layer_types"}) {
    config.Pass(of_head);  // for further tokens, which is left out
  }
  if (!config.ok()) return;

  v1::LayerKind windowed = full;
  v1::Attention& with_window = *windowed.mutable_attention();
  const int64_t head_dim = attention.head_dim(), positions = draft.model->max_positions();
  const LayerTypeRope of_full = {"full_attention", "rope_theta", 5e5, false};
  const LayerTypeRope of_windowed = {"sliding_attention", "rope_theta", 1e4, false};
  *attention.mutable_rope() = ReadRopeOfType(config, of_full, head_dim, positions).rope;
  *with_window.mutable_rope() = ReadRopeOfType(config, of_windowed, head_dim, positions).rope;
  with_window.set_window(ReadWindowSize(draft));
  v1::Experts experts;
  ReadExperts(draft, {.count = 64, .per_token = 8, .width = 896}, &experts);
  experts.set_renormalise(config.BoolOr("norm_topk_prob", true));
  const auto is_routed = ReadListedRoutedLayers(draft, 0);
  int64_t index = 0;
  for (const bool has_window : ReadLayerTypes(draft, [](int64_t) { return false; })) {
    const v1::LayerKind& dense = has_window ? windowed : full;
    AppendLayers(is_routed(index++) ? RoutedLayer(dense, experts, 0) : dense, 1, draft.model);
  }
}

}  // namespace

extern const Family kMellum = {.architecture = "MellumForCausalLM",
                               .name = "Mellum 2",
                               .read = Read,
                               .tensors = WithExperts(kQkNormTensors),
                               .vocabulary = 98304,
                               .heads = 32,
                               .kv_heads = 4,
                               .head_dim = 128,
                               .max_positions = 131072,
                               .sliding_window = 1024};

}  // namespace tessera
