// GGUF files: what a header says, which lies of it are refused by name, and what becomes of keys.
#include <bit>
#include <catch2/catch.hpp>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "proto/model/gguf_config.h"
#include "proto/model/gguf_header.h"
#include "proto/model/gguf_model.h"
#include "proto/model/model_config.h"
#include "proto/model/model_folder.h"
#include "proto/model/model_tensors.h"
#include "proto/model/weight_files.h"
#include "tests/fakes/gguf_file.h"
#include "tests/temporary_folder.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;

using tests::GgufBytes;
using tests::GgufKey;
using tests::GgufListKey;
using tests::GgufNumber;
using tests::GgufTensorAt;
using tests::GgufText;
using tests::GgufTextKey;
using tests::kGgufArray;
using tests::kGgufBool;
using tests::kGgufF32;
using tests::kGgufI32;
using tests::kGgufString;
using tests::kGgufU32;

constexpr uint32_t kTypeQ4One = 3, kTypeIq2 = 16;

absl::StatusOr<GgufHeader> Parse(const std::string& bytes) {
  std::istringstream in(bytes);
  return ParseGgufHeader(in, static_cast<int64_t>(bytes.size()), "m.gguf");
}

std::string ErrorOf(const absl::Status& status) {
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}
std::string ErrorOf(const std::string& bytes) { return ErrorOf(Parse(bytes).status()); }

// A llama of one layer.
std::vector<std::string> Llama() {
  return {GgufTextKey("general.architecture", "llama"), GgufKey("llama.block_count", 1),
          GgufKey("llama.context_length", 64),          GgufKey("llama.embedding_length", 8),
          GgufKey("llama.feed_forward_length", 16),     GgufKey("llama.attention.head_count", 2)};
}
const std::vector<GgufTensorAt> kTable = {{.name = "token_embd.weight", .sizes = {8, 4}}};

absl::StatusOr<nlohmann::json> Config(const std::vector<std::string>& keys) {
  const auto header = Parse(GgufBytes(keys, kTable, 128));
  REQUIRE(header.ok());
  return GgufConfig(*header, {}, "m.gguf");
}
std::string ConfigError(std::vector<std::string> keys, const std::string& added) {
  keys.push_back(added);
  return ErrorOf(Config(keys).status());
}

TEST_CASE("a header gives keys of all types, and tensors in torch's order with their places") {
  const auto header = Parse(GgufBytes(
      {GgufKey("u8", 0, GgufNumber(200, 1)), GgufKey("i16", 3, GgufNumber(0xfffe, 2)),
       GgufKey("real", kGgufF32, GgufNumber(0x3fc00000, 4)), GgufKey("yes", 7, GgufNumber(1, 1)),
       GgufTextKey("text", "words"), GgufKey("huge", 10, GgufNumber(~uint64_t{0}, 8)),
       GgufKey("list", kGgufArray,
               GgufNumber(5, 4) + GgufNumber(2, 8) + GgufNumber(7, 4) + GgufNumber(~0u, 4)),
       GgufKey("texts", kGgufArray,
               GgufNumber(kGgufString, 4) + GgufNumber(2, 8) + GgufText("a") + GgufText(""))},
      {{.name = "a", .sizes = {64, 3}, .type = kTypeQ4One},
       {.name = "b", .sizes = {5}, .offset = 128}},
      148));
  REQUIRE(header.ok());
  CHECK(*header->Find<int64_t>("u8") == 200);
  CHECK(*header->Find<int64_t>("i16") == -2);
  CHECK(*header->Find<double>("real") == 1.5);
  CHECK(*header->Find<int64_t>("yes") == 1);
  CHECK(*header->Find<std::string>("text") == "words");
  CHECK(*header->Find<int64_t>("huge") == INT64_MAX);
  CHECK(*header->Find<std::vector<int64_t>>("list") == std::vector<int64_t>{7, -1});
  CHECK(*header->Find<std::vector<std::string>>("texts") == std::vector<std::string>{"a", ""});
  CHECK(header->Find<std::string>("u8") == nullptr);
  const GgufTensor& a = header->tensors[0];
  CHECK(a.shape == std::vector<int64_t>{3, 64});
  CHECK(a.type->name == "Q4_1");
  CHECK(a.end - a.begin == 3 * 2 * 20);
  CHECK(a.begin == header->data_begin);
  CHECK(header->FindTensor("b")->begin == a.begin + 128);
}

