// Llama 4, alone and as the text part of what takes images: layers with rotation attend within
// chunks, behind norms of q and k without weights; the others to all, with queries that grow with
// their position. In some layers one routed expert, whose input is scaled, and a shared one.
#include <nlohmann/json.hpp>
#include <vector>

#include "proto/layers/layers.h"
#include "proto/model/families/config_parts.h"
#include "proto/model/families/expert_config.h"

namespace tessera {
namespace {

// By layer: whether queries and keys are rotated.
std::vector<bool> ReadRotated(ConfigDraft& draft) {
  JsonReader& config = draft.config;
  const std::vector<int64_t> listed = config.Integers("no_rope_layers", 0, 1);
  const int64_t interval = config.IntegerOr("no_rope_layer_interval", 4, 1, kMaxLayers);
  std::vector<bool> rotated;
  for (int64_t i = 0; i < draft.layers; ++i) rotated.push_back((i + 1) % interval != 0);
  if (listed.empty()) return rotated;
  if (static_cast<int64_t>(listed.size()) < draft.layers) {
    config.Fail("no_rope_layers", "names fewer layers than num_hidden_layers");
    return rotated;
  }
  for (size_t i = 0; i < rotated.size(); ++i) rotated[i] = listed[i] != 0;
  return rotated;
}

std::vector<bool> ReadRouted(ConfigDraft& draft) {
  JsonReader& config = draft.config;
  const int64_t step = config.IntegerOr("interleave_moe_layer_step", 1, 1, kMaxLayers);
  std::vector<bool> routed;
  for (int64_t i = 0; i < draft.layers; ++i) routed.push_back((i + 1) % step == 0);
  if (!config.Has("moe_layers")) return routed;
  routed.assign(routed.size(), false);
  for (const int64_t layer : config.Integers("moe_layers", 0, kMaxLayers)) {
    if (layer < draft.layers) routed[static_cast<size_t>(layer)] = true;
  }
  return routed;
}

// Layer types, where the file has them, say again what no_rope_layers says.
void CheckLayerTypes(ConfigDraft& draft, const std::vector<bool>& rotated, bool chunked) {
  const std::vector<std::string> types = draft.config.Strings("layer_types");
  if (types.empty()) return;
  bool alike = types.size() == rotated.size();
  for (size_t i = 0; alike && i < types.size(); ++i) {
    alike = types[i] == (rotated[i] && chunked ? "chunked_attention" : "full_attention");
  }
  if (!alike) {
    draft.config.Fail("layer_types",
                      "must be chunked_attention where layers are rotated, else "
                      "full_attention, as no_rope_layers says it");
  }
}

// The first files have a number here, of which any but 0 is yes.
bool ReadTuned(JsonReader& config) {
  constexpr const char* kKey = "attn_temperature_tuning";
  const bool number = config.Has(kKey) && config.At(kKey).is_number_integer();
  return number ? config.Integer(kKey, 0, 1000) != 0 : config.BoolOr(kKey, true);
}

void ReadPositions(ConfigDraft& draft, v1::Attention* rotated, v1::Attention* other) {
  JsonReader& config = draft.config;
  const bool given = config.HasKey("attention_chunk_size");
  const int64_t chunk =
      config.IntegerOr("attention_chunk_size", given ? 0 : 8192, 1, kMaxPositions);
  rotated->set_window(chunk);
  rotated->set_chunked(chunk > 0);
  rotated->set_qk_norm(config.BoolOr("use_qk_norm", true));
  rotated->set_qk_norm_after_rope(rotated->qk_norm());
  rotated->set_qk_norm_without_weights(rotated->qk_norm());
  other->clear_rope();
  const bool tuned = ReadTuned(config);
  const double gain = config.NumberOr("attn_scale", 0.1, 0, 1e6);
  const int64_t period = config.IntegerOr("floor_scale", 8192, 1, kMaxPositions);
  if (!tuned) return;
  other->set_query_gain(gain);
  other->set_query_gain_period(static_cast<int32_t>(period));
  other->set_query_gain_offset(1);
}

void ReadRouter(ConfigDraft& draft, int64_t width, v1::Experts* experts) {
  ReadExperts(draft, {.count = 16, .per_token = 1, .width = width}, experts);
  if (draft.config.ok() && experts->per_token() != 1) {
    draft.config.Fail("num_experts_per_tok", "other than 1 is not supported");
  }
  experts->set_score(v1::EXPERT_SCORE_SIGMOID);
  experts->set_scales_input(true);
}

void Read(ConfigDraft& draft) {
  JsonReader& config = draft.config;
  v1::LayerKind layer;
  ReadLlamaLayer(draft, &layer);
  const int64_t width = layer.ffn().width();
  const int64_t dense_width = config.IntegerOr("intermediate_size_mlp", 16384, 1, kMaxWidth);
  v1::Experts experts;
  ReadRouter(draft, width, &experts);
  v1::LayerKind other = layer;
  ReadPositions(draft, layer.mutable_attention(), other.mutable_attention());
  const std::vector<bool> rotated = ReadRotated(draft), routed = ReadRouted(draft);
  if (!config.ok()) return;
  CheckLayerTypes(draft, rotated, layer.attention().chunked());
  for (size_t i = 0; i < rotated.size(); ++i) {
    v1::LayerKind kind = rotated[i] ? layer : other;
    if (routed[i]) {
      kind = RoutedLayer(kind, experts, width);
    } else {
      kind.mutable_ffn()->set_width(static_cast<int32_t>(dense_width));
    }
    AppendLayers(kind, 1, draft.model);
  }
}

constexpr TensorNames kTensors = [] {
  TensorNames names = WithExperts(kLlamaTensors);
  names.gate = "feed_forward.gate_proj";
  names.up = "feed_forward.up_proj";
  names.down = "feed_forward.down_proj";
  names.router = "feed_forward.router";
  names.experts = "feed_forward.experts";
  names.stacked_up = "feed_forward.experts.gate_up_proj";
  names.stacked_down = "feed_forward.experts.down_proj";
  names.stacked = StackedExperts::kInputHalves;
  names.shared = "feed_forward.shared_expert";
  return names;
}();

}  // namespace

extern const Family kLlama4 = {
    .architecture = "Llama4ForCausalLM",
    .name = "Llama 4 (text)",
    .read = Read,
    .tensors = kTensors,
    .rope_theta = 5e5,
    .norm_epsilon = 1e-5,
    .vocabulary = 202048,
    .heads = 40,
    .kv_heads = 8,
    .head_dim = 128,
    .max_positions = 131072,
    .neighbour_pairs = true,
    .gguf = {
        .architecture = "llama4",
        .with_experts = true,
        .experts = 128,  // Maverick
        .config_of_experts = R"({"use_qk_norm": false})",
        .dense_width = "intermediate_size_mlp",
        .keys = {{{.gguf = "interleave_moe_layer_step", .config = "interleave_moe_layer_step"}}}}};

extern const Family kLlama4Wrapped = {.architecture = "Llama4ForConditionalGeneration",
                                      .name = "Llama 4 (its text part)",
                                      .read = Read,
                                      .tensors = Wrapped(kTensors),
                                      .wrapped = true,
                                      .rope_theta = 5e5,
                                      .norm_epsilon = 1e-5,
                                      .vocabulary = 202048,
                                      .heads = 40,
                                      .kv_heads = 8,
                                      .head_dim = 128,
                                      .max_positions = 131072,
                                      .neighbour_pairs = true};

}  // namespace tessera
