// Granite 3 (dense): Llama with multipliers of embeddings, scores, blocks and logits.
#include "proto/layers/layers.h"
#include "proto/model/families/config_parts.h"

namespace tessera {
namespace {

void Read(ConfigDraft& draft) {
  v1::LayerKind layer;
  ReadLlamaLayer(draft, &layer);
  ReadGraniteMultipliers(draft, layer.mutable_attention());
  AppendLayers(layer, draft.layers, draft.model);
}

}  // namespace

extern const Family kGranite = {.architecture = "GraniteForCausalLM",
                                .name = "Granite 3 (dense)",
                                .read = Read,
                                .tensors = kLlamaTensors,
                                .max_positions = 2048,
                                .gguf = {.architecture = "granite",
                                         .pairs_rows = true,
                                         .keys = {{{"embedding_scale", "embedding_multiplier"},
                                                   {"residual_scale", "residual_multiplier"},
                                                   {"attention.scale", "attention_multiplier"},
                                                   {"logit_scale", "logits_scaling"}}}}};

}  // namespace tessera
