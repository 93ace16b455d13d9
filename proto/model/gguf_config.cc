#include "proto/model/gguf_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "proto/model/families/families.h"
#include "proto/model/gguf_keys.h"
#include "proto/model/gguf_mixers.h"
#include "third_party/absl/str_cat.h"

namespace tessera {
namespace {

using nlohmann::json;

constexpr size_t kMaxShown = 60;
constexpr int64_t kMaxLayersLooked = 10'000;
constexpr const char* kWeightsNorm = "expert_weights_norm";
constexpr const char* kClamp = "attention.clamp_kqv";
constexpr const char* kGain = "attention.temperature_scale";
constexpr const char* kWindow = "attention.sliding_window";
constexpr const char* kWindowLayers = "attention.sliding_window_pattern";

// Keys of an architecture that change nothing here: what they say stands elsewhere in the file, or
// is of training.
constexpr std::array<std::string_view, 4> kHarmless = {
    "vocab_size", "tensor_data_layout", "rope.scaling.finetuned", "rope.dimension_sections"};

// Text of chat turns' ends; a file may name only one of several ids.
constexpr std::array kEnds = {std::string_view("<|eot_id|>"),
                              std::string_view("<|im_end|>"),
                              std::string_view("<|end|>"),
                              std::string_view("<|return|>"),
                              std::string_view("<|call|>"),
                              std::string_view("<end_of_turn>"),
                              std::string_view("<turn|>"),
                              std::string_view("<|tool_response>"),
                              std::string_view("<|endoftext|>"),
                              std::string_view("<|end_of_text|>"),
                              std::string_view("<|eom_id|>"),
                              std::string_view("</s>"),
                              std::string_view("<eos>"),
                              std::string_view("[EOS]"),
                              std::string_view("[EOT]"),
                              std::string_view("[e~["),
                              std::string_view("<｜end▁of▁sentence｜>")};
// Ends a message of a turn, not the turn, where the vocabulary has both of the others.
constexpr std::string_view kMessageEnd = "<|end|>", kReturn = "<|return|>", kCall = "<|call|>";

// The key is one of the family's own.
bool ReadsKey(const GgufFacts& facts, std::string_view name) {
  return std::any_of(facts.keys.begin(), facts.keys.end(),
                     [name](const GgufFacts::Key& key) { return key.gguf == name; });
}

// Writes config.json from keys; the first failure stays.
class ConfigWriter {
 public:
  ConfigWriter(const GgufHeader& header, const GgufRopeFactors& factors, std::string_view file)
      : header_(header), factors_(factors), keys_(header, file, &config_) {}

  absl::StatusOr<json> Write() {
    const std::string* type = header_.Find<std::string>("general.type");
    if (type != nullptr && *type != "model") {
      keys_.Fail("general.type",
                 StrCat("is '", type->substr(0, kMaxShown),
                        "': the file is no language model; give the model's own file, of type "
                        "'model'"));
      return keys_.status();
    }
    const std::string* name = header_.Find<std::string>("general.architecture");
    if (name == nullptr) {
      keys_.Fail("general.architecture", "is missing");
      return keys_.status();
    }
    keys_.SetArchitecture(*name);
    const int64_t* experts = keys_.Find<int64_t>("expert_count");
    const Family* family = FindGgufFamily(*name, experts != nullptr && *experts > 0);
    if (family == nullptr) {
      RefuseArchitecture(*name, experts);
      return keys_.status();
    }
    if (const Family* other = family->gguf.other_gating; other != nullptr && GatesAs(*other)) {
      family = other;
    }
    if (family->gguf.with_windows != nullptr && HasWindows()) family = family->gguf.with_windows;
    config_["architectures"] = {std::string(family->architecture)};
    WriteSizes(family->gguf);
    WriteExperts(family->gguf, experts);
    WriteMixers(*family);
    WriteIds();
    WriteFacts(family->gguf);
    keys_.Refuse("attention.causal", 1);
    RefusePooling();
    keys_.RefuseOthers(kHarmless);
    if (!keys_.ok()) return keys_.status();
    return std::move(config_);
  }

 private:
  void RefuseArchitecture(std::string_view name, const int64_t* experts) {
    if (experts != nullptr && FindGgufFamily(name, *experts <= 0) != nullptr) {
      return keys_.Fail(keys_.Whole("expert_count"),
                        StrCat("is ", *experts, ": not supported of this architecture"));
    }
    std::set<std::string> names;
    for (const Family* one : Families()) {
      names.emplace(one->gguf.architecture);
      names.emplace(one->gguf.with_images);
    }
    std::string known;
    for (const std::string& one : names) {
      if (!one.empty()) known = StrCat(known, known.empty() ? "" : ", ", one);
    }
    keys_.Fail("general.architecture",
               StrCat("is '", name.substr(0, kMaxShown),
                      "', which is not supported as GGUF; known are ", known));
  }

