// Which folder a name means, what stands in it, and when two of them are the same model.
#include "proto/model/model_folder.h"

#include <stdlib.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>

#include "proto/model/folder_contents.h"
#include "proto/model/weight_files.h"
#include "tests/plain_rights.h"
#include "tests/temporary_folder.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;

constexpr char kConfig[] = R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 64,
    "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 128, "intermediate_size": 96,
    "max_position_embeddings": 32, "eos_token_id": 2})";

std::string Safetensors(const std::string& header, const std::string& data) {
  std::string file;
  for (int i = 0; i < 8; ++i) file += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return file + header + data;
}

template <typename T>
std::string ErrorOf(const absl::StatusOr<T>& result) {
  REQUIRE_FALSE(result.ok());
  return std::string(result.status().message());
}

}  // namespace

TEST_CASE("an eos id of generation_config.json beyond the vocabulary is refused by name") {
  tests::TemporaryFolder folder;
  folder.Write("tiny/config.json", kConfig);
  folder.Write("tiny/generation_config.json", R"({"eos_token_id": [2, 1000000]})");
  const auto model = ReadModelFolder((folder.path() / "tiny").string());
  REQUIRE_FALSE(model.ok());
  CHECK_THAT(std::string(model.status().message()),
             Contains("generation_config.json: eos_token_id names the token 1000000"));
}

TEST_CASE("a folder: shape, name and the eos ids of both files") {
  tests::TemporaryFolder folder;
  folder.Write("tiny/config.json", kConfig);
  folder.Write("tiny/generation_config.json",
               R"({"eos_token_id": [2, 5], "temperature": 0.6, "top_p": 0.9, "top_k": 20,
                   "suppress_tokens": [3, 258880]})");
  const auto model = ReadModelFolder((folder.path() / "tiny/").string());
  REQUIRE(model.ok());
  CHECK(model->name() == "tiny");
  CHECK(model->hidden() == 64);
  REQUIRE(model->eos_token_ids_size() == 2);
  CHECK(model->eos_token_ids(1) == 5);

  const auto defaults = ReadGenerationDefaults(folder.path() / "tiny");
  REQUIRE(defaults.ok());
  CHECK(defaults->temperature == 0.6);
  CHECK(defaults->top_p == 0.9);
  CHECK(defaults->top_k == 20);
  CHECK_FALSE(defaults->min_p.has_value());
  CHECK(defaults->suppress_tokens == std::vector<int32_t>{3, 258880});
}

TEST_CASE("where config.json says nothing of quantisation, ModelOpt's file beside it does") {
  tests::TemporaryFolder folder;
  const auto read = [&](const std::string& config, const std::string& beside) {
    folder.Write("tiny/config.json", config);
    folder.Write("tiny/hf_quant_config.json", beside);
    return ReadModelFolder((folder.path() / "tiny").string());
  };
  const std::string with_own = std::string(kConfig, sizeof(kConfig) - 2) +
                               R"(, "quantization_config": {"quant_method": "awq", "bits": 4}})";
  constexpr char kFp8[] = R"({"producer": {"name": "modelopt"},
      "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}})";
  REQUIRE(read(kConfig, kFp8).ok());
  CHECK(read(kConfig, kFp8)->quantization().format() == v1::WEIGHT_FORMAT_FP8);
  CHECK(read(with_own, kFp8)->quantization().format() == v1::WEIGHT_FORMAT_AWQ);
  // Of keys and values alone.
  const auto plain = read(kConfig, R"({"quantization": {"quant_algo": null}})");
  REQUIRE(plain.ok());
  CHECK_FALSE(plain->has_quantization());
  CHECK_THAT(ErrorOf(read(kConfig, R"({"quantization": {"quant_algo": "NVFP4_AWQ"}})")),
             Contains("config.json with hf_quant_config.json: quantization_config.quant_algo "
                      "'NVFP4_AWQ' is not supported"));
  CHECK_THAT(ErrorOf(read(kConfig, "{")), Contains("hf_quant_config.json: "));
}

