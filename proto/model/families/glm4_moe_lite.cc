// GLM-4.7-Flash: GLM-4.5's experts behind latent attention.
#include <string>
#include <vector>

#include "proto/layers/layers.h"
#include "proto/model/families/config_parts.h"
#include "proto/model/families/latent_config.h"
#include "third_party/absl/str_cat.h"

namespace tessera {
namespace {

// By layer: whether it has experts.
std::vector<bool> ReadRouted(ConfigDraft& draft) {
  JsonReader& config = draft.config;
  const int64_t first = config.IntegerOr("first_k_dense_replace", 1, 0, kMaxLayers);
  std::vector<bool> routed;
  for (int64_t i = 0; i < draft.layers; ++i) routed.push_back(i >= first);
  const std::vector<std::string> types = config.Strings("mlp_layer_types");
  if (types.empty()) return routed;
  if (types.size() != routed.size()) {
    config.Fail("mlp_layer_types",
                StrCat("names ", types.size(), " layers, num_hidden_layers ", routed.size()));
    return routed;
  }
  for (size_t i = 0; i < types.size(); ++i) {
    routed[i] = types[i] == "sparse";
    if (routed[i] || types[i] == "dense") continue;
    config.Fail("mlp_layer_types",
                StrCat("'", types[i], "' is not supported; known are dense and sparse"));
  }
  return routed;
}

void Read(ConfigDraft& draft) {
  v1::LayerKind dense;
  ReadLatentLayer(draft, {.query_rank = 768, .plain_dim = 192, .value_dim = 256}, &dense);
  v1::Experts experts;
  ReadExperts(draft, {.count = 64, .per_token = 4, .width = 1536}, &experts);
  experts.set_score(v1::EXPERT_SCORE_SIGMOID);
  experts.set_correction_bias(true);
  ReadFixedRouting(draft, "sigmoid", "noaux_tc");
  ReadScoredRouting(draft, &experts, {.factor = 1.8});
  const int64_t shared = draft.config.IntegerOr("n_shared_experts", 1, 0, kMaxExperts);
  const std::vector<bool> routed = ReadRouted(draft);
  AppendMixedLayers(draft, dense, RoutedLayer(dense, experts, shared * experts.width()),
                    [&routed](int64_t layer) { return routed[static_cast<size_t>(layer)]; });
}

}  // namespace

extern const Family kGlm4MoeLite = {.architecture = "Glm4MoeLiteForCausalLM",
                                    .name = "GLM-4.7-Flash",
                                    .read = Read,
                                    .tensors = kCorrectedLatentTensors,
                                    .norm_epsilon = 1e-5,
                                    .vocabulary = 154880,
                                    .max_positions = 202752};

}  // namespace tessera
