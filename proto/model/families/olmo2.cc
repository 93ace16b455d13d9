// OLMo 2: norms behind the blocks alone, and over the full width of q and k.
#include "proto/layers/layers.h"
#include "proto/model/families/config_parts.h"

namespace tessera {
namespace {

void Read(ConfigDraft& draft) {
  v1::LayerKind layer;
  ReadLlamaLayer(draft, &layer);
  layer.set_norm_place(v1::NORM_PLACE_AFTER);
  layer.mutable_attention()->set_qk_norm(true);
  layer.mutable_attention()->set_qk_norm_full_width(true);
  AppendLayers(layer, draft.layers, draft.model);
}

constexpr TensorNames kTensors = [] {
  TensorNames names = kQkNormTensors;
  names.attention_after_norm = "post_attention_layernorm";
  names.ffn_after_norm = "post_feedforward_layernorm";
  return names;
}();

}  // namespace

extern const Family kOlmo3;

extern const Family kOlmo2 = {.architecture = "Olmo2ForCausalLM",
                              .name = "OLMo 2",
                              .read = Read,
                              .tensors = kTensors,
                              .norm_epsilon = 1e-5,
                              .max_positions = 2048,
                              .gguf = {.architecture = "olmo2", .with_windows = &kOlmo3}};

}  // namespace tessera
