// Llama 1 to 3, and whatever publishes itself under its class.
#include "proto/layers/layers.h"
#include "proto/model/families/config_parts.h"

namespace tessera {
namespace {

void Read(ConfigDraft& draft) {
  v1::LayerKind layer;
  ReadLlamaLayer(draft, &layer);
  AppendLayers(layer, draft.layers, draft.model);
}

}  // namespace

extern const Family kLlama = {.architecture = "LlamaForCausalLM",
                              .name = "Llama 1 to 3",
                              .read = Read,
                              .tensors = kLlamaTensors,
                              .max_positions = 2048,
                              .gguf = {.architecture = "llama", .pairs_rows = true}};

}  // namespace tessera