TEST_CASE("lies of a header are refused by name") {
  const std::string table = "tensor 'token_embd.weight': ";
  const auto with = [](const GgufTensorAt& tensor) {
    return ErrorOf(GgufBytes({}, {tensor}, 128));
  };
  CHECK_THAT(ErrorOf("GGML"), Contains("m.gguf: not a GGUF file"));
  CHECK_THAT(ErrorOf("version https://git-lfs.github.com/spec/v1\n"),
             Contains("m.gguf: a pointer of Git LFS"));
  CHECK_THAT(ErrorOf(GgufBytes({}, {}, 0, 1)), Contains("version 1; 2 and 3 are read"));
  CHECK_THAT(ErrorOf(GgufBytes({}, {}, 0, 0x03000000)), Contains("big endian"));
  CHECK_THAT(ErrorOf("GGUF" + GgufNumber(3, 4) + GgufNumber(uint64_t{1} << 60, 8)),
             Contains("tensors in"));
  CHECK_THAT(ErrorOf("GGUF" + GgufNumber(3, 4) + GgufNumber(0, 8) + GgufNumber(1, 8) +
                     GgufNumber(uint64_t{1} << 60, 8)),
             Contains("a key: ") && Contains("bytes of text in"));
  CHECK_THAT(ErrorOf(GgufBytes({GgufKey("k", 1), GgufKey("k", 2)}, {}, 0)),
             Contains("key 'k': is there twice"));
  CHECK_THAT(ErrorOf(GgufBytes({GgufKey("k", 99, "")}, {}, 0)),
             Contains("key 'k': ") && Contains("type 99"));
  CHECK_THAT(ErrorOf(GgufBytes(
                 {GgufKey("k", kGgufArray, GgufNumber(kGgufArray, 4) + GgufNumber(1, 8))}, {}, 64)),
             Contains("key 'k': is a list of lists"));
  CHECK_THAT(
      ErrorOf(GgufBytes(
          {GgufKey("k", kGgufArray, GgufNumber(kGgufU32, 4) + GgufNumber(uint64_t{1} << 61, 8))},
          {}, 64)),
      Contains("key 'k': "));
  CHECK_THAT(ErrorOf(GgufBytes({GgufKey("general.alignment", 48)}, {}, 0)),
             Contains("general.alignment"));
  CHECK_THAT(
      with({.name = "a", .sizes = {8, 4}, .offset = 32}),
      Contains("tensor 'a': begins at 32 of the data, where the tensors before it end at 0"));
  CHECK_THAT(with({.name = "a", .sizes = {8, 4}, .offset = uint64_t{1} << 62}),
             Contains("tensor 'a': its bytes lie beyond the end"));
  CHECK_THAT(with({.name = "a", .sizes = {8, 400}}), Contains("beyond the end of the file"));
  CHECK_THAT(with({.name = "a", .sizes = {uint64_t{1} << 40, uint64_t{1} << 40}}),
             Contains("tensor 'a': the shape is too large"));
  CHECK_THAT(with({.name = "a", .sizes = {uint64_t{1} << 63}}), Contains("negative or too large"));
  CHECK_THAT(with({.name = "a", .sizes = {}}), Contains("has 0 dimensions"));
  CHECK_THAT(with({.name = "a", .sizes = {33}, .type = kTypeQ4One}),
             Contains("rows of 33 values; Q4_1 has blocks of 32"));
  CHECK_THAT(with({.name = "a", .sizes = {8}, .type = 4}), Contains("is of type 4"));
}

TEST_CASE("a file that is cut anywhere is refused, and counts that lie cost no time") {
  const std::string whole = GgufBytes(Llama(), kTable, 128);
  REQUIRE(Parse(whole).ok());
  for (size_t size = 0; size < whole.size(); ++size) {
    CAPTURE(size);
    REQUIRE(!ErrorOf(whole.substr(0, size)).empty());
  }
  const auto begin = std::chrono::steady_clock::now();
  std::string many = "GGUF" + GgufNumber(3, 4) + GgufNumber(1 << 20, 8) + GgufNumber(1 << 20, 8);
  many.resize(size_t{4} << 20);
  CHECK_THAT(ErrorOf(many), Contains("has no name"));
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20));
}

