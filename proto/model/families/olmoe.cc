// OLMoE: Llama with norms over the full width of q and k, and routed experts in every layer.
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
  layer.mutable_attention()->set_qk_norm_full_width(true);
  if (config.Has("clip_qkv")) {
    layer.mutable_attention()->set_qkv_limit(config.Number("clip_qkv", 1e-6, 1e6));
  }
  v1::Experts experts;
  ReadExperts(draft, {.count = 64, .per_token = 8, .width = layer.ffn().width()}, &experts);
  experts.set_renormalise(config.BoolOr("norm_topk_prob", false));
  AppendLayers(RoutedLayer(layer, experts, 0), draft.layers, draft.model);
}

}  // namespace

extern const Family kOlmoe = {.architecture = "OlmoeForCausalLM",
                              .name = "OLMoE",
                              .read = Read,
                              .tensors = WithExperts(kQkNormTensors),
                              .norm_epsilon = 1e-5,
                              .max_positions = 4096,
                              .gguf = {.architecture = "olmoe",
                                       .with_experts = true,
                                       .keys = {{{"expert_weights_norm", "norm_topk_prob"},
                                                 {"attention.clamp_kqv", "clip_qkv"}}}}};

}  // namespace tessera
