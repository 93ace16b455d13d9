// Mixtral: Mistral with routed experts in every layer.
#include "proto/layers/layers.h"
#include "proto/model/families/config_parts.h"
#include "proto/model/families/expert_config.h"

namespace tessera {
namespace {

void Read(ConfigDraft& draft) {
  v1::LayerKind layer;
  ReadLlamaLayer(draft, &layer);
  ReadWindow(draft, layer.mutable_attention());
  RefuseSharedExperts(draft.config);
  v1::Experts experts;
  ReadExperts(draft, {.count = 8, .per_token = 2, .width = layer.ffn().width()}, &experts);
  experts.set_renormalise(true);
  AppendLayers(RoutedLayer(layer, experts, 0), draft.layers, draft.model);
}

constexpr TensorNames kTensors = WithBlockSparseMoe(kLlamaTensors, "mlp.gate");

}  // namespace

extern const Family kMixtral = {
    .architecture = "MixtralForCausalLM",
    .name = "Mixtral",
    .read = Read,
    .tensors = kTensors,
    .rope_theta = 1e6,
    .norm_epsilon = 1e-5,
    .kv_heads = 8,
    .max_positions = 4096 * 32,
    .gguf = {.architecture = "llama", .with_experts = true, .pairs_rows = true}};

}  // namespace tessera
