// Gemma 3, alone (270M, 1B) and as the text part of what takes images: Gemma 2 with norms over the
// heads of q and k instead of soft caps, and two rotations: layers with a window have a base of
// their own, and no scaling.
#include "proto/layers/layers.h"
#include "proto/model/families/config_parts.h"
#include "proto/model/families/rope_config.h"

namespace tessera {
namespace {

// transformers caps the last logits of the text model alone (Rnj-1), and attention's never.
void ReadSoftCaps(ConfigDraft& draft) {
  constexpr const char* kReason = "is not supported here: it must be null";
  JsonReader& config = draft.config;
  if (config.Has("attn_logit_softcapping")) config.Fail("attn_logit_softcapping", kReason);
  const double cap = config.NumberOr("final_logit_softcapping", 0, 1e-6, 1e6);
  if (cap != 0 && draft.family.wrapped) config.Fail("final_logit_softcapping", kReason);
  draft.model->set_logits_soft_cap(cap);
}

void Read(ConfigDraft& draft) {
  JsonReader& config = draft.config;
  v1::LayerKind full;
  v1::Attention& attention = *full.mutable_attention();
  ReadHeads(draft, &attention);
  ReadLlamaFfn(draft, "hidden_activation", "gelu_pytorch_tanh", &full);
  ReadAttentionBias(draft, &attention);
  full.set_norm_place(v1::NORM_PLACE_BOTH);
  attention.set_qk_norm(true);
  ReadQueryScale(draft, &attention);
  ReadSoftCaps(draft);
  RefuseBidirectional(draft);
  ScaleGemmaEmbedding(draft);
  if (!config.ok()) return;

  v1::LayerKind windowed = full;
  const int64_t head_dim = attention.head_dim(), positions = draft.model->max_positions();
  const LayerTypeRope of_full = {"full_attention", "rope_theta", 1e6, true};
  const LayerTypeRope of_windowed = {"sliding_attention", "rope_local_base_freq", 1e4, false};
  *attention.mutable_rope() = ReadRopeOfType(config, of_full, head_dim, positions).rope;
  v1::Attention& with_window = *windowed.mutable_attention();
  *with_window.mutable_rope() = ReadRopeOfType(config, of_windowed, head_dim, positions).rope;
  with_window.set_window(ReadWindowSize(draft));
  for (const bool has_window : ReadPatternLayers(draft, 6)) {
    AppendLayers(has_window ? windowed : full, 1, draft.model);
  }
}

constexpr TensorNames kTensors = [] {
  TensorNames names = kQkNormTensors;
  names.attention_after_norm = "post_attention_layernorm";
  names.ffn_norm = "pre_feedforward_layernorm";
  names.ffn_after_norm = "post_feedforward_layernorm";
  names.norm_offset = 1;
  return names;
}();

}  // namespace

extern const Family kGemma3 = {
    .architecture = "Gemma3ForCausalLM",
    .name = "Gemma 3 (text)",
    .read = Read,
    .tensors = kTensors,
    .vocabulary = 262208,
    .heads = 8,
    .kv_heads = 4,
    .head_dim = 256,
    .max_positions = 131072,
    .sliding_window = 4096,
    .tied_embeddings = true,
    .gguf = {.architecture = "gemma3",
             .layers = 62,
             .config_of_layers = R"({"query_pre_attn_scalar": 168})",
             .keys = {{{"rope.freq_base_swa", "rope_local_base_freq"},
                       {"attention.sliding_window_pattern", "sliding_window_pattern"},
                       {"final_logit_softcapping", "final_logit_softcapping"}}},
             .scaled_by_head = true,
             .names_windows = true,  // Rnj-1 has none
             .linear_lengthens = false}};

extern const Family kGemma3Wrapped = {.architecture = "Gemma3ForConditionalGeneration",
                                      .name = "Gemma 3 (its text part)",
                                      .read = Read,
                                      .tensors = Wrapped(kTensors),
                                      .wrapped = true,
                                      .vocabulary = 262208,
                                      .heads = 8,
                                      .kv_heads = 4,
                                      .head_dim = 256,
                                      .max_positions = 131072,
                                      .sliding_window = 4096,
                                      .tied_embeddings = true};

}  // namespace tessera