TEST_CASE("generation_config.json may be absent, but not wrong") {
  tests::TemporaryFolder folder;
  const auto defaults = ReadGenerationDefaults(folder.path());
  REQUIRE(defaults.ok());
  CHECK_FALSE(defaults->temperature.has_value());
  folder.Write("generation_config.json", R"({"top_p": 7})");
  CHECK_THAT(ErrorOf(ReadGenerationDefaults(folder.path())),
             Contains("generation_config.json: top_p must be a number"));
  folder.Write("config.json", kConfig);
  folder.Write("generation_config.json", "{");
  CHECK_THAT(ErrorOf(ReadModelFolder(folder.path().string())), Contains("generation_config.json"));
}

TEST_CASE("a name is looked up in the Hugging Face cache") {
  tests::TemporaryFolder cache;
  cache.Write("hub/models--acme--tiny/refs/main", "abc123\n");
  cache.Write("hub/models--acme--tiny/snapshots/abc123/config.json", kConfig);
  ::unsetenv("HF_HUB_CACHE");
  ::setenv("HF_HOME", cache.path().c_str(), 1);
  const auto model = ReadModelFolder("acme/tiny");
  REQUIRE(model.ok());
  CHECK(model->name() == "acme/tiny");
  CHECK_THAT(ErrorOf(ReadModelFolder("acme/other")), Contains("hf download acme/other"));

  ::setenv("HF_HUB_CACHE", (cache.path() / "empty").c_str(), 1);
  CHECK_THAT(ErrorOf(ReadModelFolder("acme/tiny")), Contains((cache.path() / "empty").string()));
  ::unsetenv("HF_HUB_CACHE");
  // Copied caches and revisions downloaded by their hash have no refs/main.
  cache.Write("hub/models--acme--copied/snapshots/abc123/config.json", kConfig);
  CHECK(ResolveModelFolder("acme/copied").value() ==
        cache.path() / "hub/models--acme--copied/snapshots/abc123");
  cache.Write("hub/models--acme--copied/snapshots/def456/config.json", kConfig);
  CHECK_THAT(ErrorOf(ReadModelFolder("acme/copied")),
             Contains("in 2 revisions") && Contains("refs/main") &&
                 Contains("snapshots/abc123\n") && Contains("snapshots/def456"));
  cache.Write("hub/models--acme--evil/refs/main", "../../../etc");
  CHECK_THAT(ErrorOf(ReadModelFolder("acme/evil")), Contains("hf download"));
  ::unsetenv("HF_HOME");
}

TEST_CASE("a model's folder in the Hugging Face cache stands for its revision") {
  tests::TemporaryFolder hub;
  const std::string tiny = (hub.path() / "models--acme--tiny").string();
  hub.Write("models--acme--tiny/snapshots/abc123/config.json", kConfig);
  for (const char* slash : {"", "/"}) {
    CHECK(ResolveModelFolder(tiny + slash).value() == tiny + "/snapshots/abc123");
    CHECK(ReadModelFolder(tiny + slash).value().name() == "acme/tiny");
  }
  CHECK(ReadModelFolder(tiny + "/snapshots/abc123").value().name() == "acme/tiny");
  hub.Write("models--acme--tiny/refs/main", "def456");
  CHECK_THAT(ErrorOf(ReadModelFolder(tiny)),
             Contains("hf download acme/tiny") && Contains(tiny + "/snapshots/abc123"));
  hub.Write("models--acme--tiny/snapshots/def456/config.json", kConfig);
  CHECK(ResolveModelFolder(tiny).value() == tiny + "/snapshots/def456");
  fs::remove_all(tiny + "/refs");
  CHECK_THAT(ErrorOf(ReadModelFolder(tiny)),
             Contains("in 2 revisions") && Contains("give the folder of one") &&
                 Contains(tiny + "/snapshots/abc123\n") && Contains(tiny + "/snapshots/def456"));
  // A folder of one's own may hold one of that name.
  hub.Write("models--acme--tiny/config.json", kConfig);
  CHECK(ResolveModelFolder(tiny).value() == tiny);
  CHECK(ReadModelFolder(tiny).value().name() == "models--acme--tiny");
}

