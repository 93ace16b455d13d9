// Experts in a config.json, and under which names most checkpoints keep them. Failures go to the
// draft's reader.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "proto/model/families/family.h"

namespace tessera {

// What a family's configuration class assumes for absent keys.
struct ExpertDefaults {
  int64_t count = 8;
  int64_t per_token = 2;
  int64_t width = 0;  // 0: must be given
};

// count, per_token and width, under any of the names that they have in the families. Refuses more
// experts a token than there are.
void ReadExperts(ConfigDraft& draft, const ExpertDefaults& defaults, v1::Experts* experts);

// The same of how scores are routed.
struct RoutingDefaults {
  double factor = 1;
  int64_t groups = 1, groups_per_token = 1;
};

// Groups of experts, the factor on their weights, and norm_topk_prob, as DeepSeek-V3 and its
// descendants have them.
void ReadScoredRouting(ConfigDraft& draft, v1::Experts* experts,
                       const RoutingDefaults& defaults = {});
// Groups alone: n_group and topk_group.
void ReadExpertGroups(ConfigDraft& draft, const RoutingDefaults& defaults, v1::Experts* experts);

// `dense` with routed experts instead of its ffn, and beside them a shared one of that many
// columns; 0: none.
v1::LayerKind RoutedLayer(const v1::LayerKind& dense, const v1::Experts& experts,
                          int64_t shared_width);

// Appends the model's layers: `routed` where the predicate holds, else `dense`.
void AppendMixedLayers(ConfigDraft& draft, const v1::LayerKind& dense, const v1::LayerKind& routed,
                       const std::function<bool(int64_t layer)>& is_routed);

// Qwen's rule: decoder_sparse_step, mlp_only_layers.
std::function<bool(int64_t layer)> ReadQwenRoutedLayers(ConfigDraft& draft);
// mlp_layer_types, a list of "dense" and "sparse"; without it all layers have experts from the
// first_k_dense_replace on, which is `first` where it is absent.
std::function<bool(int64_t layer)> ReadListedRoutedLayers(ConfigDraft& draft, int64_t first = 1);

// The names of Mixtral, which others have with another router.
constexpr TensorNames WithBlockSparseMoe(TensorNames names, std::string_view stacked_router) {
  names.router = "block_sparse_moe.gate";
  names.experts = "block_sparse_moe.experts";
  names.expert_gate = "w1";
  names.expert_up = "w3";
  names.expert_down = "w2";
  names.stacked_up = "mlp.experts.gate_up_proj";
  names.stacked_down = "mlp.experts.down_proj";
  names.stacked_router = stacked_router;
  return names;
}

// "mlp.gate" and "mlp.experts.<index>.gate_proj", as Qwen and most others have them.
constexpr TensorNames WithExperts(TensorNames names) {
  names.router = "mlp.gate";
  names.experts = "mlp.experts";
  names.expert_gate = "gate_proj";
  names.expert_up = "up_proj";
  names.expert_down = "down_proj";
  names.stacked_up = "mlp.experts.gate_up_proj";
  names.stacked_down = "mlp.experts.down_proj";
  return names;
}

}  // namespace tessera
