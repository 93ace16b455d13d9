// Qwen3 (dense), alone and as the text part of Qwen3-VL: Llama with a norm over each head of q and
// k; some layers may have a window. Rotations for images (mrope) are plain ones for text.
#include "proto/layers/layers.h"
#include "proto/model/families/config_parts.h"

namespace tessera {
namespace {

void Read(ConfigDraft& draft) {
  v1::LayerKind layer;
  ReadLlamaLayer(draft, &layer);
  layer.mutable_attention()->set_qk_norm(true);
  AppendQwenLayers(draft, layer);
}

void ReadText(ConfigDraft& draft) {
  v1::LayerKind layer;
  ReadLlamaLayer(draft, &layer);
  layer.mutable_attention()->set_qk_norm(true);
  AppendLayers(layer, draft.layers, draft.model);
}

}  // namespace

extern const Family kQwen3 = {.architecture = "Qwen3ForCausalLM",
                              .name = "Qwen3",
                              .read = Read,
                              .tensors = kQkNormTensors,
                              .head_dim = 128,
                              .max_positions = 32768,
                              .gguf = {.architecture = "qwen3",
                                       .with_images = "qwen3vl",
                                       .keys = {{{"n_deepstack_layers", ""}}}}};  // of images

extern const Family kQwen3VlWrapped = {.architecture = "Qwen3VLForConditionalGeneration",
                                       .name = "Qwen3-VL (its text part)",
                                       .read = ReadText,
                                       .tensors = Wrapped(kQkNormTensors),
                                       .wrapped = true,
                                       .rope_theta = 500000,
                                       .kv_heads = 32,
                                       .head_dim = 128,
                                       .max_positions = 128000};

}  // namespace tessera