TEST_CASE("a folder that this user may not look into is not called missing") {
  tests::TemporaryFolder folder;
  folder.Write("closed/tiny/config.json", kConfig);
  folder.Write("tiny/config.json", kConfig);
  fs::permissions(folder.path() / "closed", fs::perms::none);
  fs::permissions(folder.path() / "tiny/config.json", fs::perms::none);
  ::setenv("HF_HUB_CACHE", (folder.path() / "closed").c_str(), 1);
  std::string closed, cached, file;
  {
    const tests::PlainRights plain;
    closed = ErrorOf(ReadModelFolder((folder.path() / "closed/tiny").string()));
    cached = ErrorOf(ReadModelFolder("acme/tiny"));
    file = ErrorOf(ReadModelFolder((folder.path() / "tiny").string()));
  }
  ::unsetenv("HF_HUB_CACHE");
  fs::permissions(folder.path() / "closed", fs::perms::owner_all);
  CHECK_THAT(closed, Contains("closed/tiny") && Contains("may not look there"));
  CHECK_THAT(cached, Contains("models--acme--tiny") && Contains("may not look there"));
  CHECK_THAT(file, Contains("tiny/config.json") && Contains("may not read it"));
}

TEST_CASE("what is no model folder") {
  tests::TemporaryFolder folder;
  folder.Write("model.bin", "x");
  CHECK_THAT(ErrorOf(ReadModelFolder("llama.Q4_K.GGUF")), Contains("is no file"));
  CHECK_THAT(ErrorOf(ReadModelFolder((folder.path() / "model.bin").string())),
             Contains("is a file"));
  CHECK_THAT(ErrorOf(ReadModelFolder("/no/such/folder")), Contains("'/no/such/folder'"));
  CHECK_THAT(ErrorOf(ReadModelFolder("a/../b")), Contains("does not exist"));
  CHECK_THAT(ErrorOf(ReadModelFolder("")), Contains("does not exist"));
  CHECK_THAT(ErrorOf(ReadModelFolder(folder.path().string())),
             Contains("no config.json; the download may be incomplete"));
  folder.Write("adapter_config.json", R"({"base_model_name_or_path": "acme/base"})");
  CHECK_THAT(ErrorOf(ReadModelFolder(folder.path().string())),
             Contains("an adapter (LoRA) of 'acme/base', not a model; merge it"));
  folder.Write("adapter_config.json", "no JSON");
  CHECK_THAT(ErrorOf(ReadModelFolder(folder.path().string())),
             Contains("an adapter (LoRA), not a model"));
}

TEST_CASE("a folder without config.json: what it holds, and what to give in its place") {
  const auto error_of = [](const tests::TemporaryFolder& folder) {
    return ErrorOf(ReadModelFolder(folder.path().string()));
  };
  const tests::TemporaryFolder folder;
  CHECK_THAT(error_of(folder), Contains("no config.json: the folder is empty"));
  folder.Write("q4/model-Q4_K_M.gguf", "GGUF");
  CHECK_THAT(error_of(folder),
             Contains("give what is in it: ") && Contains("q4/model-Q4_K_M.gguf"));
  folder.Write("params.json", "{}");
  CHECK_THAT(error_of(folder), Contains("its publisher's own form"));
  folder.Write("mmproj-F16.gguf", "GGUF");
  folder.Write("model-00001-of-00002.gguf", "GGUF");
  folder.Write("model-00002-of-00002.gguf", "GGUF");
  CHECK_THAT(error_of(folder), Contains("give the file in place of the folder: ") &&
                                   Contains("/model-00001-of-00002.gguf"));
  folder.Write("model-Q8_0.gguf", "GGUF");
  CHECK_THAT(error_of(folder),
             Contains("give one of them in its place: model-00001-of-00002.gguf, model-Q8_0.gguf"));
  folder.Write("model_index.json", "{}");
  CHECK_THAT(error_of(folder), Contains("a Diffusers pipeline"));
}

