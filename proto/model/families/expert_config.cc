#include "proto/model/families/expert_config.h"

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <string>
#include <vector>

#include "proto/layers/layers.h"
#include "proto/model/families/config_parts.h"
#include "third_party/absl/str_cat.h"

namespace tessera {
namespace {

// The first of these keys that the config has, or the first one.
const char* KeyOf(const JsonReader& config, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    if (config.Has(key)) return key;
  }
  return *keys.begin();
}

// A number, or a list of one for each layer (Hunyuan), all equal. The default 0: it must be given.
int64_t ReadAlike(JsonReader& config, const char* key, int64_t default_value, int64_t max) {
  if (!config.Has(key)) {
    return default_value == 0 ? config.Integer(key, 1, max) : default_value;
  }
  const std::vector<int64_t> numbers = config.Integers(key, 1, max);
  if (!config.ok()) return default_value;
  if (!numbers.empty() &&
      std::count(numbers.begin(), numbers.end(), numbers[0]) == std::ssize(numbers)) {
    return numbers[0];
  }
  config.Fail(key, "differs from layer to layer, which is not supported");
  return default_value;
}

}  // namespace

void ReadExperts(ConfigDraft& draft, const ExpertDefaults& defaults, v1::Experts* experts) {
  JsonReader& config = draft.config;
  const char* count =
      KeyOf(config, {"num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"});
  const char* per_token =
      KeyOf(config, {"num_experts_per_tok", "moe_k", "moe_topk", "top_k_experts"});
  experts->set_count(ReadAlike(config, count, defaults.count, kMaxExperts));
  experts->set_per_token(ReadAlike(config, per_token, defaults.per_token, kMaxExperts));
  experts->set_width(ReadAlike(config, "moe_intermediate_size", defaults.width, kMaxWidth));
  if (!config.ok() || experts->per_token() <= experts->count()) return;
  config.Fail(per_token, StrCat("(", experts->per_token(), ") is above the number of experts (",
                                experts->count(), ")"));
}

void ReadExpertGroups(ConfigDraft& draft, const RoutingDefaults& defaults, v1::Experts* experts) {
  JsonReader& config = draft.config;
  const int64_t groups = config.IntegerOr("n_group", defaults.groups, 1, kMaxExpertGroups);
  const int64_t kept =
      config.IntegerOr("topk_group", defaults.groups_per_token, 1, kMaxExpertGroups);
  if (!config.ok() || groups == 1) return;
  experts->set_groups(groups);
  experts->set_groups_per_token(kept);
  if (absl::Status fits = CheckGroups(*experts); !fits.ok()) {
    config.Fail("n_group", std::string(fits.message()));
  }
}

void ReadScoredRouting(ConfigDraft& draft, v1::Experts* experts, const RoutingDefaults& defaults) {
  JsonReader& config = draft.config;
  experts->set_renormalise(config.BoolOr("norm_topk_prob", true));
  experts->set_factor(config.NumberOr("routed_scaling_factor", defaults.factor, 0.0, 1e6));
  ReadExpertGroups(draft, defaults, experts);
}

v1::LayerKind RoutedLayer(const v1::LayerKind& dense, const v1::Experts& experts,
                          int64_t shared_width) {
  v1::LayerKind routed = dense;
  routed.mutable_ffn()->set_width(shared_width);
  *routed.mutable_ffn()->mutable_experts() = experts;
  return routed;
}

void AppendMixedLayers(ConfigDraft& draft, const v1::LayerKind& dense, const v1::LayerKind& routed,
                       const std::function<bool(int64_t layer)>& is_routed) {
  for (int64_t i = 0; i < draft.layers; ++i) {
    AppendLayers(is_routed(i) ? routed : dense, 1, draft.model);
  }
}

std::function<bool(int64_t layer)> ReadQwenRoutedLayers(ConfigDraft& draft) {
  const int64_t step = draft.config.IntegerOr("decoder_sparse_step", 1, 1, kMaxLayers);
  std::vector<bool> routed(static_cast<size_t>(draft.layers));
  for (int64_t i = 0; i < draft.layers; ++i) routed[static_cast<size_t>(i)] = (i + 1) % step == 0;
  for (const int64_t layer : draft.config.Integers("mlp_only_layers", 0, kMaxLayers)) {
    if (layer < draft.layers) routed[static_cast<size_t>(layer)] = false;
  }
  return [routed](int64_t layer) { return routed[static_cast<size_t>(layer)]; };
}

std::function<bool(int64_t layer)> ReadListedRoutedLayers(ConfigDraft& draft, int64_t first) {
  constexpr const char* kTypes = "mlp_layer_types";
  JsonReader& config = draft.config;
  first = config.IntegerOr("first_k_dense_replace", first, 0, kMaxLayers);
  const std::vector<std::string> types = config.Strings(kTypes);
  if (types.empty()) return [first](int64_t layer) { return layer >= first; };
  std::vector<bool> routed(static_cast<size_t>(draft.layers));
  if (types.size() != routed.size()) {
    config.Fail(kTypes,
                StrCat("names ", types.size(), " layers, num_hidden_layers ", routed.size()));
  }
  for (size_t i = 0; i < routed.size() && config.ok(); ++i) {
    routed[i] = types[i] == "sparse";
    if (routed[i] || types[i] == "dense") continue;
    config.Fail(kTypes, StrCat("'", types[i], "' is not supported; known are dense and sparse"));
  }
  return [routed](int64_t layer) { return routed[static_cast<size_t>(layer)]; };
}

}  // namespace tessera
