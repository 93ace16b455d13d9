// EXAONE 4, alone and as the text part of 4.5: norms behind the blocks, a norm over each head of q
// and k; where some layers have a window, only these are rotated.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "proto/layers/layers.h"
#include "proto/model/families/config_parts.h"

namespace tessera {
namespace {

// Which layers have a window without layer_types. sliding_window_pattern is a number (the last of
// so many has none) or letters: L a window, G none.
std::vector<bool> ReadWindowLayers(ConfigDraft& draft) {
  constexpr const char* kKey = "sliding_window_pattern";
  JsonReader& config = draft.config;
  std::string letters = "LLLG";
  if (config.Has(kKey) && config.At(kKey).is_string()) {
    letters = config.StringOr(kKey, letters);
    if (letters.empty() || letters.find_first_not_of("LG") != std::string::npos) {
      config.Fail(kKey, "must be a number, or letters L (with a window) and G (without)");
      letters = "G";
    }
  } else {
    letters = std::string(static_cast<size_t>(config.IntegerOr(kKey, 4, 1, kMaxLayers) - 1), 'L');
    letters += 'G';
  }
  return ReadLayerTypes(draft, [&](int64_t layer) {
    return letters[static_cast<size_t>(layer) % letters.size()] == 'L';
  });
}

void Read(ConfigDraft& draft) {
  v1::LayerKind layer;
  ReadLlamaLayer(draft, &layer);
  layer.set_norm_place(v1::NORM_PLACE_AFTER);
  layer.mutable_attention()->set_qk_norm(true);
  const bool given = draft.config.HasKey("sliding_window");
  const int64_t window = draft.config.IntegerOr(
      "sliding_window", given ? 0 : draft.family.sliding_window, 1, kMaxPositions);
  if (window == 0) {
    draft.config.Pass("sliding_window_pattern");
    draft.config.Pass("layer_types");
    return AppendLayers(layer, draft.layers, draft.model);
  }
  v1::LayerKind full = layer;
  full.mutable_attention()->clear_rope();
  layer.mutable_attention()->set_window(window);
  for (const bool windowed : ReadWindowLayers(draft)) {
    AppendLayers(windowed ? layer : full, 1, draft.model);
  }
}

constexpr TensorNames kTensors = [] {
  TensorNames names = kQkNormTensors;
  names.attention_after_norm = "post_attention_layernorm";
  names.ffn_after_norm = "post_feedforward_layernorm";
  return names;
}();

}  // namespace

extern const Family kExaone4 = {
    .architecture = "Exaone4ForCausalLM",
    .name = "EXAONE 4",
    .read = Read,
    .tensors = kTensors,
    .norm_epsilon = 1e-5,
    .kv_heads = 32,
    .max_positions = 2048,
    .sliding_window = 4096,
    // The 32B model has windows, the smaller one none.
    .gguf = {.architecture = "exaone4",
             .config = R"({"sliding_window": null})",
             .layers = 64,
             .config_of_layers = R"({"sliding_window": 4096, "sliding_window_pattern": "LLLG"})"}};

extern const Family kExaone45Wrapped = {.architecture = "Exaone4_5_ForConditionalGeneration",
                                        .name = "EXAONE 4.5 (its text part)",
                                        .read = Read,
                                        .tensors = Wrapped(kTensors),
                                        .wrapped = true,
                                        .norm_epsilon = 1e-5,
                                        .vocabulary = 102400,
                                        .heads = 32,
                                        .kv_heads = 32,
                                        .max_positions = 2048,
                                        .sliding_window = 4096};

}  // namespace tessera