TEST_CASE("keys become config.json's, and what may change answers is refused by name") {
  const auto config = Config(Llama());
  REQUIRE(config.ok());
  CHECK((*config)["architectures"] == nlohmann::json{"LlamaForCausalLM"});
  CHECK((*config)["vocab_size"] == 4);
  CHECK((*config)["head_dim"] == 4);
  CHECK((*config)["tie_word_embeddings"] == true);

  CHECK_THAT(ConfigError(Llama(), GgufKey("llama.attention.new_thing", 1)),
             Contains("key 'llama.attention.new_thing' is not understood"));
  CHECK_THAT(ConfigError(Llama(), GgufTextKey("llama.rope.scaling.type", "spiral")),
             Contains("'llama.rope.scaling.type' is 'spiral'"));
  CHECK_THAT(
      ConfigError(Llama(), GgufKey("llama.rope.freq_base", kGgufF32, GgufNumber(0x7f800000, 4))),
      Contains("'llama.rope.freq_base' is not finite"));
  CHECK_THAT(ConfigError(Llama(), GgufKey("llama.attention.value_length", 8)),
             Contains("'llama.attention.value_length' is 8"));
  CHECK_THAT(ConfigError(Llama(),
                         GgufKey("llama.rope.freq_base_swa", kGgufF32, GgufNumber(0x41200000, 4))),
             Contains("'llama.rope.freq_base_swa' is another than rope.freq_base"));
  CHECK_THAT(ConfigError(Llama(), GgufTextKey("llama.attention.head_count_kv", "2")),
             Contains("'llama.attention.head_count_kv' has a value of another type"));
  CHECK_THAT(ConfigError(Llama(), GgufKey("llama.attention.head_count_kv", kGgufArray,
                                          GgufNumber(kGgufU32, 4) + GgufNumber(2, 8) +
                                              GgufNumber(1, 4) + GgufNumber(2, 4))),
             Contains("differs between layers"));
  CHECK_THAT(ConfigError({}, GgufTextKey("general.architecture", "mamba")),
             Contains("'mamba', which is not supported as GGUF; known are afmoe, arcee, cohere2, "
                      "command-r, deepseek2, dots1, "
                      "ernie4_5, ernie4_5-moe"));
  CHECK_THAT(ConfigError({}, GgufTextKey("general.architecture", "")),
             Contains("'', which is not supported as GGUF"));
  std::vector<std::string> without = Llama();
  without.erase(without.begin() + 1);
  CHECK_THAT(ErrorOf(Config(without).status()), Contains("'llama.block_count' is missing"));
}

std::string GgufReal(std::string_view name, float value) {
  return GgufKey(name, kGgufF32, GgufNumber(std::bit_cast<uint32_t>(value), 4));
}

TEST_CASE("yarn: as llama.cpp computes it, which passes over yarn_attn_factor") {
  const float usual = 0.1F * std::log(8.0F) + 1;
  const auto yarn = [](const std::string& added) {
    std::vector<std::string> keys = Llama();
    keys.push_back(GgufTextKey("llama.rope.scaling.type", "yarn"));
    keys.push_back(GgufReal("llama.rope.scaling.factor", 8));
    keys.push_back(GgufKey("llama.rope.scaling.original_context_length", 8));
    keys.push_back(added);
    return Config(keys);
  };
  // OLMo 3 names what is usual, DeepSeek-R1-0528-Qwen3-8B what undoes it, Rnj-1 says 1.
  for (const float said : {usual, 1 / usual, 1.0F}) {
    const auto config = yarn(GgufReal("llama.rope.scaling.yarn_attn_factor", said));
    INFO(config.status().ToString());
    REQUIRE(config.ok());
    CHECK_FALSE((*config)["rope_scaling"].contains("attention_factor"));
  }
  CHECK_THAT(ErrorOf(yarn(GgufReal("llama.rope.scaling.yarn_attn_factor", 1.5F)).status()),
             Contains("'llama.rope.scaling.yarn_attn_factor' is 1.5, where 1.20794 is usual"));
  const auto multiplied = yarn(GgufReal("llama.rope.scaling.attn_factor", 0.5F));
  REQUIRE(multiplied.ok());
  CHECK((*multiplied)["rope_scaling"]["attention_factor"].get<double>() == Approx(usual / 2));
  CHECK_THAT(ConfigError(Llama(), GgufReal("llama.rope.scaling.attn_factor", 0.5F)),
             Contains("'llama.rope.scaling.attn_factor' is 0.5"));
}