  // Embeddings are those of the last token.
  void RefusePooling() {
    constexpr int64_t kNone = 0, kLast = 3;
    const int64_t* pooling = keys_.Find<int64_t>("pooling_type");
    if (pooling == nullptr || *pooling == kNone || *pooling == kLast) return;
    keys_.Fail(keys_.Whole("pooling_type"),
               StrCat("is ", *pooling, ": not supported; 0 and 3 (the last token) are"));
  }

  // What no key says.
  void WriteFacts(const GgufFacts& facts) {
    if (!keys_.ok()) return;
    constexpr bool kMergeObjects = true;
    const auto add = [&](std::string_view text) {
      json added = json::parse(text);
      if (config_.contains("layer_types")) {  // the file says which layers have a window
        added.erase("sliding_window");
        added.erase("sliding_window_pattern");
      }
      config_.update(added, kMergeObjects);
    };
    add(facts.config);
    if (facts.layers == layers_) add(facts.config_of_layers);
    if (facts.experts > 0 && config_.value("num_experts", int64_t{0}) == facts.experts) {
      add(facts.config_of_experts);
    }
    for (const GgufFacts::Flag& flag : facts.flags) {
      if (!flag.key.empty()) config_[std::string(flag.key)] = FirstLayerHas(flag.tensor);
    }
  }

  // Old files do not say how experts are chosen; a sigmoid is corrected by a bias.
  bool GatesAs(const Family& family) {
    const int64_t* gating = keys_.Find<int64_t>("expert_gating_func");
    if (gating != nullptr && *gating != 0) return *gating == family.gguf.gating;
    return std::any_of(
        header_.tensors.begin(), header_.tensors.end(),
        [](const GgufTensor& tensor) { return tensor.name.ends_with(".exp_probs_b.bias"); });
  }

  bool HasWindows() {
    const int64_t* window = keys_.FindSame(kWindow);
    return window != nullptr && *window > 0;
  }

  // 0 stands for no window. Which layers have one may be a list; a number is the family's to read.
  void WriteWindows(const GgufFacts& facts) {
    if (facts.names_windows && !HasWindows()) {
      keys_.MarkRead(keys_.Whole(kWindowLayers));
      config_["layer_types"] = json(static_cast<size_t>(layers_), "full_attention");
      return;
    }
    if (const int64_t* window = keys_.FindSame(kWindow)) {
      config_["sliding_window"] = *window == 0 ? json() : json(*window);
    }
    const auto* windowed = header_.Find<std::vector<int64_t>>(keys_.Whole(kWindowLayers));
    if (windowed == nullptr) return;
    json types = json::array();
    for (const int64_t has_window : keys_.ListOf(kWindowLayers, layers_)) {
      if (std::ssize(types) == layers_) break;
      types.push_back(has_window != 0 ? "sliding_attention" : "full_attention");
    }
    config_["layer_types"] = std::move(types);
  }

  // A file that counts fewer layers than it has tensors of was cut short, or its key was.
  void CheckLayersOfTensors() {
    constexpr std::string_view kLayer = "blk.";
    for (const GgufTensor& tensor : header_.tensors) {
      if (!tensor.name.starts_with(kLayer)) continue;
      const size_t end = std::min(tensor.name.find('.', kLayer.size()), tensor.name.size());
      int64_t layer = 0;
      const bool is_number =
          absl::SimpleAtoi(tensor.name.substr(kLayer.size(), end - kLayer.size()), &layer);
      if (is_number && layer >= 0 && layer < layers_) continue;
      return keys_.Fail(keys_.Whole("block_count"),
                        StrCat("is ", layers_, ", but there is a tensor '",
                               tensor.name.substr(0, kMaxShown), "'"));
    }
  }

  bool FirstLayerHas(std::string_view tensor) const {
    return header_.FindTensor(StrCat("blk.0.", tensor)) != nullptr;
  }

