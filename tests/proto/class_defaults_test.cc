// The configuration that transformers saves for each class, key by key: one that is left out means
// what transformers assumes for it, and one that says something else is never passed over.
#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proto/file_text.h"
#include "proto/json_reader.h"
#include "proto/model/model_config.h"
#include "third_party/absl/str_cat.h"

namespace tessera {
namespace {

using nlohmann::json;

json ReadConfigs() {
  const std::string file = "tests/golden/configs/class_defaults.json";
  const auto text = ReadFileText(file, kMaxJsonBytes);
  REQUIRE(text.ok());
  const auto document = ParseJsonObject(*text, file);
  REQUIRE(document.ok());
  return document->at("configs");
}

// "" where the configuration is refused, or a key of it is noted as passed over.
std::string Read(const json& config) {
  std::vector<std::string> notes;
  const auto model = ParseModelConfig(config.dump(), "config.json", &notes);
  return model.ok() && notes.empty() ? model->SerializeAsString() : "";
}

// Visits the members of the configuration, and of the text part inside of it, which may be changed.
void ForEachKey(json& config,
                const std::function<void(json& object, const std::string& key)>& visit) {
  std::vector<std::string> keys;
  for (const auto& [key, unused] : config.items()) keys.push_back(key);
  for (const std::string& key : keys) visit(config, key);
  if (config.contains("text_config")) ForEachKey(config["text_config"], visit);
}

// Of training, generation, files or software.
bool IsHarmless(const std::string& key) {
  for (const char* end : {"dropout", "_pdrop", "_token_id", "initializer_range"}) {
    if (key.ends_with(end)) return true;
  }
  for (const char* one : {"use_cache", "transformers_version", "router_aux_loss_coef", "model_type",
                          "pretraining_tp", "output_router_logits", "architectures", "text_config",
                          "num_nextn_predict_layers", "layerdrop", "init_std"}) {
    if (key == one) return true;
  }
  return false;
}

// Keys that say nothing in the own configuration of these classes: another key or a switch decides,
// they follow from others, or they are of towers, of routing while training, or of other heads.
constexpr std::pair<std::string_view, std::string_view> kSilent[] = {
    {"global_attn_every_n_layers", "AfmoeForCausalLM"},
    {"head_dim",
     "DeepseekV2ForCausalLM DeepseekV3ForCausalLM Kimi_K25ForConditionalGeneration "
     "Mistral4ForCausalLM"},
    {"intermediate_size",
     "DeepseekV2ForCausalLM Dots1ForCausalLM GraniteMoeHybridForCausalLM MellumForCausalLM "
     "Mistral4ForCausalLM Qwen2MoeForCausalLM Qwen3MoeForCausalLM Qwen3NextForCausalLM "
     "Qwen3VLMoeForConditionalGeneration"},
    {"n_group", "DeepseekV2ForCausalLM"},
    {"qk_head_dim",
     "DeepseekV2ForCausalLM DeepseekV3ForCausalLM Glm4MoeLiteForCausalLM "
     "Kimi_K25ForConditionalGeneration Mistral4ForCausalLM"},
    {"topk_group",
     "DeepseekV2ForCausalLM Dots1ForCausalLM ExaoneMoeForCausalLM Glm4MoeForCausalLM "
     "Glm4MoeLiteForCausalLM Glm4vMoeForConditionalGeneration Mistral4ForCausalLM "
     "SolarOpenForCausalLM"},
    {"max_window_layers",
     "Dots1ForCausalLM Qwen2ForCausalLM Qwen2MoeForCausalLM Qwen2_5_VLForConditionalGeneration "
     "Qwen3ForCausalLM"},
    {"sliding_window",
     "Dots1ForCausalLM MellumForCausalLM Qwen2ForCausalLM Qwen2MoeForCausalLM "
     "Qwen2_5_VLForConditionalGeneration Qwen3ForCausalLM Qwen3MoeForCausalLM SmolLM3ForCausalLM"},
    {"moe_layer_end_index", "Ernie4_5_MoeForCausalLM"},
    {"sliding_window_pattern",
     "Exaone4ForCausalLM Exaone4_5_ForConditionalGeneration ExaoneMoeForCausalLM"},
    {"tie_word_embeddings",
     "Exaone4_5_ForConditionalGeneration Gemma3ForConditionalGeneration "
     "Gemma4ForConditionalGeneration Gemma4UnifiedForConditionalGeneration "
     "Glm4vMoeForConditionalGeneration Kimi_K25ForConditionalGeneration "
     "Llama4ForConditionalGeneration Mistral3ForConditionalGeneration "
     "Qwen3VLMoeForConditionalGeneration Qwen3_5ForConditionalGeneration "
     "Qwen3_5MoeForConditionalGeneration"},
    {"first_k_dense_replace", "ExaoneMoeForCausalLM"},
    {"is_decoder", "GPTNeoXForCausalLM"},
    {"_sliding_window_pattern", "Gemma3ForCausalLM Gemma3ForConditionalGeneration"},
    {"boi_token_index eoi_token_index",
     "Gemma3ForConditionalGeneration Llama4ForConditionalGeneration"},
    {"image_token_index",
     "Gemma3ForConditionalGeneration Llama4ForConditionalGeneration "
     "Mistral3ForConditionalGeneration"},
    {"mm_tokens_per_image", "Gemma3ForConditionalGeneration"},
    {"moe_intermediate_size num_experts top_k_experts",
     "Gemma4ForCausalLM Gemma4ForConditionalGeneration"},
    {"use_double_wide_mlp",
     "Gemma4ForCausalLM Gemma4ForConditionalGeneration Gemma4UnifiedForConditionalGeneration"},
    {"eoa_token_index", "Gemma4ForConditionalGeneration Gemma4UnifiedForConditionalGeneration"},
    {"max_position_embeddings", "GptOssForCausalLM Ministral3ForCausalLM Mistral4ForCausalLM"},
    {"mamba_chunk_size mamba_conv_bias mamba_d_conv mamba_d_head mamba_d_state mamba_expand "
     "mamba_n_groups mamba_n_heads mamba_proj_bias num_experts_per_tok position_embedding_type "
     "time_step_limit",
     "GraniteMoeHybridForCausalLM"},
    {"rope_parameters",
     "GraniteMoeHybridForCausalLM MellumForCausalLM Ministral3ForCausalLM Mistral4ForCausalLM"},
    {"enable_moe_fp32_combine", "HYV3ForCausalLM"},
    {"projection_hidden_size projection_layer_norm_eps", "Kimi_K25ForConditionalGeneration"},
    {"interleave_moe_layer_step intermediate_size_mlp moe_layers",
     "Llama4ForCausalLM Llama4ForConditionalGeneration"},
    {"no_rope_layer_interval",
     "Llama4ForCausalLM Llama4ForConditionalGeneration SmolLM3ForCausalLM"},
    {"router_jitter_noise",
     "Llama4ForCausalLM Llama4ForConditionalGeneration MiniMaxM2ForCausalLM MixtralForCausalLM"},
    {"mtp_layer_types mtp_mlp_layer_types", "MellumForCausalLM"},
    {"multimodal_projector_bias projector_hidden_act spatial_merge_size vision_feature_layer",
     "Mistral3ForConditionalGeneration"},
    {"original_max_position_embeddings", "Phi3ForCausalLM"},
    {"input_jitter_noise", "PhimoeForCausalLM"},
    {"layer_types", "Qwen2ForCausalLM Qwen2_5_VLForConditionalGeneration Qwen3ForCausalLM"},
    {"use_sliding_window",
     "Qwen2ForCausalLM Qwen2MoeForCausalLM Qwen2_5_VLForConditionalGeneration Qwen3ForCausalLM "
     "Qwen3MoeForCausalLM SmolLM3ForCausalLM"},
};

bool IsWordOf(std::string_view word, std::string_view words) {
  return StrCat(" ", words, " ").find(StrCat(" ", word, " ")) != std::string::npos;
}

bool IsSilent(const std::string& architecture, const std::string& key) {
  return std::any_of(std::begin(kSilent), std::end(kSilent), [&](const auto& silent) {
    return IsWordOf(key, silent.first) && IsWordOf(architecture, silent.second);
  });
}

// Other values of the same kind.
std::vector<json> OthersThan(const json& value) {
  if (value.is_boolean()) return {!value.get<bool>()};
  if (value.is_number_integer()) {
    const auto number = value.get<int64_t>();
    return {number + 1, 2 * number + 2, number / 2};
  }
  if (value.is_number()) return {value.get<double>() * 0.75 + 0.01};
  if (value.is_string()) return {value.get<std::string>() + "x"};
  if (value.is_null()) return {true, 3, 0.5, "x", json::array({1}), json::array({"x"})};
  if (value.is_array() && !value.empty()) {
    json shorter = value;
    shorter.erase(shorter.size() - 1);
    json turned = value;
    std::reverse(turned.begin(), turned.end());
    return {shorter, turned};
  }
  if (!value.is_object()) return {};
  std::vector<json> others;
  for (const auto& [key, member] : value.items()) {
    for (const json& other : OthersThan(member)) {
      others.push_back(value);
      others.back()[key] = other;
    }
  }
  return others;
}

}  // namespace

TEST_CASE("a key that is left out means what transformers assumes for it") {
  std::string wrong;
  const json configs = ReadConfigs();
  for (const auto& [name, published] : configs.items()) {
    json config = published;
    const std::string whole = Read(config);
    REQUIRE(!whole.empty());
    ForEachKey(config, [&](json& object, const std::string& key) {
      // The head of a file says whether it is tied (model_tensors_test); heads for further tokens
      // change no answer; ids of ends stand outside or inside.
      for (const char* other : {"architectures", "text_config", "tie_word_embeddings",
                                "num_nextn_predict_layers", "eos_token_id"}) {
        if (key == other) return;
      }
      // The wrapper's own text part has another rotation than its class, which is what counts.
      if (key == "rope_parameters" && name == "Mistral3ForConditionalGeneration") return;
      const json kept = object[key];
      object.erase(key);
      const std::string without = Read(config);
      if (!without.empty() && without != whole) wrong += StrCat("\n", name, ": ", key);
      object[key] = kept;
    });
  }
  CHECK(wrong == "");
}

TEST_CASE("no key that a class has is passed over when it says something else") {
  std::string wrong;
  const json configs = ReadConfigs();
  for (const auto& [name, published] : configs.items()) {
    json config = published;
    const std::string whole = Read(config);
    ForEachKey(config, [&](json& object, const std::string& key) {
      if (IsHarmless(key) || IsSilent(name, key)) return;
      const json kept = object[key];
      for (const json& other : OthersThan(kept)) {
        object[key] = other;
        if (Read(config) != whole || other == kept) continue;
        wrong += StrCat("\n", name, ": ", key, " = ", other.dump().substr(0, 60));
      }
      object[key] = kept;
    });
  }
  CHECK(wrong == "");
}

}  // namespace tessera