TEST_CASE("gemma3: no window where the file names none, and a cap of logits (Rnj-1)") {
  std::vector<std::string> keys = {
      GgufTextKey("general.architecture", "gemma3"), GgufKey("gemma3.block_count", 2),
      GgufKey("gemma3.context_length", 64),          GgufKey("gemma3.embedding_length", 8),
      GgufKey("gemma3.feed_forward_length", 16),     GgufKey("gemma3.attention.head_count", 2),
      GgufKey("gemma3.attention.head_count_kv", 1),  GgufKey("gemma3.attention.key_length", 4),
      GgufKey("gemma3.attention.value_length", 4)};
  const auto model_of = [&](const std::string& added) {
    std::vector<std::string> all = keys;
    all.push_back(added);
    const auto config = Config(all);
    INFO(config.status().ToString());
    REQUIRE(config.ok());
    const auto model = ParseModelConfig(config->dump(), "m.gguf");
    INFO(model.status().ToString());
    REQUIRE(model.ok());
    return *model;
  };
  const v1::Model capped = model_of(GgufReal("gemma3.final_logit_softcapping", 30));
  CHECK(capped.logits_soft_cap() == 30);
  REQUIRE(capped.kinds_size() == 1);
  CHECK(capped.kinds(0).attention().window() == 0);
  const v1::Model of_pattern = model_of(GgufKey("gemma3.attention.sliding_window_pattern", 6));
  REQUIRE(of_pattern.kinds_size() == 1);
  CHECK(of_pattern.kinds(0).attention().window() == 0);
  const v1::Model windowed = model_of(GgufKey("gemma3.attention.sliding_window", 16));
  CHECK(windowed.logits_soft_cap() == 0);
  REQUIRE(windowed.kinds_size() == 1);
  CHECK(windowed.kinds(0).attention().window() == 16);
}

TEST_CASE("ids that end an answer are those of the keys, and control tokens of known texts") {
  std::vector<std::string> keys = Llama();
  keys.push_back(GgufKey("tokenizer.ggml.eos_token_id", 2));
  std::string tokens, types;
  for (const char* text : {"a", "<|eot_id|>", "</s>", "<|im_end|>"}) tokens += GgufText(text);
  for (const uint64_t type : {1, 3, 3, 1}) types += GgufNumber(type, 4);
  keys.push_back(GgufKey("tokenizer.ggml.tokens", kGgufArray,
                         GgufNumber(kGgufString, 4) + GgufNumber(4, 8) + tokens));
  keys.push_back(GgufKey("tokenizer.ggml.token_type", kGgufArray,
                         GgufNumber(5, 4) + GgufNumber(4, 8) + types));
  const auto config = Config(keys);
  REQUIRE(config.ok());
  CHECK((*config)["eos_token_id"] == nlohmann::json{2, 1});

  // "<|end|>" ends a message, behind which gpt-oss goes on, unless it is all there is.
  const auto ends_of = [](const std::vector<const char*>& texts) {
    std::vector<std::string> all = Llama();
    std::string names, kinds;
    for (const char* text : texts) {
      names += GgufText(text);
      kinds += GgufNumber(3, 4);
    }
    all.push_back(GgufListKey("tokenizer.ggml.tokens", kGgufString, texts.size(), names));
    all.push_back(GgufListKey("tokenizer.ggml.token_type", kGgufI32, texts.size(), kinds));
    const auto written = Config(all);
    REQUIRE(written.ok());
    return (*written)["eos_token_id"].get<std::vector<int64_t>>();
  };
  CHECK(ends_of({"<|end|>", "<|return|>", "<|call|>"}) == std::vector<int64_t>{2, 1});
  CHECK(ends_of({"<|end|>", "<|return|>"}) == std::vector<int64_t>{0, 1});
  CHECK(ends_of({"<pad>", "<turn|>", "<|tool_response>"}) == std::vector<int64_t>{1, 2});
}

