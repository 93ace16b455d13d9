// Gemma 1: embeddings times the root of their width, norms that multiply by 1 + w.
#include "proto/layers/layers.h"
#include "proto/model/families/config_parts.h"

namespace tessera {
namespace {

void Read(ConfigDraft& draft) {
  v1::LayerKind layer;
  ReadLlamaLayer(draft, &layer);
  constexpr std::string_view kTanh = "gelu_pytorch_tanh";
  // The first files say "gelu" and mean the tanh form.
  if (draft.config.StringOr("hidden_act", kTanh) == "gelu") {
    layer.mutable_ffn()->set_activation(v1::ACTIVATION_KIND_GELU_TANH);
  } else {
    layer.mutable_ffn()->set_activation(ReadActivation(draft.config, "hidden_act", kTanh));
  }
  RefuseBidirectional(draft);
  ScaleGemmaEmbedding(draft);
  AppendLayers(layer, draft.layers, draft.model);
}

constexpr TensorNames kTensors = [] {
  TensorNames names = kLlamaTensors;
  names.norm_offset = 1;
  return names;
}();

}  // namespace

extern const Family kGemma = {.architecture = "GemmaForCausalLM",
                              .name = "Gemma 1",
                              .read = Read,
                              .tensors = kTensors,
                              .vocabulary = 256000,
                              .heads = 16,
                              .kv_heads = 16,
                              .head_dim = 256,
                              .max_positions = 8192,
                              .tied_embeddings = true,
                              .gguf = {.architecture = "gemma"}};

}  // namespace tessera