  void WriteSizes(const GgufFacts& facts) {
    const GgufTensor* table = header_.FindTensor("token_embd.weight");
    if (table == nullptr || table->shape.size() != 2) {
      return keys_.Fail("general.architecture",
                        "names a language model, but there is no tensor "
                        "'token_embd.weight' of two dimensions");
    }
    keys_.CopyInteger("block_count", "num_hidden_layers", true);
    keys_.CopyInteger("context_length", "max_position_embeddings", true);
    keys_.CopyInteger("embedding_length", "hidden_size", true);
    if (!facts.heads_by_kind) keys_.CopyInteger("feed_forward_length", "intermediate_size");
    if (!keys_.ok()) return;
    layers_ = config_["num_hidden_layers"].get<int64_t>();
    if (layers_ < 1 || layers_ > kMaxLayersLooked) {
      return keys_.Fail(keys_.Whole("block_count"), StrCat("is ", layers_));
    }
    CheckLayersOfTensors();
    // Layers that predict further tokens are counted, and left out here.
    if (const int64_t* further = keys_.Find<int64_t>("nextn_predict_layers")) {
      if (*further < 0 || *further >= layers_) {
        return keys_.Fail(keys_.Whole("nextn_predict_layers"), StrCat("is ", *further));
      }
      layers_ -= *further;
      config_["num_hidden_layers"] = layers_;
    }
    config_["vocab_size"] = table->shape[0];
    config_["tie_word_embeddings"] = header_.FindTensor("output.weight") == nullptr;
    keys_.CopyReal("attention.layer_norm_rms_epsilon", "rms_norm_eps");
    keys_.CopyReal("attention.layer_norm_epsilon", facts.layer_norm_key);
    if (const int64_t* parallel = keys_.Find<int64_t>("use_parallel_residual")) {
      config_["use_parallel_residual"] = *parallel != 0;
    }
  }

  // Keys that config.json has under a name of the family's.
  void CopyKeys(const GgufFacts& facts) {
    for (const GgufFacts::Key& key : facts.keys) {
      if (key.gguf.empty()) continue;
      if (header_.Find<std::vector<int64_t>>(keys_.Whole(key.gguf)) != nullptr &&
          key.gguf == kWindowLayers) {
        continue;  // WriteWindows
      }
      const std::string whole = keys_.Whole(key.gguf), name(key.config);
      keys_.MarkRead(whole);
      if (name.empty()) continue;
      if (const auto* real = header_.Find<double>(whole)) config_[name] = *real;
      const auto* integer = header_.Find<int64_t>(whole);
      if (integer == nullptr) {
        if (header_.keys.contains(whole) && !config_.contains(name)) {
          keys_.Fail(whole, "is no number: not supported");
        }
        continue;
      }
      config_[name] = *integer;
      if (key.gguf == kWeightsNorm) config_[name] = *integer != 0;
    }
  }

  void WriteExperts(const GgufFacts& facts, const int64_t* count) {
    if (!keys_.ok()) return;
    const int64_t* used = keys_.Find<int64_t>("expert_used_count");
    const int64_t* width = keys_.Find<int64_t>("expert_feed_forward_length");
    constexpr const char* kGroups = "expert_group_count";
    const int64_t* groups = keys_.Find<int64_t>(kGroups);
    const int no_groups = groups != nullptr && *groups == 1 ? 1 : 0;  // all experts are in one
    CopyKeys(facts);
    for (const auto& [key, neutral] :
         {std::pair("expert_shared_count", 0), std::pair("expert_shared_feed_forward_length", 0),
          std::pair(kGroups, no_groups), std::pair("expert_group_used_count", no_groups),
          std::pair("leading_dense_block_count", 0), std::pair("nextn_predict_layers", 0),
          std::pair("interleave_moe_layer_step", 1), std::pair("expert_weights_scale", 1),
          std::pair(kWeightsNorm, 1)}) {
      if (!ReadsKey(facts, key)) keys_.Refuse(key, neutral);
    }
    keys_.Refuse("expert_gating_func", static_cast<double>(facts.gating));
    if (count == nullptr || *count <= 0) return;
    if (used == nullptr) return keys_.Fail(keys_.Whole("expert_used_count"), "is missing");
    config_["num_experts"] = *count;
    config_["num_experts_per_tok"] = *used;
    if (width == nullptr) return;
    if (facts.dense_width.empty()) {
      config_["moe_intermediate_size"] = *width;
    } else {
      config_[std::string(facts.dense_width)] = config_["intermediate_size"];
      config_["intermediate_size"] = *width;
    }
  }