TEST_CASE("what is no language model, or reads otherwise than to draw tokens, is refused by key") {
  CHECK_THAT(ConfigError(Llama(), GgufTextKey("general.type", "mmproj")),
             Contains("key 'general.type' is 'mmproj'"));
  std::vector<std::string> keys = Llama();
  keys.push_back(GgufTextKey("general.type", "model"));
  keys.push_back(GgufKey("llama.attention.causal", kGgufBool, GgufNumber(1, 1)));
  keys.push_back(GgufKey("llama.pooling_type", 3));
  CHECK(Config(keys).ok());
  CHECK_THAT(ConfigError(Llama(), GgufKey("llama.attention.causal", kGgufBool, GgufNumber(0, 1))),
             Contains("'llama.attention.causal' is 0: not supported"));
  CHECK_THAT(ConfigError(Llama(), GgufKey("llama.pooling_type", 1)),
             Contains("'llama.pooling_type' is 1: not supported"));
}

TEST_CASE("windows: none where the length is 0, in the layers that a list names") {
  std::vector<std::string> keys = Llama();
  keys.push_back(GgufKey("llama.attention.sliding_window", 0));
  auto config = Config(keys);
  REQUIRE(config.ok());
  CHECK((*config)["sliding_window"].is_null());
  keys.back() = GgufKey("llama.attention.sliding_window", 32);
  CHECK((*Config(keys))["sliding_window"] == 32);
  keys.push_back(
      GgufListKey("llama.attention.sliding_window_pattern", kGgufBool, 1, GgufNumber(1, 1)));
  CHECK((*Config(keys))["layer_types"] == nlohmann::json{"sliding_attention"});
  keys.back() = GgufListKey("llama.attention.sliding_window_pattern", kGgufBool, 0, "");
  CHECK_THAT(ErrorOf(Config(keys).status()), Contains("names fewer layers than there are"));
  CHECK_THAT(ConfigError(Llama(), GgufKey("llama.attention.sliding_window_pattern", 4)),
             Contains("'llama.attention.sliding_window_pattern' is not understood"));
}

TEST_CASE("a file says how tokens are drawn, and which never are") {
  const tests::TemporaryFolder folder;
  const fs::path path = folder.path() / "m.gguf";
  const auto real = [](const char* name, uint64_t bits) {
    return GgufKey(name, kGgufF32, GgufNumber(bits, 4));
  };
  std::string texts;
  for (int i = 0; i < 8; ++i) texts += GgufText(std::to_string(i));
  std::vector<std::string> keys = {
      GgufListKey("tokenizer.ggml.tokens", kGgufString, 8, texts),
      // What is no token is left out, as llama.cpp does.
      GgufListKey("tokenizer.ggml.suppress_tokens", kGgufI32, 3,
                  GgufNumber(7, 4) + GgufNumber(8, 4) + GgufNumber(2, 4)),
      real("general.sampling.temp", 0x3f000000), GgufKey("general.sampling.top_k", 20),
      real("general.sampling.top_p", 0x3f400000), GgufKey("general.sampling.mirostat", 0),
      real("general.sampling.penalty_repeat", 0x3fc00000)};
  folder.Write("m.gguf", GgufBytes(keys, kTable, 128));
  const auto defaults = ReadGenerationDefaults(path);
  INFO(defaults.status().ToString());
  REQUIRE(defaults.ok());
  CHECK(defaults->suppress_tokens == std::vector<int32_t>{7, 2});
  CHECK(defaults->temperature == 0.5);
  CHECK(defaults->top_k == 20);
  CHECK(defaults->top_p == 0.75);
  CHECK(defaults->repetition_penalty == 1.5);
  CHECK_FALSE(defaults->min_p.has_value());

  const auto refused = [&](const std::string& added) {
    folder.Write("m.gguf", GgufBytes({added}, kTable, 128));
    return ErrorOf(ReadGenerationDefaults(path).status());
  };
  CHECK_THAT(refused(GgufKey("general.sampling.mirostat", 2)),
             Contains("m.gguf: key 'general.sampling.mirostat' is not understood"));
  CHECK_THAT(refused(GgufTextKey("general.sampling.sequence", "tp")),
             Contains("'general.sampling.sequence'"));
  CHECK_THAT(refused(GgufKey("tokenizer.ggml.suppress_tokens", 7)),
             Contains("'tokenizer.ggml.suppress_tokens' is no list of ids"));
}

