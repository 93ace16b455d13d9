#include "proto/model/gguf_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "proto/model/families/families.h"
#include "third_party/absl/str_cat.h"

namespace tessera {
namespace {

using nlohmann::json;

constexpr size_t kMaxShown = 60;
constexpr int64_t kMaxLayersLooked = 10'000;
constexpr const char* kWeightsNorm = "expert_weights_norm";

// Keys of an architecture that change nothing here: what they say stands elsewhere in the file, or
// is of training.
constexpr std::array<std::string_view, 6> kHarmless = {
    "vocab_size",       "tensor_data_layout",      "rope.scaling.finetuned",
    "attention.causal", "rope.dimension_sections", "pooling_type"};

// Text of chat turns' ends; a file may name only one of several ids.
constexpr std::array<std::string_view, 14> kEnds = {
    "<|eot_id|>",    "<|im_end|>",    "<|end|>",         "<|return|>",           "<|call|>",
    "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<|eom_id|>",           "</s>",
    "<eos>",         "[EOS]",         "[EOT]",           "<｜end▁of▁sentence｜>"};

// Writes config.json from keys; the first failure stays.
class ConfigWriter {
 public:
  ConfigWriter(const GgufHeader& header, const GgufRopeFactors& factors, std::string_view file)
      : header_(header), factors_(factors), file_(file) {}

  absl::StatusOr<json> Write() {
    const std::string* name = header_.Find<std::string>("general.architecture");
    if (name == nullptr) {
      Fail("general.architecture", "is missing");
      return status_;
    }
    prefix_ = StrCat(*name, ".");
    const int64_t* experts = Find<int64_t>("expert_count");
    const Family* family = FindGgufFamily(*name, experts != nullptr && *experts > 0);
    if (family == nullptr) {
      RefuseArchitecture(*name, experts);
      return status_;
    }
    config_["architectures"] = {std::string(family->architecture)};
    WriteSizes(family->gguf);
    WriteExperts(family->gguf, experts);
    WriteAttention(family->gguf.scaled_by_head);
    WriteRope(*family);
    WriteIds();
    WriteFacts(family->gguf);
    RefuseOthers();
    if (!status_.ok()) return status_;
    return std::move(config_);
  }

 private:
  void Fail(std::string_view key, std::string_view reason) {
    if (!status_.ok()) return;
    status_ = absl::InvalidArgumentError(
        StrCat(file_, ": key '", key.substr(0, kMaxShown), "' ", reason));
  }

  void RefuseArchitecture(std::string_view name, const int64_t* experts) {
    if (experts != nullptr && FindGgufFamily(name, *experts <= 0) != nullptr) {
      return Fail(StrCat(prefix_, "expert_count"),
                  StrCat("is ", *experts, ": not supported of this architecture"));
    }
    std::set<std::string> names;
    for (const Family* one : Families()) names.emplace(one->gguf.architecture);
    std::string known;
    for (const std::string& one : names) {
      if (!one.empty()) known = StrCat(known, known.empty() ? "" : ", ", one);
    }
    Fail("general.architecture", StrCat("is '", name.substr(0, kMaxShown),
                                        "', which is not supported as GGUF; known are ", known));
  }

  // What no key says.
  void WriteFacts(const GgufFacts& facts) {
    if (!status_.ok()) return;
    constexpr bool kMergeObjects = true;
    config_.update(json::parse(facts.config), kMergeObjects);
    if (facts.layers == layers_) {
      config_.update(json::parse(facts.config_of_layers), kMergeObjects);
    }
    for (const GgufFacts::Flag& flag : facts.flags) {
      if (!flag.key.empty()) config_[std::string(flag.key)] = FirstLayerHas(flag.tensor);
    }
  }

  bool FirstLayerHas(std::string_view tensor) const {
    return header_.FindTensor(StrCat("blk.0.", tensor)) != nullptr;
  }

  // The key's value, noted as understood; null where it is not there.
  template <typename T>
  const T* Find(std::string_view key) {
    const std::string whole = StrCat(prefix_, key);
    read_.insert(whole);
    const T* value = header_.Find<T>(whole);
    if (value == nullptr && header_.keys.contains(whole))
      Fail(whole, "has a value of another type");
    return value;
  }
  // One number for all layers, also where the file has a list of equal ones.
  const int64_t* FindSame(std::string_view key) {
    const std::string whole = StrCat(prefix_, key);
    const auto* list = header_.Find<std::vector<int64_t>>(whole);
    if (list == nullptr) return Find<int64_t>(key);
    read_.insert(whole);
    if (list->empty()) return nullptr;
    if (std::any_of(list->begin(), list->end(), [&](int64_t n) { return n != list->front(); })) {
      Fail(whole, "differs between layers: not supported");
    }
    return &list->front();
  }
  const double* FindReal(std::string_view key) {
    const double* value = Find<double>(key);
    if (value != nullptr && !std::isfinite(*value)) Fail(StrCat(prefix_, key), "is not finite");
    return value;
  }

