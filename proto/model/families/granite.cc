// Granite 3 (dense): Llama with multipliers of embeddings, scores, blocks and logits. GGUF files of
// Granite 4 without Mamba layers are of this family.
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
                                                   {"logit_scale", "logits_scaling"},
                                                   // The hybrid class has these always.
                                                   {"expert_shared_feed_forward_length", ""},
                                                   {"ssm.conv_kernel", ""},
                                                   {"ssm.state_size", ""},
                                                   {"ssm.group_count", ""},
                                                   {"ssm.inner_size", ""},
                                                   {"ssm.time_step_rank", ""}}}}};

}  // namespace tessera
