// Gemma 2: Gemma with norms behind the blocks too, soft caps of scores and logits, and a window in
// every other layer.
#include "proto/layers/layers.h"
#include "proto/model/families/config_parts.h"

namespace tessera {
namespace {

void Read(ConfigDraft& draft) {
  JsonReader& config = draft.config;
  v1::LayerKind layer;
  v1::Attention& attention = *layer.mutable_attention();
  ReadLlamaLayer(draft, &layer);
  layer.set_norm_place(v1::NORM_PLACE_BOTH);
  layer.mutable_ffn()->set_activation(
      ReadActivation(config, "hidden_activation", "gelu_pytorch_tanh"));
  ReadQueryScale(draft, &attention);
  const auto cap_of = [&](const char* key, double usual) {
    // null is "none"; absent is the family's default.
    return config.NumberOr(key, config.HasKey(key) ? 0 : usual, 1e-6, 1e6);
  };
  attention.set_soft_cap(cap_of("attn_logit_softcapping", 50));
  draft.model->set_logits_soft_cap(cap_of("final_logit_softcapping", 30));
  RefuseBidirectional(draft);
  ScaleGemmaEmbedding(draft);
  const int64_t window = ReadWindowSize(draft);
  for (const bool windowed : ReadPatternLayers(draft, 2)) {
    attention.set_window(windowed ? window : 0);
    AppendLayers(layer, 1, draft.model);
  }
}

constexpr TensorNames kTensors = [] {
  TensorNames names = kLlamaTensors;
  names.attention_after_norm = "post_attention_layernorm";
  names.ffn_norm = "pre_feedforward_layernorm";
  names.ffn_after_norm = "post_feedforward_layernorm";
  names.norm_offset = 1;
  return names;
}();

}  // namespace

extern const Family kGemma2 = {
    .architecture = "Gemma2ForCausalLM",
    .name = "Gemma 2",
    .read = Read,
    .tensors = kTensors,
    .vocabulary = 256000,
    .heads = 8,
    .kv_heads = 4,
    .head_dim = 256,
    .max_positions = 8192,
    .sliding_window = 4096,
    .tied_embeddings = true,
    .gguf = {.architecture = "gemma2",
             .layers = 46,
             .config_of_layers = R"({"query_pre_attn_scalar": 144})",
             .keys = {{{"attn_logit_softcapping", "attn_logit_softcapping"},
                       {"final_logit_softcapping", "final_logit_softcapping"}}},
             .scaled_by_head = true}};

}  // namespace tessera