  void CopyInteger(std::string_view key, const char* name, bool required = false) {
    const int64_t* value = FindSame(key);
    if (value != nullptr) {
      config_[name] = *value;
    } else if (required) {
      Fail(StrCat(prefix_, key), "is missing");
    }
  }
  void CopyReal(std::string_view key, std::string_view name) {
    if (const double* value = FindReal(key)) config_[std::string(name)] = *value;
  }
  // A key that is read only to be refused where it says something.
  void Refuse(std::string_view key, double neutral) {
    const std::string whole = StrCat(prefix_, key);
    read_.insert(whole);
    const auto* integer = header_.Find<int64_t>(whole);
    const auto* real = header_.Find<double>(whole);
    const double value = integer != nullptr ? static_cast<double>(*integer)
                         : real != nullptr  ? *real
                                            : neutral;
    if (value != neutral) Fail(whole, StrCat("is ", value, ": not supported"));
  }

  void WriteSizes(const GgufFacts& facts) {
    const GgufTensor* table = header_.FindTensor("token_embd.weight");
    if (table == nullptr || table->shape.size() != 2) {
      return Fail("general.architecture",
                  "names a language model, but there is no tensor "
                  "'token_embd.weight' of two dimensions");
    }
    CopyInteger("block_count", "num_hidden_layers", true);
    CopyInteger("context_length", "max_position_embeddings", true);
    CopyInteger("embedding_length", "hidden_size", true);
    CopyInteger("feed_forward_length", "intermediate_size");
    if (!status_.ok()) return;
    layers_ = config_["num_hidden_layers"].get<int64_t>();
    if (layers_ < 1 || layers_ > kMaxLayersLooked) {
      return Fail(StrCat(prefix_, "block_count"), StrCat("is ", layers_));
    }
    // Layers that predict further tokens are counted, and left out here.
    if (const int64_t* further = Find<int64_t>("nextn_predict_layers")) {
      if (*further < 0 || *further >= layers_) {
        return Fail(StrCat(prefix_, "nextn_predict_layers"), StrCat("is ", *further));
      }
      layers_ -= *further;
      config_["num_hidden_layers"] = layers_;
    }
    config_["vocab_size"] = table->shape[0];
    config_["tie_word_embeddings"] = header_.FindTensor("output.weight") == nullptr;
    CopyReal("attention.layer_norm_rms_epsilon", "rms_norm_eps");
    CopyReal("attention.layer_norm_epsilon", facts.layer_norm_key);
    if (const int64_t* parallel = Find<int64_t>("use_parallel_residual")) {
      config_["use_parallel_residual"] = *parallel != 0;
    }
  }

  // Keys that config.json has under a name of the family's.
  void CopyKeys(const GgufFacts& facts) {
    for (const GgufFacts::Key& key : facts.keys) {
      if (key.gguf.empty()) continue;
      const std::string whole = StrCat(prefix_, key.gguf), name(key.config);
      read_.insert(whole);
      if (name.empty()) continue;
      if (const auto* real = header_.Find<double>(whole)) config_[name] = *real;
      const auto* integer = header_.Find<int64_t>(whole);
      if (integer == nullptr) {
        if (header_.keys.contains(whole) && !config_.contains(name)) {
          Fail(whole, "is no number: not supported");
        }
        continue;
      }
      config_[name] = *integer;
      if (key.gguf == kWeightsNorm) config_[name] = *integer != 0;
    }
  }

  void WriteExperts(const GgufFacts& facts, const int64_t* count) {
    if (!status_.ok()) return;
    const int64_t* used = Find<int64_t>("expert_used_count");
    const int64_t* width = Find<int64_t>("expert_feed_forward_length");
    CopyKeys(facts);
    for (const auto& [key, neutral] :
         {std::pair("expert_shared_count", 0), std::pair("expert_shared_feed_forward_length", 0),
          std::pair("expert_group_count", 0), std::pair("expert_group_used_count", 0),
          std::pair("leading_dense_block_count", 0), std::pair("nextn_predict_layers", 0),
          std::pair("interleave_moe_layer_step", 1), std::pair("expert_weights_scale", 1),
          std::pair(kWeightsNorm, 1)}) {
      const bool known =
          std::any_of(facts.keys.begin(), facts.keys.end(),
                      [key = std::string_view(key)](auto& one) { return one.gguf == key; });
      if (!known) Refuse(key, neutral);
    }
    Refuse("expert_gating_func", static_cast<double>(facts.gating));
    if (count == nullptr || *count <= 0) return;
    if (used == nullptr) return Fail(StrCat(prefix_, "expert_used_count"), "is missing");
    config_["num_experts"] = *count;
    config_["num_experts_per_tok"] = *used;
    if (width != nullptr) config_["moe_intermediate_size"] = *width;
  }

