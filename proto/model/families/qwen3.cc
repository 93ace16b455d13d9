// Qwen3 (dense): Llama with a norm over each head of q and k; some layers may have a window.
#include "proto/model/families/config_parts.h"

namespace tessera {
namespace {

void Read(ConfigDraft& draft) {
  v1::LayerKind layer;
  ReadLlamaLayer(draft, &layer);
  layer.mutable_attention()->set_qk_norm(true);
  AppendQwenLayers(draft, layer);
}

}  // namespace

extern const Family kQwen3 = {.architecture = "Qwen3ForCausalLM",
                              .name = "Qwen3",
                              .read = Read,
                              .tensors = kQkNormTensors,
                              .head_dim = 128,
                              .max_positions = 32768};

}  // namespace tessera
