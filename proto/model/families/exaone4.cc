// EXAONE 4, alone and as the text part of 4.5, and K-EXAONE: a norm over each head of q and k;
// where some layers have a window, only these are rotated. Norms stand behind the blocks; K-EXAONE
// has them before, and experts chosen by a sigmoid with a correction, beside shared ones.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "proto/layers/layers.h"
#include "proto/model/families/config_parts.h"
#include "proto/model/families/expert_config.h"

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

// The model's layers, one after the other; of `layer` with a window or without rotation.
std::vector<v1::LayerKind> ReadLayers(ConfigDraft& draft, v1::LayerKind layer) {
  layer.mutable_attention()->set_qk_norm(true);
  const int64_t window = ReadWindowSize(draft);
  if (window == 0) {
    draft.config.Pass("sliding_window_pattern");
    draft.config.Pass("layer_types");
    return std::vector<v1::LayerKind>(static_cast<size_t>(draft.layers), layer);
  }
  v1::LayerKind full = layer;
  full.mutable_attention()->clear_rope();
  layer.mutable_attention()->set_window(window);
  std::vector<v1::LayerKind> layers;
  for (const bool windowed : ReadWindowLayers(draft)) layers.push_back(windowed ? layer : full);
  return layers;
}

void Read(ConfigDraft& draft) {
  v1::LayerKind layer;
  ReadLlamaLayer(draft, &layer);
  layer.set_norm_place(v1::NORM_PLACE_AFTER);
  for (const v1::LayerKind& one : ReadLayers(draft, layer)) AppendLayers(one, 1, draft.model);
}

void ReadMoe(ConfigDraft& draft) {
  v1::LayerKind layer;
  ReadLlamaLayer(draft, &layer);
  v1::Experts experts;
  ReadExperts(draft, {.count = 64, .per_token = 8, .width = 1024}, &experts);
  experts.set_score(v1::EXPERT_SCORE_SIGMOID);
  experts.set_correction_bias(true);
  ReadScoredRouting(draft, &experts, {.factor = 2.5});
  const int64_t shared = draft.config.IntegerOr("num_shared_experts", 1, 0, kMaxExperts);
  const auto is_routed = ReadListedRoutedLayers(draft);
  int64_t index = 0;
  for (const v1::LayerKind& one : ReadLayers(draft, layer)) {
    AppendLayers(is_routed(index++) ? RoutedLayer(one, experts, shared * experts.width()) : one, 1,
                 draft.model);
  }
}

constexpr TensorNames kTensors = [] {
  TensorNames names = kQkNormTensors;
  names.attention_after_norm = "post_attention_layernorm";
  names.ffn_after_norm = "post_feedforward_layernorm";
  return names;
}();

// As published, and where experts stand in one tensor, as transformers saves it.
constexpr TensorNames kMoeTensors = [] {
  TensorNames names = WithExperts(kQkNormTensors);
  names.router_correction = "mlp.e_score_correction_bias";
  names.stacked_correction = "mlp.gate.e_score_correction_bias";
  names.shared = "mlp.shared_experts";
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

extern const Family kExaoneMoe = {.architecture = "ExaoneMoeForCausalLM",
                                  .published_as = "ExaoneMoEForCausalLM",
                                  .name = "K-EXAONE",
                                  .read = ReadMoe,
                                  .tensors = kMoeTensors,
                                  .norm_epsilon = 1e-5,
                                  .vocabulary = 102400,
                                  .heads = 32,
                                  .kv_heads = 32,
                                  .max_positions = 2048,
                                  .sliding_window = 4096};

}  // namespace tessera
