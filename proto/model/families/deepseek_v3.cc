// DeepSeek V3, R1 and V3.1, and Kimi K2, alone and as the text part of K2.5: latent attention; the
// first layers dense, then experts chosen by groups from a sigmoid with a correction, and shared
// ones. The layer behind the last one predicts further tokens.
#include "proto/layers/layers.h"
#include "proto/model/families/config_parts.h"
#include "proto/model/families/latent_config.h"

namespace tessera {
namespace {

void Read(ConfigDraft& draft) {
  JsonReader& config = draft.config;
  v1::LayerKind dense;
  ReadLatentLayer(draft, {}, &dense);
  v1::Experts experts;
  ReadExperts(draft, {.count = 256, .per_token = 8, .width = 2048}, &experts);
  experts.set_score(v1::EXPERT_SCORE_SIGMOID);
  experts.set_correction_bias(true);
  ReadFixedRouting(draft, "sigmoid", "noaux_tc");
  ReadScoredRouting(draft, &experts, {.factor = 2.5, .groups = 8, .groups_per_token = 4});
  const int64_t shared = config.IntegerOr("n_shared_experts", 1, 0, kMaxExperts);
  const int64_t first = config.IntegerOr("first_k_dense_replace", 3, 0, kMaxLayers);
  AppendMixedLayers(draft, dense, RoutedLayer(dense, experts, shared * experts.width()),
                    [first](int64_t layer) { return layer >= first; });
  ReadLayerDraftHead(draft);
}

}  // namespace

extern const Family kDeepseekV3 = {.architecture = "DeepseekV3ForCausalLM",
                                   .name = "DeepSeek V3, R1 and V3.1, and Kimi K2",
                                   .read = Read,
                                   .tensors = kCorrectedLatentTensors,
                                   .vocabulary = 129280,
                                   .max_positions = 4096,
                                   .gguf = {.architecture = "deepseek2",
                                            .with_experts = true,
                                            .keys = kLatentGgufKeys,
                                            .gating = 2,
                                            .latent = true}};

extern const Family kKimiK25Wrapped = {.architecture = "Kimi_K25ForConditionalGeneration",
                                       .published_as = "KimiK25ForConditionalGeneration",
                                       .name = "Kimi K2.5 (its text part)",
                                       .read = Read,
                                       .tensors = Wrapped(kCorrectedLatentTensors),
                                       .wrapped = true,
                                       .vocabulary = 129280,
                                       .max_positions = 4096};

}  // namespace tessera
