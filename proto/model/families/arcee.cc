// Arcee's AFM-4.5B: Llama with a plain ffn of squared ReLU.
#include "proto/layers/layers.h"
#include "proto/model/families/config_parts.h"

namespace tessera {
namespace {

void Read(ConfigDraft& draft) {
  v1::LayerKind layer;
  v1::Attention& attention = *layer.mutable_attention();
  ReadHeads(draft, &attention);
  ReadLlamaFfn(draft, "hidden_act", "relu2", &layer);
  layer.mutable_ffn()->set_gated(false);
  layer.mutable_ffn()->set_bias(draft.config.BoolOr("mlp_bias", false));
  ReadAttentionBias(draft, &attention);
  ReadRotation(draft, &attention);
  AppendLayers(layer, draft.layers, draft.model);
}

constexpr TensorNames kTensors = [] {
  TensorNames names = kLlamaTensors;
  names.gate = "";
  return names;
}();

}  // namespace

extern const Family kArcee = {
    .architecture = "ArceeForCausalLM",
    .name = "AFM-4.5B (Arcee)",
    .read = Read,
    .tensors = kTensors,
    .norm_epsilon = 1e-5,
    .max_positions = 4096,
    .gguf = {.architecture = "arcee", .pairs_rows = true, .config = R"({"hidden_act": "relu2"})"}};

}  // namespace tessera
