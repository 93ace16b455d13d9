// Keys that no family reads: those that transformers reads are refused by name unless they are at
// their defaults, harmless ones are passed over, others are named.
#include "proto/model/config_keys.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "proto/model/families/families.h"
#include "proto/model/model_config.h"

namespace tessera {
namespace {

constexpr const char* kSizes = R"("hidden_size": 64, "num_hidden_layers": 4,
    "num_attention_heads": 4, "vocab_size": 128, "intermediate_size": 96,
    "max_position_embeddings": 32)";

absl::StatusOr<v1::Model> Read(const std::string& architecture, const std::string& extra,
                               std::vector<std::string>* notes, const char* file = "config.json") {
  const std::string text =
      R"({"architectures": [")" + architecture + R"("], )" + kSizes + ", " + extra + "}";
  return ParseModelConfig(text, file, notes);
}

using Catch::Contains;

}  // namespace

TEST_CASE("what transformers reads is listed for every family") {
  for (const Family* family : Families()) {
    INFO(family->architecture);
    CHECK(HasOracleKeys(family->architecture));
  }
  CHECK_FALSE(HasOracleKeys("NoSuchClass"));
}

TEST_CASE("a key that transformers reads and nothing here does is refused unless at its default") {
  const auto check = [](const std::string& text, std::string* notes) {
    const auto document = ParseJsonObject(text, "config.json");
    REQUIRE(document.ok());
    JsonReader config(*document, "config.json", "text_config.");
    *notes = CheckUnreadKeys(config, "CohereForCausalLM");
    return std::string(config.status().message());
  };
  std::string notes;
  CHECK(check(R"({"attention_bias": false, "logit_scale": 0.0625, "use_qk_norm": null})", &notes)
            .empty());
  CHECK(notes.empty());
  CHECK(check(R"({"attention_bias": true})", &notes) ==
        "config.json: text_config.attention_bias is true: transformers reads it for "
        "CohereForCausalLM (its default is false), and other values are not supported here");
  CHECK_THAT(check(R"({"logit_scale": 0.5})", &notes), Contains("text_config.logit_scale is 0.5"));
  CHECK(check(R"({"is_causal": true})", &notes).empty());
  CHECK_THAT(check(R"({"is_causal": false})", &notes),
             Contains("text_config.is_causal is false: models that attend to both sides"));
  // Read by another class alone.
  CHECK(check(R"({"no_rope_layers": [1]})", &notes).empty());
  CHECK(notes ==
        "config.json: 1 key is passed over, as transformers does for CohereForCausalLM: "
        "no_rope_layers");
}

TEST_CASE("a window that the class does not read is refused where it is shorter than the context") {
  const auto read = [](const std::string& extra) {
    std::vector<std::string> notes;
    const auto model = Read("LlamaForCausalLM", extra, &notes);
    return model.ok() ? std::to_string(notes.size()) : std::string(model.status().message());
  };
  CHECK(read(R"("sliding_window": 8)") ==
        "config.json: sliding_window is 8: transformers forgets older tokens while it generates "
        "then, though LlamaForCausalLM has no windows; remove it if that is not meant");
  CHECK_THAT(read(R"("attention_chunk_size": 31)"), Contains("attention_chunk_size is 31"));
  CHECK_THAT(read(R"("sliding_window": 8,
      "layer_types": ["full_attention", "sliding_attention"])"),
             Contains("sliding_window is 8"));
  // Named, and served.
  CHECK(read(R"("sliding_window": 32)") == "1");
  CHECK(read(R"("sliding_window": 8, "use_sliding_window": false)") == "1");
  CHECK(read(R"("sliding_window": 8, "layer_types": ["full_attention"])") == "1");
  CHECK(read(R"("sliding_window": 8, "layer_types": ["linear_attention"])") == "1");
  CHECK(read(R"("sliding_window": null)") == "0");
  // llama.cpp forgets nothing then.
  std::vector<std::string> notes;
  CHECK(Read("LlamaForCausalLM", R"("sliding_window": 8)", &notes, "m.gguf").ok());
}