TEST_CASE("a type that is not read is refused with the tensor's name; names need not end .GGUF") {
  const tests::TemporaryFolder folder;
  folder.Write(
      "m.GGUF",
      GgufBytes(Llama(), {{.name = "token_embd.weight", .sizes = {256, 4}, .type = kTypeIq2}},
                4 * 66));
  const auto tensors = ReadGgufTensors(folder.path() / "m.GGUF");
  REQUIRE(tensors.ok());
  CHECK((*tensors)[0].name == "model.embed_tokens.weight");
  CHECK((*tensors)[0].dtype.starts_with("IQ2"));
  CHECK_THAT(std::string(ReadCheckedModel((folder.path() / "m.GGUF").string()).status().message()),
             Catch::Contains("token_embd") || Catch::Contains("not supported"));
  CHECK(absl::IsNotFound(ReadModelFolder("none.gguf").status()));
}

// The first of two files has the keys, the second the table.
class TwoParts {
 public:
  TwoParts() {
    for (const uint32_t number : {0, 1}) {
      parts_.push_back({.keys = number == 0 ? Llama() : std::vector<std::string>()});
      parts_.back().numbers = {
          {"split.no", number}, {"split.count", 2}, {"split.tensors.count", 2}};
    }
    parts_[0].tensors = {{.name = "output_norm.weight", .sizes = {8}}};
    parts_[1].tensors = kTable;
    Write();
  }
  void Set(size_t part, const std::string& key, uint32_t value) {
    parts_[part].numbers[key] = value;
    Write();
  }
  void Rename(size_t part, const std::string& tensor) {
    parts_[part].tensors[0].name = tensor;
    Write();
  }
  fs::path File(size_t part) const {
    return folder_.path() / (part == 0 ? "m-00001-of-00002.gguf" : "m-00002-of-00002.gguf");
  }
  std::string Error() const { return std::string(ReadGgufModel(File(0)).status().message()); }

 private:
  struct Part {
    std::vector<std::string> keys;
    std::map<std::string, uint32_t> numbers;
    std::vector<GgufTensorAt> tensors;
  };
  void Write() {
    for (size_t i = 0; i < parts_.size(); ++i) {
      std::vector<std::string> keys = parts_[i].keys;
      for (const auto& [key, value] : parts_[i].numbers) keys.push_back(GgufKey(key, value));
      folder_.Write(File(i).filename().string(), GgufBytes(keys, parts_[i].tensors, 128));
    }
  }
  const tests::TemporaryFolder folder_;
  std::vector<Part> parts_;
};

TEST_CASE(
    "a model in several files is read by its first; what does not belong is refused by name") {
  TwoParts parts;
  const auto model = ReadGgufModel(parts.File(0));
  INFO(model.status().ToString());
  REQUIRE(model.ok());
  CHECK(model->vocabulary() == 4);
  const auto second = ReadGgufTensors(parts.File(1));
  REQUIRE(second.ok());
  REQUIRE(second->size() == 1);
  CHECK((*second)[0].name == "model.embed_tokens.weight");
  CHECK(*WeightFiles(parts.File(0)) == std::vector{parts.File(0), parts.File(1)});
  const std::string before = *Fingerprint(parts.File(0));

  CHECK_THAT(std::string(ReadGgufModel(parts.File(1)).status().message()),
             Contains("is file 2 of 2 of a model; give the first one, m-00001-of-00002.gguf"));
  parts.Set(1, "split.no", 0);
  CHECK(*Fingerprint(parts.File(0)) != before);
  CHECK_THAT(parts.Error(), Contains("m-00002-of-00002.gguf: key 'split.no' is 0, not 1"));
  parts.Set(1, "split.no", 1);
  parts.Set(0, "split.count", 3);
  CHECK_THAT(parts.Error(), Contains("m-00001-of-00002.gguf: key 'split.count' is 3, not 2"));
  parts.Set(0, "split.count", 2);
  parts.Set(0, "split.tensors.count", 5);
  CHECK_THAT(parts.Error(), Contains("'split.tensors.count' is 5, not 2: tensors are missing"));
  parts.Set(0, "split.tensors.count", 2);
  parts.Rename(1, "output_norm.weight");
  CHECK_THAT(parts.Error(), Contains("tensor 'output_norm.weight' is in a file before it too"));
  const fs::path alone = parts.File(0).parent_path() / "alone.gguf";
  fs::copy_file(parts.File(0), alone);
  CHECK_THAT(std::string(ReadGgufModel(alone).status().message()),
             Contains("alone.gguf: is one of 2 files of a model, but is not named so"));
  fs::remove(parts.File(1));
  CHECK_THAT(parts.Error(), Contains("m-00002-of-00002.gguf: is missing; all 2 files"));
}