TEST_CASE("a tokenizer's files, or none") {
  const tests::TemporaryFolder folder;
  CHECK_THAT(std::string(CheckTokenizerFiles(folder.path()).message()),
             Contains("no tokenizer (looked for tokenizer.json, "));
  CHECK(CheckTokenizerFiles(folder.path() / "model.gguf").ok());
  folder.Write("vocab.json", "{}");
  CHECK_FALSE(CheckTokenizerFiles(folder.path()).ok());
  folder.Write("merges.txt", "");
  CHECK(CheckTokenizerFiles(folder.path()).ok());
}

TEST_CASE("weight files: single, sharded, absent, hostile") {
  tests::TemporaryFolder folder;
  folder.Write("pytorch_model.bin", "x");
  CHECK_THAT(ErrorOf(WeightFiles(folder.path())), Contains("only pytorch_model.bin"));
  folder.Write("model.safetensors", "");
  CHECK(*WeightFiles(folder.path()) ==
        std::vector<std::filesystem::path>{folder.path() / "model.safetensors"});
  folder.Write("model.safetensors.index.json", R"({"weight_map": {"a": "2.safetensors",
      "b": "1.safetensors", "c": "2.safetensors"}})");
  CHECK(*WeightFiles(folder.path()) ==
        std::vector<std::filesystem::path>{folder.path() / "1.safetensors",
                                           folder.path() / "2.safetensors"});
  CHECK(*WeightFiles("m.gguf") == std::vector<std::filesystem::path>{"m.gguf"});
  CHECK_THAT(ErrorOf(ParseWeightIndex(R"({"weight_map": {"a": "../x.safetensors"}})", "i.json")),
             Contains("i.json: weight_map of tensor 'a'"));
  CHECK_THAT(ErrorOf(ParseWeightIndex(R"({"weight_map": {"a": 3}})", "i.json")), Contains("'a'"));
  CHECK_THAT(ErrorOf(ParseWeightIndex("{}", "i.json")), Contains("weight_map"));
}

TEST_CASE("fingerprint: of large files it sees what another training run changes") {
  tests::TemporaryFolder folder;
  const std::string header =
      R"({"a":{"dtype":"U8","shape":[20000000],"data_offsets":[0,20000000]}})";
  const auto of = [&](char first_half, char second_half) {
    folder.Write("config.json", kConfig);
    folder.Write("model.safetensors",
                 Safetensors(header, std::string(10'000'000, first_half) +
                                         std::string(10'000'000, second_half)));
    return *Fingerprint(folder.path());
  };
  const std::string one = of('a', 'b');
  CHECK(one == of('a', 'b'));
  CHECK(one != of('a', 'c'));
  CHECK(one != of('c', 'b'));
}

TEST_CASE("fingerprint: equal for the same checkpoint, other for another") {
  tests::TemporaryFolder folder;
  const std::string header = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  for (const char* name : {"one", "two"}) {
    folder.Write(fs::path(name) / "config.json", kConfig);
    folder.Write(fs::path(name) / "model.safetensors", Safetensors(header, "1234"));
  }
  const auto one = Fingerprint(folder.path() / "one");
  REQUIRE(one.ok());
  CHECK(one->size() == 64);
  CHECK(*one == *Fingerprint(folder.path() / "two"));

  folder.Write("two/model.safetensors",
               Safetensors(R"({"a":{"dtype":"I32","shape":[1],"data_offsets":[0,4]}})", "1234"));
  CHECK(*one != *Fingerprint(folder.path() / "two"));
  folder.Write("two/model.safetensors", Safetensors(header, "1234"));
  folder.Write("two/config.json", std::string(kConfig) + " ");
  CHECK(*one != *Fingerprint(folder.path() / "two"));
  folder.Write("two/config.json", kConfig);
  folder.Write("two/model.safetensors", Safetensors(header, "1235"));  // trained on
  CHECK(*one != *Fingerprint(folder.path() / "two"));

  folder.Write("two/model.safetensors", "abc");
  CHECK_THAT(ErrorOf(Fingerprint(folder.path() / "two")), Contains("cut off"));
  folder.Write("two/model.safetensors", std::string(64, '\xff'));
  CHECK_THAT(ErrorOf(Fingerprint(folder.path() / "two")), Contains("not a safetensors file"));
}

}  // namespace tessera
