// Mistral Small 3 and Ministral 3: Mistral as the text part of what takes images. Ministral's
// queries grow with their position.
#include <nlohmann/json.hpp>

#include "proto/layers/layers.h"
#include "proto/model/families/config_parts.h"
#include "third_party/absl/str_cat.h"

namespace tessera {
namespace {

// Beside the rotation. The period is the rotation's original length, for which the key of the top
// level wins.
void ReadQueryGain(ConfigDraft& draft, v1::Attention* attention) {
  constexpr const char* kRope = "rope_parameters";
  JsonReader& config = draft.config;
  const char* key = config.Has(kRope) ? kRope : "rope_scaling";
  if (!config.Has(key) || !config.At(key).is_object()) return;
  JsonReader rope = config.Nested(key);
  constexpr const char* kPeriod = "original_max_position_embeddings";
  attention->set_query_gain(rope.NumberOr("llama_4_scaling_beta", 0, 0, 1e6));
  if (attention->query_gain() != 0) {
    JsonReader& reader = config.Has(kPeriod) ? config : rope;
    attention->set_query_gain_period(reader.Integer(kPeriod, 1, kMaxPositions));
  }
  config.Adopt(rope.status());
}

void ReadMinistral(ConfigDraft& draft) {
  v1::LayerKind layer;
  ReadLlamaLayer(draft, &layer);
  ReadWindow(draft, layer.mutable_attention());
  ReadQueryGain(draft, layer.mutable_attention());
  AppendLayers(layer, draft.layers, draft.model);
}

void ReadWrapped(ConfigDraft& draft) {
  JsonReader& config = draft.config;
  const std::string type = config.StringOr("model_type", "mistral");
  if (type != "mistral" && type != "ministral3") {
    config.Fail("model_type", StrCat("is '", type, "'; supported are mistral and ministral3"));
  }
  if (type == "mistral" && !config.HasKey("sliding_window")) {
    config.Fail("sliding_window", "is missing: write null where there is none");
  }
  ReadMinistral(draft);
}

}  // namespace

extern const Family kMinistral3 = {
    .architecture = "Ministral3ForCausalLM",
    .name = "Ministral 3 (text)",
    .read = ReadMinistral,
    .tensors = kLlamaTensors,
    .rope_theta = 1e6,
    .norm_epsilon = 1e-5,
    .kv_heads = 8,
    .head_dim = 128,
    .max_positions = 262144,
    .gguf = {.architecture = "mistral3", .pairs_rows = true, .gains = true}};

extern const Family kMistral3Wrapped = {.architecture = "Mistral3ForConditionalGeneration",
                                        .name = "Mistral Small 3, Ministral 3 (their text parts)",
                                        .read = ReadWrapped,
                                        .tensors = Wrapped(kLlamaTensors),
                                        .wrapped = true,
                                        .norm_epsilon = 1e-5,
                                        .kv_heads = 8,
                                        .head_dim = 128,
                                        .max_positions = 131072};

}  // namespace tessera
