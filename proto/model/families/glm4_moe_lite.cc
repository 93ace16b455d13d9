// GLM-4.7-Flash: GLM-4.5's experts behind latent attention.
#include "proto/layers/layers.h"
#include "proto/model/families/config_parts.h"
#include "proto/model/families/latent_config.h"

namespace tessera {
namespace {

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
  AppendMixedLayers(draft, dense, RoutedLayer(dense, experts, shared * experts.width()),
                    ReadListedRoutedLayers(draft));
  ReadLayerDraftHead(draft);
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
