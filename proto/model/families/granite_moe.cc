// Granite 3 with experts: Granite's multipliers; the experts of a layer are in one tensor.
#include "proto/layers/layers.h"
#include "proto/model/families/config_parts.h"
#include "proto/model/families/expert_config.h"

namespace tessera {
namespace {

void Read(ConfigDraft& draft) {
  v1::LayerKind layer;
  ReadLlamaLayer(draft, &layer);
  ReadGraniteMultipliers(draft, layer.mutable_attention());
  v1::Experts experts;
  ReadExperts(draft, {.count = 8, .per_token = 2, .width = layer.ffn().width()}, &experts);
  experts.set_renormalise(true);
  AppendLayers(RoutedLayer(layer, experts, 0), draft.layers, draft.model);
}

constexpr TensorNames kTensors = [] {
  TensorNames names = kLlamaTensors;
  names.router = "block_sparse_moe.router.layer";
  names.stacked_up = "block_sparse_moe.input_linear.weight";
  names.stacked_down = "block_sparse_moe.output_linear.weight";
  names.other_stacked_up = "block_sparse_moe.experts.gate_up_proj";
  names.other_stacked_down = "block_sparse_moe.experts.down_proj";
  names.other_stacked_router = "block_sparse_moe.router";
  return names;
}();

}  // namespace

extern const Family kGraniteMoe = {.architecture = "GraniteMoeForCausalLM",
                                   .name = "Granite 3 with experts",
                                   .read = Read,
                                   .tensors = kTensors,
                                   .max_positions = 2048,
                                   .gguf = {.architecture = "granitemoe",
                                            .with_experts = true,
                                            .pairs_rows = true,
                                            .keys = {{{"embedding_scale", "embedding_multiplier"},
                                                      {"residual_scale", "residual_multiplier"},
                                                      {"attention.scale", "attention_multiplier"},
                                                      {"logit_scale", "logits_scaling"}}}}};

}  // namespace tessera