TEST_CASE("keys about experts go to the family's own, and are refused where it has none") {
  const auto moe = [](const std::string& arch, const std::vector<std::string>& more) {
    std::vector<std::string> keys = {GgufTextKey("general.architecture", arch)};
    for (const auto& [key, value] :
         {std::pair("block_count", 3), std::pair("context_length", 64),
          std::pair("embedding_length", 8), std::pair("feed_forward_length", 16),
          std::pair("attention.head_count", 2), std::pair("expert_count", 4),
          std::pair("expert_used_count", 2)}) {
      keys.push_back(GgufKey(arch + "." + key, static_cast<uint32_t>(value)));
    }
    keys.insert(keys.end(), more.begin(), more.end());
    return keys;
  };
  const auto glm = Config(moe(
      "glm4moe",
      {GgufKey("glm4moe.nextn_predict_layers", 1), GgufKey("glm4moe.leading_dense_block_count", 2),
       GgufKey("glm4moe.expert_gating_func", 2),
       GgufKey("glm4moe.expert_weights_scale", kGgufF32, GgufNumber(0x40200000, 4)),
       GgufKey("glm4moe.expert_weights_norm", 7, GgufNumber(1, 1))}));
  INFO(glm.status().ToString());
  REQUIRE(glm.ok());
  CHECK((*glm)["num_hidden_layers"] == 2);
  CHECK((*glm)["first_k_dense_replace"] == 2);
  CHECK((*glm)["routed_scaling_factor"] == 2.5);
  CHECK((*glm)["norm_topk_prob"] == true);
  CHECK((*glm)["use_qk_norm"] == false);
  const auto error = [&](const std::string& arch, const std::string& added) {
    return ErrorOf(Config(moe(arch, {added})).status());
  };
  CHECK_THAT(error("glm4moe", GgufKey("glm4moe.expert_gating_func", 1)),
             Contains("'glm4moe.expert_gating_func' is 1: not supported"));
  CHECK_THAT(error("glm4moe", GgufKey("glm4moe.nextn_predict_layers", 3)),
             Contains("'glm4moe.nextn_predict_layers' is 3"));
  CHECK_THAT(error("qwen3moe", GgufKey("qwen3moe.expert_shared_count", 1)),
             Contains("'qwen3moe.expert_shared_count' is 1: not supported"));
  CHECK_THAT(error("qwen2moe", GgufKey("qwen2moe.leading_dense_block_count", 1)),
             Contains("'qwen2moe.leading_dense_block_count' is 1: not supported"));
  // Files of dots.llm1 and Trinity say that all experts are in one group.
  const auto grouped = [&](uint32_t groups, uint32_t used) {
    return Config(moe("dots1", {GgufKey("dots1.expert_gating_func", 2),
                                GgufKey("dots1.expert_group_count", groups),
                                GgufKey("dots1.expert_group_used_count", used)}));
  };
  CHECK(grouped(1, 1).status().message() == "");
  CHECK(grouped(0, 0).ok());
  CHECK_THAT(ErrorOf(grouped(4, 2).status()),
             Contains("'dots1.expert_group_count' is 4: not supported"));
  CHECK_THAT(ErrorOf(grouped(1, 2).status()),
             Contains("'dots1.expert_group_used_count' is 2: not supported"));
}

TEST_CASE("a copy of a GGUF file under another name has its fingerprint, a changed one another") {
  const tests::TemporaryFolder folder;
  std::string bytes = GgufBytes(Llama(), kTable, 128);
  folder.Write("a.gguf", bytes);
  folder.Write("b.gguf", bytes);
  bytes.back() = 1;
  folder.Write("c.gguf", bytes);
  const auto fingerprint = [&](const char* name) { return *Fingerprint(folder.path() / name); };
  CHECK(fingerprint("a.gguf") == fingerprint("b.gguf"));
  CHECK(fingerprint("a.gguf") != fingerprint("c.gguf"));
}

}  // namespace
}  // namespace tessera
