// Mistral Small 3, Ministral 3 and Mistral Small 4: the text part of what takes images; the last
// two alone as well. Their queries grow with their position. Mistral Small 4 has DeepSeek's latent
// attention, and experts by softmax beside a shared one.
#include <string>

#include "proto/layers/layers.h"
#include "proto/model/families/config_parts.h"
#include "proto/model/families/latent_config.h"
#include "proto/model/families/rope_config.h"
#include "third_party/absl/str_cat.h"

namespace tessera {
namespace {

void ReadMinistral(ConfigDraft& draft) {
  v1::LayerKind layer;
  ReadLlamaLayer(draft, &layer);
  ReadWindow(draft, layer.mutable_attention());
  ReadQueryGain(draft, layer.mutable_attention());
  AppendLayers(layer, draft.layers, draft.model);
}

void ReadMinistral3(ConfigDraft& draft) {
  RequireRope(draft.config);
  ReadMinistral(draft);
}

void ReadMistral4(ConfigDraft& draft) {
  JsonReader& config = draft.config;
  RequireRope(config);
  v1::LayerKind dense;
  ReadLatentLayer(
      draft,
      {.rank = 256, .query_rank = 1024, .plain_dim = 64, .value_dim = 128, .says_part = true},
      &dense);
  ReadQueryGain(draft, dense.mutable_attention());
  v1::Experts experts;
  ReadExperts(draft, {.count = 128, .per_token = 4, .width = 2048}, &experts);
  ReadScoredRouting(draft, &experts);
  const int64_t shared = config.IntegerOr("n_shared_experts", 1, 0, kMaxExperts);
  const int64_t first = config.IntegerOr("first_k_dense_replace", 0, 0, kMaxLayers);
  AppendMixedLayers(draft, dense, RoutedLayer(dense, experts, shared * experts.width()),
                    [first](int64_t layer) { return layer >= first; });
}

void ReadWrapped(ConfigDraft& draft) {
  JsonReader& config = draft.config;
  const std::string type = config.StringOr("model_type", "mistral");
  if (type == "mistral4") return ReadMistral4(draft);
  if (type != "mistral" && type != "ministral3") {
    config.Fail("model_type",
                StrCat("is '", type, "'; supported are mistral, ministral3 and mistral4"));
  }
  if (type == "mistral" && !config.HasKey("sliding_window")) {
    config.Fail("sliding_window", "is missing: write null where there is none");
  }
  if (type == "ministral3") return ReadMinistral3(draft);
  ReadMinistral(draft);
}

// Names of all three: those of Mistral Small 4 are latent attention's and experts'.
constexpr TensorNames kWrappedTensors = [] {
  TensorNames names = kLatentTensors;
  names.k = kLlamaTensors.k;
  names.v = kLlamaTensors.v;
  return names;
}();

constexpr GgufFacts::Keys kMistral4Keys = [] {
  GgufFacts::Keys keys = kLatentGgufKeys;
  keys.back() = {"attention.temperature_length", ""};  // the original length
  return keys;
}();

}  // namespace

extern const Family kMinistral3 = {
    .architecture = "Ministral3ForCausalLM",
    .name = "Ministral 3 (text)",
    .read = ReadMinistral3,
    .tensors = kLlamaTensors,
    .rope_theta = 1e6,
    .norm_epsilon = 1e-5,
    .kv_heads = 8,
    .head_dim = 128,
    .max_positions = 262144,
    .gguf = {.architecture = "mistral3", .pairs_rows = true, .gains = true}};

extern const Family kMistral3Wrapped = {.architecture = "Mistral3ForConditionalGeneration",
                                        .name = "Mistral Small 3 and 4, Ministral 3 (text parts)",
                                        .read = ReadWrapped,
                                        .tensors = Wrapped(kWrappedTensors),
                                        .wrapped = true,
                                        .norm_epsilon = 1e-5,
                                        .kv_heads = 8,
                                        .head_dim = 128,
                                        .max_positions = 131072};

extern const Family kMistral4 = {.architecture = "Mistral4ForCausalLM",
                                 .name = "Mistral Small 4 (text)",
                                 .read = ReadMistral4,
                                 .tensors = kLatentTensors,
                                 .vocabulary = 131072,
                                 .max_positions = 1048576,
                                 .gguf = {.architecture = "mistral4",
                                          .with_experts = true,
                                          .keys = kMistral4Keys,
                                          .latent = true,
                                          .gains = true,
                                          .gain_unsaid = 0.1}};

}  // namespace tessera
