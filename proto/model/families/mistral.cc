// Mistral: Llama with a window.
#include "proto/layers/layers.h"
#include "proto/model/families/config_parts.h"

namespace tessera {
namespace {

void Read(ConfigDraft& draft) {
  v1::LayerKind layer;
  ReadLlamaLayer(draft, &layer);
  ReadWindow(draft, layer.mutable_attention());
  AppendLayers(layer, draft.layers, draft.model);
}

}  // namespace

extern const Family kMistral = {.architecture = "MistralForCausalLM",
                                .name = "Mistral",
                                .read = Read,
                                .tensors = kLlamaTensors,
                                .kv_heads = 8,
                                .max_positions = 4096 * 32,
                                .sliding_window = 4096};

}  // namespace tessera
