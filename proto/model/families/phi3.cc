// Phi-3, 3.5, 4 and 4-mini: Llama with q, k and v in one matrix, gate and up in another, longrope,
// perhaps a window.
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

constexpr TensorNames kTensors = [] {
  TensorNames names = kLlamaTensors;
  names.qkv = "self_attn.qkv_proj";
  names.gate_up = "mlp.gate_up_proj";
  return names;
}();

}  // namespace

extern const Family kPhi3 = {.architecture = "Phi3ForCausalLM",
                             .name = "Phi-3, 3.5, 4 and 4-mini",
                             .read = Read,
                             .tensors = kTensors,
                             .norm_epsilon = 1e-5,
                             .max_positions = 4096,
                             .partial_rotary = 1,
                             .gguf = {.architecture = "phi3"}};

}  // namespace tessera