  void WriteAttention(bool scaled_by_head) {
    if (!status_.ok()) return;
    CopyInteger("attention.head_count", "num_attention_heads", true);
    if (!status_.ok()) return;
    const auto heads = config_["num_attention_heads"].get<int64_t>();
    config_["num_key_value_heads"] = heads;
    CopyInteger("attention.head_count_kv", "num_key_value_heads");
    const int64_t* keys = Find<int64_t>("attention.key_length");
    const int64_t* values = Find<int64_t>("attention.value_length");
    const auto hidden = config_["hidden_size"].get<int64_t>();
    head_dim_ = keys != nullptr ? *keys : (heads > 0 && hidden % heads == 0 ? hidden / heads : 0);
    if (head_dim_ < 1) return Fail(StrCat(prefix_, "attention.key_length"), "is missing");
    if (values != nullptr && *values != head_dim_) {
      return Fail(StrCat(prefix_, "attention.value_length"),
                  StrCat("is ", *values, ", attention.key_length ", head_dim_, ": not supported"));
    }
    config_["head_dim"] = head_dim_;
    if (scaled_by_head) config_["query_pre_attn_scalar"] = head_dim_;
    CopyInteger("attention.sliding_window", "sliding_window");
    Refuse("attention.clamp_kqv", 0);
    Refuse("attention.max_alibi_bias", 0);
    config_["attention_bias"] = FirstLayerHas("attn_q.bias") || FirstLayerHas("attn_qkv.bias");
    config_["mlp_bias"] = FirstLayerHas("ffn_up.bias");
  }

  void WriteRope(const Family& family) {
    if (!status_.ok()) return;
    CopyReal("rope.freq_base", "rope_theta");
    const int64_t* dimensions = Find<int64_t>("rope.dimension_count");
    const int64_t rotated = dimensions == nullptr ? head_dim_ : *dimensions;
    if (rotated != head_dim_ || family.partial_rotary > 0) {
      config_["partial_rotary_factor"] =
          static_cast<double>(rotated) / static_cast<double>(head_dim_);
    }
    const std::string* type = Find<std::string>("rope.scaling.type");
    const double* factor = FindReal("rope.scaling.factor");
    const double* old_factor = FindReal("rope.scale_linear");
    const double* attention = FindReal("rope.scaling.attn_factor");
    const int64_t* original = Find<int64_t>("rope.scaling.original_context_length");
    json scaling = json::object();
    if (type != nullptr && *type != "none") {
      if (*type != "linear" && *type != "yarn" && *type != "longrope") {
        return Fail(StrCat(prefix_, "rope.scaling.type"),
                    StrCat("is '", type->substr(0, kMaxShown),
                           "': not supported; known are none, linear, yarn and longrope"));
      }
      scaling["rope_type"] = *type;
    }
    if (factor == nullptr && old_factor != nullptr && *old_factor != 1) {
      factor = old_factor;
      scaling["rope_type"] = "linear";
    }
    if (factor != nullptr) scaling["factor"] = *factor;
    if (original != nullptr) scaling["original_max_position_embeddings"] = *original;
    for (const auto& [key, name] :
         {std::pair("yarn_beta_fast", "beta_fast"), std::pair("yarn_beta_slow", "beta_slow")}) {
      if (const double* value = FindReal(StrCat("rope.scaling.", key))) scaling[name] = *value;
    }
    Refuse("rope.scaling.yarn_log_multiplier", 0);
    Refuse("rope.scaling.yarn_ext_factor", 1);
    Refuse("rope.scaling.yarn_attn_factor", 1);
    WriteFactors(attention, scaling);
    // The length that llama.cpp stretches to with it is the file's own.
    const bool lengthens =
        family.gguf.linear_lengthens && scaling.value("rope_type", "") == "linear";
    if (lengthens && !ShrinkContext(scaling)) return;
    if (scaling.contains("rope_type")) config_["rope_scaling"] = std::move(scaling);
  }

  // Factors for each frequency: longrope's, or what Llama 3.1's rule gives.
  void WriteFactors(const double* attention, json& scaling) {
    if (!factors_.all.empty()) {
      scaling = {{"rope_type", "longrope"},
                 {"short_factor", factors_.all},
                 {"long_factor", factors_.all},
                 {"attention_factor", 1.0},
                 {"original_max_position_embeddings", config_["max_position_embeddings"]}};
    } else if (!factors_.long_.empty()) {
      scaling["rope_type"] = "longrope";
      scaling["short_factor"] = factors_.short_;
      scaling["long_factor"] = factors_.long_;
      scaling.erase("factor");
      if (attention != nullptr) scaling["attention_factor"] = *attention;
    } else if (attention != nullptr) {
      scaling["attention_factor"] = *attention;
    }
  }