  // Attention, or what is in its place, and rotations.
  void WriteMixers(const Family& family) {
    if (family.gguf.heads_by_kind) return WriteGgufKinds(keys_, layers_, factors_.all);
    if (family.gguf.latent) {
      WriteGgufLatent(keys_);
      if (!family.gguf.gains) keys_.Refuse(kGain, 0);
      if (keys_.ok()) head_dim_ = config_["qk_rope_head_dim"].get<int64_t>();
    } else {
      WriteAttention(family.gguf);
    }
    if (family.gguf.delta) WriteGgufDelta(keys_, layers_);
    WriteRope(family);
  }

  void WriteAttention(const GgufFacts& facts) {
    if (!keys_.ok()) return;
    keys_.CopyInteger("attention.head_count", "num_attention_heads", true);
    if (!keys_.ok()) return;
    const auto heads = config_["num_attention_heads"].get<int64_t>();
    config_["num_key_value_heads"] = heads;
    keys_.CopyInteger("attention.head_count_kv", "num_key_value_heads");
    const int64_t* keys = keys_.Find<int64_t>("attention.key_length");
    const int64_t* values = keys_.Find<int64_t>("attention.value_length");
    const auto hidden = config_["hidden_size"].get<int64_t>();
    head_dim_ = keys != nullptr ? *keys : (heads > 0 && hidden % heads == 0 ? hidden / heads : 0);
    if (head_dim_ < 1) return keys_.Fail(keys_.Whole("attention.key_length"), "is missing");
    if (values != nullptr && *values != head_dim_) {
      return keys_.Fail(
          keys_.Whole("attention.value_length"),
          StrCat("is ", *values, ", attention.key_length ", head_dim_, ": not supported"));
    }
    config_["head_dim"] = head_dim_;
    if (facts.scaled_by_head) config_["query_pre_attn_scalar"] = head_dim_;
    WriteWindows(facts);
    if (!ReadsKey(facts, kClamp)) keys_.Refuse(kClamp, 0);
    keys_.Refuse("attention.max_alibi_bias", 0);
    config_["attention_bias"] = FirstLayerHas("attn_q.bias") || FirstLayerHas("attn_qkv.bias");
    config_["mlp_bias"] = FirstLayerHas("ffn_up.bias");
  }

