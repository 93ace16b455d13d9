// Hunyuan 3 (Hy3): a norm over each head of q and k; the first layers dense, then experts chosen by
// a sigmoid with a correction, and shared ones.
#include "proto/layers/layers.h"
#include "proto/model/families/config_parts.h"
#include "proto/model/families/expert_config.h"

namespace tessera {
namespace {

// Keys of the published files that say what the class does always.
void ReadFixedKeys(JsonReader& config) {
  for (const char* key :
       {"qk_norm", "route_norm", "moe_router_use_sigmoid", "moe_router_enable_expert_bias"}) {
    if (config.BoolOr(key, true)) continue;
    config.Fail(key, "false is not supported: transformers takes it for true");
  }
  config.Pass("enable_moe_fp32_combine");  // sums are of float32 here
  config.Pass("expert_hidden_dim");        // moe_intermediate_size
}

void Read(ConfigDraft& draft) {
  JsonReader& config = draft.config;
  v1::LayerKind dense;
  ReadLlamaLayer(draft, &dense);
  dense.mutable_attention()->set_qk_norm(true);
  v1::Experts experts;
  ReadExperts(draft, {.count = 192, .per_token = 8, .width = 1536}, &experts);
  experts.set_score(v1::EXPERT_SCORE_SIGMOID);
  experts.set_correction_bias(true);
  experts.set_renormalise(true);
  experts.set_factor(config.NumberOr("router_scaling_factor", 2.826, 0.0, 1e6));
  const int64_t shared = config.IntegerOr("num_shared_experts", 1, 0, kMaxExperts);
  ReadFixedKeys(config);
  AppendMixedLayers(draft, dense, RoutedLayer(dense, experts, shared * experts.width()),
                    ReadListedRoutedLayers(draft));
}

// As published.
constexpr TensorNames kTensors = [] {
  TensorNames names = WithExperts(kQkNormTensors);
  names.router = "mlp.router.gate";
  names.router_correction = "mlp.expert_bias";
  names.shared = "mlp.shared_mlp";
  return names;
}();

}  // namespace

extern const Family kHyV3 = {.architecture = "HYV3ForCausalLM",
                             .name = "Hunyuan 3",
                             .read = Read,
                             .tensors = kTensors,
                             .rope_theta = 11158840,
                             .norm_epsilon = 1e-5,
                             .vocabulary = 120832,
                             .heads = 64,
                             .kv_heads = 8,
                             .head_dim = 128,
                             .max_positions = 131072};

}  // namespace tessera
