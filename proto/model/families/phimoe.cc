// Phi-3.5-MoE: layer norms with biases, biases of attention and head, and two experts a token, each
// with its softmax among those near to it.
#include <nlohmann/json.hpp>

#include "proto/layers/layers.h"
#include "proto/model/families/config_parts.h"
#include "proto/model/families/expert_config.h"

namespace tessera {
namespace {

// longrope: a factor on cosines and sines for either list.
void ReadMscales(ConfigDraft& draft, v1::Rope* rope) {
  if (rope->scaling() != v1::ROPE_SCALING_KIND_LONGROPE) return;
  JsonReader& config = draft.config;
  JsonReader scaling =
      config.Nested(config.Has("rope_scaling") ? "rope_scaling" : "rope_parameters");
  const double of_short = scaling.Number("short_mscale", 1e-6, 1e6);
  if (scaling.Number("long_mscale", 1e-6, 1e6) != of_short) {
    scaling.Fail("long_mscale", "other than short_mscale is not supported");
  }
  rope->set_attention_factor(of_short);
  config.Adopt(scaling.status());
}

void Read(ConfigDraft& draft) {
  JsonReader& config = draft.config;
  v1::LayerKind layer;
  ReadLlamaLayer(draft, &layer);
  v1::Attention& attention = *layer.mutable_attention();
  if (!config.ok()) return;
  ReadMscales(draft, attention.mutable_rope());
  ReadWindow(draft, &attention);
  ReadLayerNorm(draft, "rms_norm_eps");
  draft.model->set_head_bias(config.BoolOr("lm_head_bias", false));
  config.Pass("input_jitter_noise");  // of training
  v1::Experts experts;
  ReadExperts(draft, {.count = 16, .per_token = 2, .width = layer.ffn().width()}, &experts);
  if (config.ok() && experts.per_token() != 2) {
    config.Fail("num_experts_per_tok", "other than 2 is not supported");
  }
  experts.set_score(v1::EXPERT_SCORE_SPARSE_MIXER);
  experts.set_jitter(config.NumberOr("router_jitter_noise", 0.01, 0.0, 1.0));
  AppendLayers(RoutedLayer(layer, experts, 0), draft.layers, draft.model);
}

constexpr TensorNames kTensors = WithBlockSparseMoe(kLlamaTensors, "mlp.router");

// Files have a bias of the head always, and not the factors of longrope that are published.
constexpr std::string_view kGgufConfig =
    R"({"lm_head_bias": true, "rope_scaling": {"short_mscale": 1.243163121016122,
        "long_mscale": 1.243163121016122}})";

}  // namespace

extern const Family kPhimoe = {
    .architecture = "PhimoeForCausalLM",
    .published_as = "PhiMoEForCausalLM",
    .name = "Phi-3.5-MoE",
    .read = Read,
    .tensors = kTensors,
    .rope_theta = 1e6,
    .norm_epsilon = 1e-5,
    .vocabulary = 32064,
    .heads = 32,
    .kv_heads = 8,
    .max_positions = 131072,
    .gguf = {.architecture = "phimoe", .with_experts = true, .config = kGgufConfig}};

}  // namespace tessera