TEST_CASE("a key that transformers reads for every class is refused") {
  std::vector<std::string> notes;
  const auto model =
      Read("LlamaForCausalLM", R"("per_layer_config": {"1": {"intermediate_size": 32}})", &notes);
  CHECK(
      model.status().message() ==
      "config.json: per_layer_config is {\"1\":{\"intermediate_size\":32}}: transformers reads it "
      "for every class, and it is not supported for LlamaForCausalLM");
  // Read where experts are FP8.
  const std::string fp8 =
      R"("quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]})";
  CHECK_THAT(
      std::string(
          Read("LlamaForCausalLM", fp8 + R"(, "swiglu_limit": 7.0)", &notes).status().message()),
      Contains("swiglu_limit is 7.0"));
  for (const char* harmless :
       {R"("per_layer_config": {}, "swiglu_limit": null)", R"("swiglu_limit": 7.0)",
        R"("transformers_weights": "model.safetensors.index.json")"}) {
    CAPTURE(harmless);
    CHECK(Read("LlamaForCausalLM", harmless, &notes).ok());
  }
  CHECK_FALSE(
      Read("LlamaForCausalLM", R"("transformers_weights": "other.safetensors")", &notes).ok());
}

TEST_CASE("a model_type of another class is refused: transformers would take that one") {
  const auto read = [](const std::string& architecture, const std::string& type) {
    const auto model = Read(architecture, "\"model_type\": \"" + type + "\"", nullptr);
    return std::string(model.status().message());
  };
  CHECK(read("LlamaForCausalLM", "llama").empty());
  CHECK(read("LlamaForCausalLM", "my_llama").empty());
  CHECK(read("LlamaForCausalLM", "qwen2") ==
        "config.json: model_type is 'qwen2', which transformers reads as Qwen2ForCausalLM, but "
        "architectures says LlamaForCausalLM (model_type 'llama'): correct the one that is not "
        "true");
  // A text part taken out of its wrapper.
  CHECK(read("Gemma3ForCausalLM", "gemma3").empty());
}

TEST_CASE("harmless keys say nothing, unknown ones are named once") {
  std::vector<std::string> notes;
  REQUIRE(Read("LlamaForCausalLM", R"("use_cache": false, "attention_dropout": 0.1,
      "resid_pdrop": 0.1, "pad_token_id": 3, "unsloth_version": "2025.1", "do_sample": true,
      "_attn_implementation_autoset": true, "image_token_index": 7, "torch_dtype": "float16",
      "unknown": null)",
               &notes)
              .ok());
  CHECK(notes.empty());
  REQUIRE(Read("LlamaForCausalLM", R"("mystery": 1, "another": {"a": 1})", &notes).ok());
  REQUIRE(notes.size() == 1);
  CHECK(notes[0] ==
        "config.json: 2 keys are passed over, as transformers does for LlamaForCausalLM: another, "
        "mystery");
}

TEST_CASE("keys of a rotation that nobody reads are named too") {
  std::vector<std::string> notes;
  // As DeepSeek-R1-0528-Qwen3-8B has it: transformers knows attention_factor alone.
  const auto read = Read("Qwen3ForCausalLM", R"("rope_scaling": {"rope_type": "yarn", "factor": 4.0,
      "original_max_position_embeddings": 8, "attn_factor": 0.8782488562869419,
      "beta_slow": null, "of_nobody": null}, "mystery": 1)",
                         &notes);
  REQUIRE(read.ok());
  REQUIRE(notes.size() == 1);
  CHECK(notes[0] ==
        "config.json: 2 keys are passed over, as transformers does for Qwen3ForCausalLM: "
        "rope_scaling.attn_factor, mystery");
  notes.clear();
  REQUIRE(Read("Gemma3ForCausalLM", R"("rope_parameters": {
      "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6, "stray": 2},
      "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}})",
               &notes)
              .ok());
  REQUIRE(notes.size() == 1);
  CHECK_THAT(notes[0], Contains("1 key is passed over"));
  CHECK_THAT(notes[0], Contains("rope_parameters.full_attention.stray"));
}

}  // namespace tessera