  // config.json names the length before the stretching, GGUF the one behind it.
  bool ShrinkContext(const json& scaling) {
    const double factor = scaling.value("factor", 1.0);
    if (factor < 1) {
      Fail(StrCat(prefix_, "rope.scaling.factor"), "is below 1");
      return false;
    }
    constexpr int64_t kMaxContext = int64_t{1} << 40;
    const auto context = std::min(kMaxContext, config_["max_position_embeddings"].get<int64_t>());
    config_["max_position_embeddings"] =
        std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(context) / factor));
    return true;
  }

  void WriteIds() {
    if (const auto* bos = header_.Find<int64_t>("tokenizer.ggml.bos_token_id")) {
      config_["bos_token_id"] = *bos;
    }
    json ends = json::array();
    const auto add = [&ends](int64_t id) {
      if (std::find(ends.begin(), ends.end(), id) == ends.end()) ends.push_back(id);
    };
    for (const char* key : {"eos", "eot", "eom"}) {
      const auto* id = header_.Find<int64_t>(StrCat("tokenizer.ggml.", key, "_token_id"));
      if (id != nullptr) add(*id);
    }
    const auto* tokens = header_.Find<std::vector<std::string>>("tokenizer.ggml.tokens");
    const auto* types = header_.Find<std::vector<int64_t>>("tokenizer.ggml.token_type");
    constexpr int64_t kControl = 3;
    for (size_t i = 0; tokens != nullptr && types != nullptr && i < tokens->size(); ++i) {
      if (i >= types->size() || (*types)[i] != kControl) continue;
      if (std::find(kEnds.begin(), kEnds.end(), (*tokens)[i]) == kEnds.end()) continue;
      add(static_cast<int64_t>(i));
    }
    if (!ends.empty()) config_["eos_token_id"] = std::move(ends);
  }

  // A key of the architecture that nobody read may change results.
  void RefuseOthers() {
    for (const std::string_view key : kHarmless) read_.insert(StrCat(prefix_, key));
    for (const auto& [key, unused] : header_.keys) {
      if (!key.starts_with(prefix_) || read_.contains(key)) continue;
      Fail(key, "is not understood, and may change what the model answers: not supported");
    }
  }

  const GgufHeader& header_;
  const GgufRopeFactors& factors_;
  const std::string file_;
  std::string prefix_;
  std::set<std::string> read_;
  int64_t layers_ = 0;
  int64_t head_dim_ = 0;
  json config_ = json::object();
  absl::Status status_;
};

}  // namespace

absl::StatusOr<json> GgufConfig(const GgufHeader& header, const GgufRopeFactors& factors,
                                std::string_view file) {
  return ConfigWriter(header, factors, file).Write();
}

json GgufTokenizerConfig(const GgufHeader& header) {
  json config = json::object();
  const auto key = [](std::string_view name) { return StrCat("tokenizer.ggml.", name); };
  const auto* tokens = header.Find<std::vector<std::string>>(key("tokens"));
  for (const auto& [name, id_key] :
       {std::pair("bos_token", "bos_token_id"), std::pair("eos_token", "eos_token_id"),
        std::pair("unk_token", "unknown_token_id"), std::pair("pad_token", "padding_token_id")}) {
    const auto* id = header.Find<int64_t>(key(id_key));
    if (id == nullptr || tokens == nullptr || *id < 0) continue;
    if (*id < static_cast<int64_t>(tokens->size()))
      config[name] = (*tokens)[static_cast<size_t>(*id)];
  }
  for (const char* name : {"add_bos_token", "add_eos_token"}) {
    if (const auto* value = header.Find<int64_t>(key(name))) config[name] = *value != 0;
  }
  if (const auto* value = header.Find<int64_t>(key("add_space_prefix"))) {
    config["add_prefix_space"] = *value != 0;
  }
  json templates = json::array();
  if (const auto* text = header.Find<std::string>("tokenizer.chat_template")) {
    templates.push_back({{"name", "default"}, {"template", *text}});
  }
  if (const auto* names = header.Find<std::vector<std::string>>("tokenizer.chat_templates")) {
    for (const std::string& name : *names) {
      const auto* text = header.Find<std::string>(StrCat("tokenizer.chat_template.", name));
      if (text != nullptr) templates.push_back({{"name", name}, {"template", *text}});
    }
  }
  if (!templates.empty()) config["chat_template"] = std::move(templates);
  return config;
}

}  // namespace tessera
