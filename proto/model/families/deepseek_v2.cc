// DeepSeek V2 and V2-Lite: latent attention; the first layers dense, then experts chosen by their
// softmax, perhaps from the groups of the best ones, and shared ones.
#include <string>

#include "proto/layers/layers.h"
#include "proto/model/families/config_parts.h"
#include "proto/model/families/latent_config.h"

namespace tessera {
namespace {

void ReadRouting(ConfigDraft& draft, v1::Experts* experts) {
  JsonReader& config = draft.config;
  experts->set_factor(config.NumberOr("routed_scaling_factor", 1.0, 0.0, 1e6));
  if (config.BoolOr("norm_topk_prob", false)) {
    config.Fail("norm_topk_prob", "true is not supported for DeepseekV2ForCausalLM");
  }
  const std::string method = config.StringOr("topk_method", "greedy");
  const bool grouped = method == "group_limited_greedy";
  ReadFixedRouting(draft, "softmax", grouped ? method : "greedy");
  if (grouped) {
    experts->set_groups_by_best(true);
    return ReadExpertGroups(draft, {}, experts);
  }
  config.Pass("n_group");
  config.Pass("topk_group");
}

void Read(ConfigDraft& draft) {
  JsonReader& config = draft.config;
  v1::LayerKind dense;
  ReadLatentLayer(draft, {}, &dense);
  v1::Experts experts;
  ReadExperts(draft, {.count = 64, .per_token = 0, .width = 1407}, &experts);
  ReadRouting(draft, &experts);
  const int64_t shared = config.IntegerOr("n_shared_experts", 2, 0, kMaxExperts);
  const int64_t first = config.IntegerOr("first_k_dense_replace", 0, 0, kMaxLayers);
  AppendMixedLayers(draft, dense, RoutedLayer(dense, experts, shared * experts.width()),
                    [first](int64_t layer) { return layer >= first; });
}

}  // namespace

extern const Family kDeepseekV3;
extern const Family kDeepseekV2 = {.architecture = "DeepseekV2ForCausalLM",
                                   .name = "DeepSeek V2 and V2-Lite",
                                   .read = Read,
                                   .tensors = kLatentTensors,
                                   .vocabulary = 102400,
                                   .max_positions = 2048,
                                   .neighbour_pairs = true,
                                   .gguf = {.architecture = "deepseek2",
                                            .with_experts = true,
                                            // One group is all experts.
                                            .config = R"({"topk_method": "group_limited_greedy"})",
                                            .keys = kLatentGgufKeys,
                                            .other_gating = &kDeepseekV3,
                                            .latent = true}};

}  // namespace tessera