  void WriteRope(const Family& family) {
    if (!keys_.ok()) return;
    WriteBase(family.gguf);
    const int64_t* dimensions = keys_.Find<int64_t>("rope.dimension_count");
    const int64_t rotated = dimensions == nullptr ? head_dim_ : *dimensions;
    if (rotated != head_dim_ || family.partial_rotary > 0) {
      config_["partial_rotary_factor"] =
          static_cast<double>(rotated) / static_cast<double>(head_dim_);
    }
    const std::string* type = keys_.Find<std::string>("rope.scaling.type");
    const double* factor = keys_.FindReal("rope.scaling.factor");
    const double* old_factor = keys_.FindReal("rope.scale_linear");
    const double* attention = keys_.FindReal("rope.scaling.attn_factor");
    const int64_t* original = keys_.Find<int64_t>("rope.scaling.original_context_length");
    json scaling = json::object();
    if (type != nullptr && *type != "none") {
      if (*type != "linear" && *type != "yarn" && *type != "longrope") {
        return keys_.Fail(keys_.Whole("rope.scaling.type"),
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
      if (const double* value = keys_.FindReal(StrCat("rope.scaling.", key)))
        scaling[name] = *value;
    }
    WriteGrowth(family.gguf, scaling);
    keys_.Refuse("rope.scaling.yarn_ext_factor", 1);
    const double usual = CheckYarnFactor(scaling);
    WriteFactors(attention, usual, scaling);
    // The length that llama.cpp stretches to with it is the file's own.
    const bool lengthens =
        family.gguf.linear_lengthens && scaling.value("rope_type", "") == "linear";
    if (lengthens && !ShrinkContext(scaling)) return;
    if (scaling.contains("rope_type")) config_["rope_scaling"] = std::move(scaling);
  }

  // Where layers with a window have a base of their own, the family's keys say so.
  void WriteBase(const GgufFacts& facts) {
    constexpr const char* kBase = "rope.freq_base";
    constexpr const char* kWindowBase = "rope.freq_base_swa";
    keys_.CopyReal(kBase, "rope_theta");
    const bool known = ReadsKey(facts, kWindowBase);
    const double *base = keys_.FindReal(kBase), *of_windows = keys_.FindReal(kWindowBase);
    if (known || of_windows == nullptr || (base != nullptr && *base == *of_windows)) return;
    keys_.Fail(keys_.Whole(kWindowBase), "is another than rope.freq_base: not supported");
  }

  // What grows with the length: yarn's scale, and the queries of Ministral 3.
  void WriteGrowth(const GgufFacts& facts, json& scaling) {
    constexpr const char* kLogMultiplier = "rope.scaling.yarn_log_multiplier";
    if (!facts.latent && !facts.gains) keys_.Refuse(kLogMultiplier, 0);
    const double* all = keys_.FindReal(kLogMultiplier);
    if (all != nullptr && !facts.latent) {
      if (*all != 0) scaling["mscale"] = scaling["mscale_all_dim"] = *all;
    } else if (all != nullptr) {
      // A tenth of mscale_all_dim, to which mscale is equal.
      scaling["mscale"] = scaling["mscale_all_dim"] = std::round(*all * 1e6) / 1e5;
    }
    if (!facts.gains) return;
    const double* gain = keys_.FindReal(kGain);
    const double grows = gain == nullptr ? facts.gain_unsaid : *gain;
    if (grows != 0) scaling["llama_4_scaling_beta"] = grows;
  }

  // What YaRN multiplies cosines and sines by. llama.cpp passes over yarn_attn_factor, which is
  // attention_factor of config.json, or an attn_factor that transformers passes over (it undoes
  // what is usual).
  double CheckYarnFactor(const json& scaling) {
    constexpr const char* kPassedOver = "rope.scaling.yarn_attn_factor";
    constexpr double kRounding = 1e-4;
    const double factor = scaling.value("factor", 1.0);
    const double usual = factor > 1 && !scaling.contains("mscale") ? 0.1 * std::log(factor) + 1 : 1;
    const double* said = keys_.FindReal(kPassedOver);
    const auto says = [&](double value) { return std::abs(*said - value) <= kRounding; };
    if (said != nullptr && !says(1) && !says(usual) && !says(1 / usual)) {
      keys_.Fail(keys_.Whole(kPassedOver),
                 StrCat("is ", *said, ", where ", usual, " is usual: not supported"));
    }
    return usual;
  }

  // Factors for each frequency: longrope's, or what Llama 3.1's rule gives. llama.cpp multiplies
  // what is usual of YaRN by `attention`.
  void WriteFactors(const double* attention, double usual, json& scaling) {
    if (!factors_.all.empty()) {
      scaling = {{"rope_type", "longrope"},
                 {"short_factor", factors_.all},
                 {"long_factor", factors_.all},
                 {"attention_factor", 1.0},
                 {"original_max_position_embeddings", config_["max_position_embeddings"]}};
      keys_.Refuse("rope.scaling.attn_factor", 1);
    } else if (!factors_.long_.empty()) {
      scaling["rope_type"] = "longrope";
      scaling["short_factor"] = factors_.short_;
      scaling["long_factor"] = factors_.long_;
      scaling.erase("factor");
      if (attention != nullptr) scaling["attention_factor"] = *attention;
    } else if (attention != nullptr && scaling.value("rope_type", "") == "yarn") {
      scaling["attention_factor"] = usual * *attention;
    } else {
      keys_.Refuse("rope.scaling.attn_factor", 1);
    }
  }

  // config.json names the length before the stretching, GGUF the one behind it.
  bool ShrinkContext(const json& scaling) {
    const double factor = scaling.value("factor", 1.0);
    if (factor < 1) {
      keys_.Fail(keys_.Whole("rope.scaling.factor"), "is below 1");
      return false;
    }
    constexpr int64_t kMaxContext = int64_t{1} << 40;
    const auto context = std::min(kMaxContext, config_["max_position_embeddings"].get<int64_t>());
    config_["max_position_embeddings"] =
        std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(context) / factor));
    return true;
  }

  void WriteIds() {
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
    std::map<std::string_view, int64_t> found;
    for (size_t i = 0; tokens != nullptr && types != nullptr && i < tokens->size(); ++i) {
      if (i >= types->size() || (*types)[i] != kControl) continue;
      if (std::find(kEnds.begin(), kEnds.end(), (*tokens)[i]) == kEnds.end()) continue;
      found[(*tokens)[i]] = static_cast<int64_t>(i);
    }
    for (const auto& [text, id] : found) add(id);
    const auto message_end = found.find(kMessageEnd);
    if (message_end != found.end() && found.contains(kReturn) && found.contains(kCall)) {
      std::erase(ends.get_ref<json::array_t&>(), json(message_end->second));
    }
    if (!ends.empty()) config_["eos_token_id"] = std::move(ends);
  }

  const GgufHeader& header_;
  const GgufRopeFactors& factors_;
  int64_t layers_ = 0;
  int64_t head_dim_ = 0;
  json config_ = json::object();
  GgufKeys keys_;
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
