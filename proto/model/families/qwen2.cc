// Qwen2 and 2.5, alone and as the text part of Qwen2.5-VL: Llama with biases on q, k and v; some
// layers may have a window. Rotations for images (mrope) are plain ones for text.
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
                              .gguf = {.architecture = "qwen2", .with_images = "qwen2vl"}};

extern const Family kQwen25VlWrapped = {.architecture = "Qwen2_5_VLForConditionalGeneration",
                                        .name = "Qwen2.5-VL (its text part)",
                                        .read = Read,
                                        .tensors = Wrapped(kLlamaTensors),
                                        .wrapped = true,
                                        .text_beside_towers = true,
                                        .rope_theta = 1e6,
                                        .norm_epsilon = 1e-5,
                                        .vocabulary = 152064,
                                        .heads = 64,
                                        .kv_heads = 8,
                                        .max_positions = 32768};

}  // namespace tessera
