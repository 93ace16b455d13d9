// Qwen2 and 2.5: Llama with biases on q, k and v; some layers may have a window.
#include "proto/model/families/config_parts.h"

namespace tessera {
namespace {

void Read(ConfigDraft& draft) {
  v1::LayerKind layer;
  ReadLlamaLayer(draft, &layer);
  layer.mutable_attention()->set_qkv_bias(true);
  layer.mutable_attention()->set_output_bias(false);
  AppendQwenLayers(draft, layer);
}

}  // namespace

extern const Family kQwen2 = {.architecture = "Qwen2ForCausalLM",
                              .name = "Qwen2, Qwen2.5",
                              .read = Read,
                              .tensors = kLlamaTensors,
                              .max_positions = 32768,
                              .gguf = {.architecture = "qwen2"}};

}  // namespace tessera
