// OLMo 3: OLMo 2 with a window in all layers but every fourth, which alone has a scaled rotation.
#include "proto/layers/layers.h"
#include "proto/model/families/config_parts.h"
#include "proto/model/families/rope_config.h"

namespace tessera {
namespace {

void Read(ConfigDraft& draft) {
  JsonReader& config = draft.config;
  v1::LayerKind full;
  v1::Attention& attention = *full.mutable_attention();
  ReadHeads(draft, &attention);
  ReadLlamaFfn(draft, "hidden_act", "silu", &full);
  ReadAttentionBias(draft, &attention);
  full.set_norm_place(v1::NORM_PLACE_AFTER);
  attention.set_qk_norm(true);
  attention.set_qk_norm_full_width(true);
  if (!config.ok()) return;

  // transformers gives a rope_theta of the top level to the full layers alone. A GGUF file has one
  // base for all layers.
  constexpr double kTheta = 5e5;
  const bool for_all = config.file().ends_with(".gguf");
  if (!for_all && config.NumberOr("rope_theta", kTheta, 1, 1e12) != kTheta) {
    config.Fail("rope_theta",
                "other than 500000 is not supported at the top level: write it into "
                "rope_parameters, for each type of layers");
  }
  v1::LayerKind windowed = full;
  v1::Attention& with_window = *windowed.mutable_attention();
  const int64_t head_dim = attention.head_dim(), positions = draft.model->max_positions();
  const LayerTypeRope of_full = {"full_attention", "rope_theta", kTheta, true};
  const LayerTypeRope of_windowed = {"sliding_attention", "rope_theta", kTheta, false};
  *attention.mutable_rope() = ReadRopeOfType(config, of_full, head_dim, positions).rope;
  *with_window.mutable_rope() = ReadRopeOfType(config, of_windowed, head_dim, positions).rope;
  with_window.set_window(ReadWindowSize(draft));
  for (const bool has_window : ReadPatternLayers(draft, 4)) {
    AppendLayers(has_window ? windowed : full, 1, draft.model);
  }
}

constexpr TensorNames kTensors = [] {
  TensorNames names = kQkNormTensors;
  names.attention_after_norm = "post_attention_layernorm";
  names.ffn_after_norm = "post_feedforward_layernorm";
  return names;
}();

}  // namespace

extern const Family kOlmo3 = {.architecture = "Olmo3ForCausalLM",
                              .name = "OLMo 3",
                              .read = Read,
                              .tensors = kTensors,
                              .norm_epsilon = 1e-5,
                              .max_positions = 2048,
                              .sliding_window = 4096,
                              .gguf = {.architecture = "olmo2"}};

}  // namespace tessera
