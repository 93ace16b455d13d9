#include "proto/model/config_keys.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <vector>

#include "proto/model/gguf_header.h"
#include "third_party/absl/str_cat.h"

namespace tessera {
namespace {

using nlohmann::json;

struct OracleKeys {
  std::string_view architecture;
  std::string_view model_type;  // by which transformers chooses the class
  std::string_view keys;        // a JSON object: key -> default
};
constexpr OracleKeys kOracleKeys[] = {
#include "proto/model/oracle_keys.inc"
};

// About training, generation, files, or software, never about what a forward pass computes.
constexpr std::string_view kHarmless[] = {"_name_or_path",
                                          "_sliding_window_pattern",
                                          "add_cross_attention",
                                          "architectures",
                                          "attn_implementation",
                                          "auto_map",
                                          "aux_loss_alpha",
                                          "bad_words_ids",
                                          "begin_suppress_tokens",
                                          "cache_implementation",
                                          "chunk_size_feed_forward",
                                          "cross_attention_hidden_size",
                                          "diversity_penalty",
                                          "do_sample",
                                          "dtype",
                                          "early_stopping",
                                          "encoder_no_repeat_ngram_size",
                                          "ep_size",
                                          "exponential_decay_length_penalty",
                                          "finetuning_task",
                                          "forced_bos_token_id",
                                          "forced_eos_token_id",
                                          "gradient_checkpointing",
                                          "id2label",
                                          "initializer_range",
                                          "is_decoder",
                                          "is_encoder_decoder",
                                          "label2id",
                                          "layerdrop",
                                          "length_penalty",
                                          "max_length",
                                          "min_length",
                                          "model_type",
                                          "no_repeat_ngram_size",
                                          "num_beam_groups",
                                          "num_beams",
                                          "num_nextn_predict_layers",
                                          "num_return_sequences",
                                          "prefix",
                                          "pretraining_tp",
                                          "problem_type",
                                          "pruned_heads",
                                          "quantization_config",
                                          "remove_invalid_values",
                                          "repetition_penalty",
                                          "return_dict",
                                          "return_dict_in_generate",
                                          "router_aux_loss_coef",
                                          "router_jitter_noise",
                                          "sep_token_id",
                                          "seq_aux",
                                          "summary_type",
                                          "suppress_tokens",
                                          "task_specific_params",
                                          "temperature",
                                          "tf_legacy_loss",
                                          "tie_encoder_decoder",
                                          "tokenizer_class",
                                          "top_k",
                                          "top_p",
                                          "torch_dtype",
                                          "torchscript",
                                          "transformers_version",
                                          "typical_p",
                                          "use_bfloat16",
                                          "use_cache"};

// What is read of a rotation, whatever its type is, in transformers (modeling_rope_utils.py) and
// the classes' own code, or is about images.
constexpr std::string_view kRopeKeys[] = {"alpha",
                                          "attention_factor",
                                          "beta_fast",
                                          "beta_slow",
                                          "factor",
                                          "finetuned",
                                          "high_freq_factor",
                                          "interleaved",
                                          "llama_4_scaling_beta",
                                          "long_factor",
                                          "long_mscale",
                                          "low_freq_factor",
                                          "max_position_embeddings",
                                          "mrope_interleaved",
                                          "mrope_section",
                                          "mscale",
                                          "mscale_all_dim",
                                          "original_max_position_embeddings",
                                          "partial_rotary_factor",
                                          "rope_theta",
                                          "rope_type",
                                          "short_factor",
                                          "short_mscale",
                                          "truncate",
                                          "type"};

// Ends the name of a class that is no wrapper.
constexpr std::string_view kText = "ForCausalLM";

// Read by modules of transformers that all classes share (masking_utils.py): attention to both
// sides is not computed here.
constexpr std::string_view kIsCausal = "is_causal";

template <size_t kCount>
bool IsKnown(const std::string_view (&list)[kCount], std::string_view key) {
  return std::find(std::begin(list), std::end(list), key) != std::end(list);
}

// The same (configuration_utils.py, cache_utils.py): layers unlike the others, KV that later layers
// share, and another file of weights.
constexpr std::string_view kOfAllClasses[] = {"kv_sharing_modes", "per_layer_config",
                                              "transformers_weights"};
// And of those whose experts are FP8 (integrations/finegrained_fp8.py).
constexpr std::string_view kOfQuantized[] = {"mlp_gate_softcap", "mlp_up_softcap", "swiglu_alpha",
                                             "swiglu_limit"};
// Names of weights that are read anyway.
constexpr std::string_view kWeightFiles[] = {"model.safetensors", "model.safetensors.index.json"};

// transformers' caches of all classes (cache_utils.py) drop older tokens by these where layer_types
// names such layers, or nothing says what layers are.
constexpr std::string_view kWindows[] = {"attention_chunk_size", "sliding_window"};
constexpr std::string_view kShortLayers[] = {"chunked_attention", "hybrid_sliding",
                                             "reference_sliding_attention", "sliding_attention"};

// use_sliding_window: false is taken at its word, though not all classes read it.
bool Shortens(const JsonReader& config, const json& oracle, const json& window) {
  constexpr const char* kLength = "max_position_embeddings";
  constexpr const char* kTypes = "layer_types";
  if (!window.is_number()) return true;
  if (config.Has(kLength) && config.At(kLength).is_number() && window >= config.At(kLength)) {
    return false;
  }
  if (config.Has("use_sliding_window") && config.At("use_sliding_window") == false) return false;
  // Such a class fills them in itself.
  if (!config.Has(kTypes) || !config.At(kTypes).is_array()) return !oracle.contains(kTypes);
  const json& types = config.At(kTypes);
  return std::any_of(types.begin(), types.end(), [](const json& type) {
    return type.is_string() && IsKnown(kShortLayers, type.get<std::string>());
  });
}

// Whether transformers reads the key for every class that such a checkpoint may be of.
bool IsOfAllClasses(const JsonReader& config, const std::string& key, const json& value) {
  if (value.is_string() && IsKnown(kWeightFiles, value.get<std::string>())) return false;
  return IsKnown(kOfAllClasses, key) ||
         (config.Has("quantization_config") && IsKnown(kOfQuantized, key));
}

bool IsHarmless(std::string_view key) {
  if (IsKnown(kHarmless, key)) return true;
  for (const std::string_view end : {"dropout", "_pdrop", "_token_id", "_token_index"}) {
    if (key.ends_with(end)) return true;
  }
  for (const std::string_view begin : {"output_", "unsloth_", "_attn_implementation", "_flash_attn",
                                       "summary_", "init_", "initializer_"}) {
    if (key.starts_with(begin)) return true;
  }
  return false;
}

// What transformers reads for the class, with defaults; an empty object where it is not listed.
json OracleKeysOf(std::string_view architecture) {
  for (const OracleKeys& oracle : kOracleKeys) {
    if (oracle.architecture == architecture) return json::parse(oracle.keys);
  }
  return json::object();
}

std::string Shown(const json& value) {
  constexpr size_t kMaxShown = 60;
  return value.dump(-1, ' ', true, json::error_handler_t::replace).substr(0, kMaxShown);
}

// Keys of a rotation that nobody reads, or of one for each type of layers:
// "rope_scaling.attn_factor".
void AddUnreadOfRope(const std::string& place, const json& rope, std::vector<std::string>* keys) {
  if (!rope.is_object()) return;
  for (const auto& [key, value] : rope.items()) {
    const std::string name = StrCat(place, ".", key);
    if (value.is_object()) {
      for (const auto& [inner, unused] : value.items()) {
        if (!IsKnown(kRopeKeys, inner)) keys->push_back(StrCat(name, ".", inner));
      }
    } else if (!value.is_null() && !IsKnown(kRopeKeys, key)) {
      keys->push_back(name);
    }
  }
}

}  // namespace

bool HasOracleKeys(std::string_view architecture) { return !OracleKeysOf(architecture).empty(); }

void CheckModelType(JsonReader& config, std::string_view architecture) {
  constexpr const char* kType = "model_type";
  const std::string type = config.StringOr(kType, "");
  const auto find = [](std::string_view OracleKeys::*field, std::string_view value) {
    return std::find_if(std::begin(kOracleKeys), std::end(kOracleKeys),
                        [&](const OracleKeys& oracle) { return oracle.*field == value; });
  };
  const auto own = find(&OracleKeys::architecture, architecture);
  const auto other = find(&OracleKeys::model_type, type);
  if (own == std::end(kOracleKeys) || own->model_type == type || other == std::end(kOracleKeys) ||
      !own->architecture.ends_with(kText) || !other->architecture.ends_with(kText)) {
    return;
  }
  config.Fail(kType, StrCat("is '", type, "', which transformers reads as ", other->architecture,
                            ", but architectures says ", architecture, " (model_type '",
                            own->model_type, "'): correct the one that is not true"));
}

std::string CheckUnreadKeys(JsonReader& config, std::string_view architecture) {
  constexpr size_t kMaxNamed = 12, kMaxKeyShown = 60;
  const json oracle = OracleKeysOf(architecture);
  std::vector<std::string> unknown;
  for (const char* rope : {"rope_parameters", "rope_scaling"}) {
    if (config.Has(rope)) AddUnreadOfRope(rope, config.At(rope), &unknown);
  }
  for (const std::string& key : config.Unread()) {
    if (IsHarmless(key)) continue;
    const json& value = config.At(key.c_str());
    if (value.is_null()) continue;
    if (key == kIsCausal) {
      if (value == true) continue;
      config.Fail(
          key, StrCat("is ", Shown(value), ": models that attend to both sides are not supported"));
      return "";
    }
    if (IsOfAllClasses(config, key, value) && !value.empty()) {
      config.Fail(key, StrCat("is ", Shown(value), ": transformers reads it for every class, and ",
                              "it is not supported for ", architecture));
      return "";
    }
    // llama.cpp, which reads GGUF, forgets nothing then.
    if (IsKnown(kWindows, key) && !HasGgufName(config.file()) && Shortens(config, oracle, value)) {
      config.Fail(key, StrCat("is ", Shown(value), ": transformers forgets older tokens while it ",
                              "generates then, though ", architecture,
                              " has no windows; remove it if that is not meant"));
      return "";
    }
    const auto known = oracle.find(key);
    if (known != oracle.end()) {
      if (value == *known) continue;
      config.Fail(key, StrCat("is ", Shown(value), ": transformers reads it for ", architecture,
                              " (its default is ", Shown(*known),
                              "), and other values are not supported here"));
      return "";
    }
    unknown.push_back(key);
  }
  const size_t count = unknown.size();
  if (count == 0) return "";
  std::string named;
  for (size_t i = 0; i < std::min(count, kMaxNamed); ++i) {
    named += StrCat(named.empty() ? "" : ", ", unknown[i].substr(0, kMaxKeyShown));
  }
  if (count > kMaxNamed) named += ", ...";
  return StrCat(config.file(), ": ", count, count == 1 ? " key is" : " keys are",
                " passed over, as transformers does for ", architecture, ": ", named);
}

}  // namespace tessera
