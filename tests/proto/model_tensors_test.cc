// Weight files beside a config.json that says something else: served as they are, or refused by
// name before any worker starts.
#include "proto/model/model_tensors.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "proto/activations.h"
#include "proto/layers/layers.h"
#include "proto/model/families/families.h"
#include "proto/model/model_folder.h"
#include "tests/temporary_folder.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;

struct TestTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::string dtype = "F32";
  char fill = 1;
};

int64_t BytesOf(const TestTensor& tensor) {
  int64_t bytes = tensor.dtype.ends_with("64")                     ? 8
                  : tensor.dtype == "F32" || tensor.dtype == "I32" ? 4
                  : tensor.dtype.ends_with("16")                   ? 2
                                                                   : 1;
  for (const int64_t size : tensor.shape) bytes *= size;
  return bytes;
}

std::string Safetensors(const std::vector<TestTensor>& tensors) {
  nlohmann::json header = nlohmann::json::object();
  std::string data;
  for (const TestTensor& tensor : tensors) {
    const size_t begin = data.size();
    data.append(static_cast<size_t>(BytesOf(tensor)), tensor.fill);
    header[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {begin, data.size()}}};
  }
  const std::string text = header.dump();
  std::string file;
  for (int i = 0; i < 8; ++i) file += static_cast<char>(text.size() >> (8 * i) & 0xff);
  return file + text + data;
}

// Where a key stands twice the last counts.
std::string Config(const std::string& extra) {
  return R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 8, "num_hidden_layers": 2,
      "num_attention_heads": 2, "vocab_size": 16, "intermediate_size": 24,
      "max_position_embeddings": 32)" +
         extra + "}";
}
constexpr char kTied[] = R"(, "tie_word_embeddings": true)";

// All that Config asks for but a head of its own.
std::vector<TestTensor> Body(const std::string& dtype = "F32") {
  std::vector<TestTensor> tensors = {{"model.embed_tokens.weight", {16, 8}, dtype},
                                     {"model.norm.weight", {8}, dtype}};
  for (int i = 0; i < 2; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    for (const char* name : {"q", "k", "v", "o"}) {
      tensors.push_back({layer + "self_attn." + name + "_proj.weight", {8, 8}, dtype});
    }
    tensors.push_back({layer + "mlp.gate_proj.weight", {24, 8}, dtype});
    tensors.push_back({layer + "mlp.up_proj.weight", {24, 8}, dtype});
    tensors.push_back({layer + "mlp.down_proj.weight", {8, 24}, dtype});
    tensors.push_back({layer + "input_layernorm.weight", {8}, dtype});
    tensors.push_back({layer + "post_attention_layernorm.weight", {8}, dtype});
  }
  return tensors;
}

absl::StatusOr<CheckedModel> Read(const std::string& extra,
                                  const std::vector<TestTensor>& tensors) {
  const tests::TemporaryFolder folder;
  folder.Write("config.json", Config(extra));
  folder.Write("model.safetensors", Safetensors(tensors));
  return ReadCheckedModel(folder.path().string());
}

// With one more tensor, or with another in the place of the one of its name.
std::vector<TestTensor> With(std::vector<TestTensor> tensors, const TestTensor& added) {
  for (TestTensor& tensor : tensors) {
    if (tensor.name != added.name) continue;
    tensor = added;
    return tensors;
  }
  tensors.push_back(added);
  return tensors;
}

std::string ErrorOf(const absl::StatusOr<CheckedModel>& result) {
  REQUIRE_FALSE(result.ok());
  CHECK(result.status().code() == absl::StatusCode::kInvalidArgument);
  return std::string(result.status().message());
}

}  // namespace

TEST_CASE("a head for further tokens is there where the files have it") {
  for (const char* name : {"qwen3_5", "deepseek_v3", "glm4_moe"}) {
    const auto checked = ReadCheckedModel(std::string("tests/golden/drafts/") + name);
    REQUIRE(checked.status().message() == "");
    CHECK(checked->model.has_draft_head());
    CHECK(checked->warnings.empty());  // all of its tensors are read
  }
  // config.json alone speaks of it.
  const auto without = ReadCheckedModel("tests/golden/models/glm4_moe");
  REQUIRE(without.ok());
  CHECK_FALSE(without->model.has_draft_head());
}

TEST_CASE("a tied head that is absent or equal is the embedding, another one is served") {
  const TestTensor head = {"lm_head.weight", {16, 8}};
  for (const auto& tensors : {Body(), With(Body(), head)}) {
    const auto tied = Read(kTied, tensors);
    REQUIRE(tied.ok());
    CHECK(tied->model.tied_embeddings());
    CHECK(tied->warnings.empty());
  }
  TestTensor other = head;
  other.fill = 2;
  for (const TestTensor& differing :
       {other, TestTensor{.name = head.name, .shape = head.shape, .dtype = "BF16"}}) {
    const auto untied = Read(kTied, With(Body(), differing));
    REQUIRE(untied.ok());
    CHECK_FALSE(untied->model.tied_embeddings());
    REQUIRE(untied->warnings.size() == 1);
    CHECK_THAT(untied->warnings[0],
               Contains("tie_word_embeddings is true") &&
                   Contains("'lm_head.weight' differs from 'model.embed_tokens.weight'"));
  }
  CHECK_THAT(ErrorOf(Read(kTied, With(Body(), {"lm_head.weight", {8, 16}}))),
             Contains("tensor 'lm_head.weight' has another shape"));
  const auto untied = Read("", With(Body(), other));
  REQUIRE(untied.ok());
  CHECK_FALSE(untied->model.tied_embeddings());
  CHECK(untied->warnings.empty());
}

TEST_CASE("a head is compared to its last byte, and across files") {
  const tests::TemporaryFolder folder;
  folder.Write("config.json", Config(std::string(kTied) + R"(, "vocab_size": 65536)"));
  const std::vector<int64_t> shape = {65536, 8};  // 2 MiB: more than is read at once
  std::vector<TestTensor> tensors = With(Body(), {"model.embed_tokens.weight", shape});
  std::string map = R"("lm_head.weight": "2.safetensors")";
  for (const TestTensor& tensor : tensors) map += ", \"" + tensor.name + "\": \"1.safetensors\"";
  folder.Write("model.safetensors.index.json", "{\"weight_map\": {" + map + "}}");
  folder.Write("1.safetensors", Safetensors(tensors));
  const auto is_tied = [&](char last) {
    std::string head = Safetensors({{"lm_head.weight", shape}});
    head.back() = last;
    folder.Write("2.safetensors", head);
    const auto checked = ReadCheckedModel(folder.path().string());
    REQUIRE(checked.ok());
    return checked->model.tied_embeddings();
  };
  CHECK(is_tied(1));
  CHECK_FALSE(is_tied(2));
}

TEST_CASE("a tensor that is in two files is refused with both of them") {
  const tests::TemporaryFolder folder;
  folder.Write("config.json", Config(kTied));
  folder.Write("1.safetensors", Safetensors(Body()));
  folder.Write("2.safetensors", Safetensors({{"model.norm.weight", {8}}, {"other", {1}}}));
  std::string map = R"("other": "2.safetensors")";
  for (const TestTensor& tensor : Body()) map += ", \"" + tensor.name + "\": \"1.safetensors\"";
  folder.Write("model.safetensors.index.json", "{\"weight_map\": {" + map + "}}");
  const std::string error = ErrorOf(ReadCheckedModel(folder.path().string()));
  CHECK_THAT(error, Contains("1.safetensors: tensor 'model.norm.weight' is in "));
  CHECK_THAT(error, Contains("2.safetensors too"));
}

TEST_CASE("a tensor that workers read and whose type they do not is refused by name and type") {
  for (const TestTensor& tensor : Body()) {
    for (const char* dtype : {"F8_E4M3", "F8_E5M2", "I8", "U8", "F64", "I32"}) {
      CAPTURE(tensor.name, dtype);
      const auto read =
          Read(kTied, With(Body(), {.name = tensor.name, .shape = tensor.shape, .dtype = dtype}));
      CHECK_THAT(ErrorOf(read), Contains("model.safetensors: tensor '" + tensor.name + "' is " +
                                         dtype + ", and config.json has no quantization_config"));
    }
  }
  CHECK_THAT(ErrorOf(Read("", With(Body(), {"lm_head.weight", {16, 8}, "F8_E4M3"}))),
             Contains("'lm_head.weight' is F8_E4M3"));
  for (const char* dtype : {"F32", "F16", "BF16"}) CHECK(Read(kTied, Body(dtype)).ok());
}

TEST_CASE("int4 tensors are read where config.json announces them, in their types") {
  const std::string awq =
      std::string(kTied) + R"(, "quantization_config": {"quant_method": "awq", "bits": 4})";
  const std::string matrix = "model.layers.1.mlp.up_proj";
  std::vector<TestTensor> tensors = Body("F16");
  std::erase_if(tensors, [&](const TestTensor& t) { return t.name == matrix + ".weight"; });
  tensors.push_back({matrix + ".qweight", {8, 3}, "I32"});
  tensors.push_back({matrix + ".qzeros", {1, 3}, "I32"});
  tensors.push_back({matrix + ".scales", {1, 24}, "F16"});
  const auto read = Read(awq, tensors);
  REQUIRE(read.ok());
  CHECK(read->warnings.empty());
  CHECK_THAT(ErrorOf(Read(awq, With(tensors, {matrix + ".qweight", {8, 3}, "I8"}))),
             Contains(matrix + ".qweight' is I8; packed weights must be I32"));
  CHECK_THAT(ErrorOf(Read(awq, With(tensors, {matrix + ".scales", {1, 24}, "F32"}))),
             Contains(matrix + ".scales' is F32"));
  CHECK_THAT(ErrorOf(Read(kTied, tensors)),
             Contains(matrix + ".qweight' is I32, and config.json has no quantization_config"));
  tensors.push_back({"lm_head.qzeros", {1, 2}, "I32"});
  tensors.push_back({"lm_head.scales", {1, 16}, "F16"});
  const auto head = Read(awq, With(tensors, {"lm_head.qweight", {8, 2}, "I32"}));
  REQUIRE(head.ok());
  CHECK_FALSE(head->model.tied_embeddings());
}

TEST_CASE("FP8: scales for the whole, an output or a block are found, others refused by shape") {
  const std::string fp8 = std::string(kTied) + R"(, "quantization_config":
      {"quant_method": "fp8", "weight_block_size": [16, 8]})";
  const std::string matrix = "model.layers.1.mlp.up_proj";
  const auto with_scales = [&](const std::string& name, const std::vector<int64_t>& shape,
                               const std::string& dtype = "F32") {
    auto tensors = With(Body("BF16"), {matrix + ".weight", {24, 8}, "F8_E4M3"});
    tensors.push_back({matrix + name, shape, dtype});
    tensors.push_back({matrix + ".input_scale", {}});
    tensors.push_back({"model.layers.0.self_attn.k_proj.k_scale", {1}});
    return Read(fp8, tensors);
  };
  for (const std::vector<int64_t>& shape :
       std::vector<std::vector<int64_t>>{{}, {1}, {24}, {24, 1}, {24, 4}, {2, 1}}) {
    for (const char* name : {".weight_scale_inv", ".weight_scale"}) {
      const auto read = with_scales(name, shape);
      INFO(read.status().ToString());
      REQUIRE(read.ok());
      CHECK(read->warnings.empty());
      CHECK(read->quantised.decoded == 1);
      CHECK(read->quantised.decoded_weights == 24 * 8);
      CHECK(read->quantised.decoded_code_bytes == 24 * 8);
      CHECK(read->quantised.kept == 0);
    }
  }
  CHECK(with_scales(".weight_scale_inv", {2, 1}, "F8_E8M0").ok());
  CHECK_THAT(ErrorOf(with_scales(".weight_scale_inv", {3, 1})),
             Contains(matrix + ".weight_scale_inv' has the shape [3, 1]") &&
                 Contains("24 outputs") && Contains("16 x 8 weights"));
  CHECK_THAT(ErrorOf(with_scales(".weight_scale_inv", {2, 1}, "I32")),
             Contains("is I32; scales must be"));
  const auto without = with_scales(".weight_scales", {2, 1});
  CHECK(absl::IsNotFound(without.status()));
  CHECK_THAT(std::string(without.status().message()),
             Contains("is F8_E4M3, and no file has its scales '" + matrix + ".weight_scale'"));
}

TEST_CASE("pack-quantized: its shapes tell bits and groups of each matrix") {
  const std::string packed = std::string(kTied) + R"(, "quantization_config":
      {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups":
       {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "group_size": 8}}}})";
  const std::string matrix = "model.layers.1.mlp.down_proj";
  std::vector<TestTensor> body = Body("BF16");
  std::erase_if(body, [&](const TestTensor& t) { return t.name == matrix + ".weight"; });
  const auto with = [&](int64_t words, int64_t groups, std::vector<TestTensor> more = {}) {
    std::vector<TestTensor> tensors = body;
    tensors.push_back({matrix + ".weight_packed", {8, words}, "I32"});
    tensors.push_back({matrix + ".weight_scale", {8, groups}, "BF16"});
    tensors.push_back({matrix + ".weight_shape", {2}, "I64"});
    tensors.insert(tensors.end(), more.begin(), more.end());
    return Read(packed, tensors);
  };
  for (const auto& [words, groups, kept] :
       {std::tuple(3, 3, true), {3, 1, true}, {3, 2, false}, {6, 3, false}, {2, 3, true}}) {
    const auto read = with(words, groups);
    INFO(read.status().ToString());
    REQUIRE(read.ok());
    CHECK(read->warnings.empty());
    CHECK(read->quantised.kept == (kept ? 1 : 0));
    CHECK(read->quantised.decoded == (kept ? 0 : 1));
  }
  CHECK(with(3, 3, {{matrix + ".weight_g_idx", {24}, "I32"}})->quantised.decoded == 1);
  CHECK(with(3, 3, {{matrix + ".weight_zero_point", {1, 3}, "I32"}})->quantised.kept == 1);
  CHECK_THAT(ErrorOf(with(3, 3, {{matrix + ".weight_zero_point", {8, 3}, "I8"}})),
             Contains(matrix + ".weight_zero_point' has the shape [8, 3]"));
  CHECK_THAT(ErrorOf(with(7, 3)), Contains(matrix + ".weight_packed' has the shape [8, 7]"));
  CHECK_THAT(ErrorOf(with(3, 5)), Contains(matrix + ".weight_scale' has the shape [8, 5]"));
}

TEST_CASE("tensors that nobody reads are named once, in a bounded list") {
  std::vector<TestTensor> tensors = Body();
  tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", {2}});
  REQUIRE(Read(kTied, tensors).ok());
  CHECK(Read(kTied, tensors)->warnings.empty());
  for (const char* layer : {"0", "1"}) {
    tensors.push_back({std::string("model.layers.") + layer + ".self_attn.q_proj.bias", {8}});
  }
  tensors.push_back({"model.layers.2.mlp.up_proj.weight", {24, 8}, "F8_E4M3"});
  const auto read = Read(kTied, tensors);
  REQUIRE(read.ok());
  REQUIRE(read->warnings.size() == 1);
  CHECK_THAT(read->warnings[0], Contains(": 3 tensors are left out, because") &&
                                    Catch::EndsWith("model.layers.*.mlp.up_proj.weight, "
                                                    "model.layers.*.self_attn.q_proj.bias (2)"));
  // With attention_bias they are read, and all of them are needed.
  const auto biased = Read(std::string(kTied) + R"(, "attention_bias": true)", tensors);
  CHECK_THAT(std::string(biased.status().message()),
             Contains("'model.layers.0.self_attn.k_proj.bias' is in none of its safetensors"));
  for (char c = 'a'; c <= 'z'; ++c) tensors.push_back({std::string(300, c), {1}});
  const std::string warning = Read(kTied, tensors)->warnings.at(0);
  CHECK_THAT(warning, Contains("29 tensors") && Catch::EndsWith(", ..."));
  CHECK(warning.size() < 1500);
}

TEST_CASE("without all weight files config.json is enough; damaged ones are refused") {
  const tests::TemporaryFolder folder;
  folder.Write("config.json", Config(kTied));
  CHECK(ReadCheckedModel(folder.path().string()).ok());
  folder.Write("model.safetensors.index.json",
               R"({"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}})");
  folder.Write("1.safetensors", "");
  CHECK(ReadCheckedModel(folder.path().string()).ok());
  folder.Write("2.safetensors", Safetensors({{"b", {4}}}));
  CHECK_THAT(ErrorOf(ReadCheckedModel(folder.path().string())), Contains("1.safetensors: "));
  std::filesystem::remove(folder.path() / "1.safetensors");
  REQUIRE(mkfifo((folder.path() / "1.safetensors").c_str(), 0600) == 0);
  CHECK_THAT(ErrorOf(ReadCheckedModel(folder.path().string())), Contains("not a regular file"));
  std::filesystem::remove(folder.path() / "1.safetensors");
  folder.Write("1.safetensors", Safetensors({{"a", {4}}}).substr(0, 70));
  CHECK_THAT(ErrorOf(ReadCheckedModel(folder.path().string())), Contains("1.safetensors: "));
}

TEST_CASE("a tensor that workers read is there, in the shape that config.json gives") {
  const std::string biased = std::string(kTied) + R"(, "attention_bias": true)";
  std::vector<TestTensor> all = Body();
  for (int i = 0; i < 2; ++i) {
    for (const char* name : {"q", "k", "v", "o"}) {
      all.push_back(
          {"model.layers." + std::to_string(i) + ".self_attn." + name + "_proj.bias", {8}});
    }
  }
  REQUIRE(Read(biased, all).ok());
  CHECK(Read(biased, all)->warnings.empty());
  for (const TestTensor& tensor : all) {
    CAPTURE(tensor.name);
    if (tensor.name == "model.embed_tokens.weight") continue;  // decides the root
    std::vector<TestTensor> others = all;
    std::erase_if(others, [&](const TestTensor& other) { return other.name == tensor.name; });
    const auto without = Read(biased, others);
    CHECK(absl::IsNotFound(without.status()));
    CHECK_THAT(std::string(without.status().message()),
               Contains("tensor '" + tensor.name + "' is in none of its safetensors files"));
    TestTensor larger = tensor;
    larger.shape.back() += 1;
    CHECK_THAT(ErrorOf(Read(biased, With(all, larger))),
               Contains("tensor '" + tensor.name + "' has the shape [") &&
                   Contains("config.json asks for ["));
  }
}

// Of every checkpoint that workers compute like transformers.
TEST_CASE("the tensors of a model are those of its files") {
  size_t models = 0, towers = 0;
  for (const auto& entry : fs::directory_iterator("tests/golden/models")) {
    if (!entry.is_directory()) continue;
    CAPTURE(entry.path().string());
    ++models;
    const bool folder = fs::exists(entry.path() / "config.json");
    const auto checked =
        ReadCheckedModel((folder ? entry.path() : entry.path() / "model.gguf").string());
    INFO(checked.status().ToString());
    REQUIRE(checked.ok());
    // Some folders of wrapped families have the text part alone.
    if (FindFamily(checked->model.architecture())->wrapped && !checked->warnings.empty()) {
      ++towers;
      REQUIRE(checked->warnings.size() == 1);
      CHECK_THAT(checked->warnings[0], Contains("tensors are left out") &&
                                           !Contains("language_model") && !Contains("lm_head"));
    } else {
      CHECK(checked->warnings == std::vector<std::string>{});
    }
  }
  CHECK(models > 10);
  CHECK(towers >= 5);
}

// But for rotations, which GGUF may say otherwise, and numbers that it rounds to float32.
TEST_CASE("a GGUF file gives the layers that its folder's config.json gives") {
  const auto layers = [](const fs::path& path) -> v1::Model {
    auto model = ReadModelFolder(path.string());
    INFO(path << ": " << model.status().ToString());
    REQUIRE(model.ok());
    for (v1::LayerKind& kind : *model->mutable_kinds()) {
      kind.mutable_attention()->clear_rope();
      kind.mutable_attention()->clear_scale();
    }
    return *std::move(model);
  };
  size_t models = 0;
  for (const auto& entry : fs::directory_iterator("tests/golden/models")) {
    const fs::path file = entry.path() / "model.gguf";
    if (!fs::exists(file) || !fs::exists(entry.path() / "config.json")) continue;
    CAPTURE(file.string());
    ++models;
    const v1::Model in_folder = layers(entry.path()), in_file = layers(file);
    CHECK(SameLayers(in_folder, in_file));
    CHECK(in_folder.max_positions() == in_file.max_positions());
    CHECK(in_folder.norm() == in_file.norm());
  }
  CHECK(models >= 25);
}

TEST_CASE("experts of MXFP4 are planned as the codes that workers hold, the rest as it is") {
  const auto checked = ReadCheckedModel("tests/golden/models/gpt_oss_mxfp4");
  REQUIRE(checked.ok());
  const v1::Quantization& quantization = checked->model.quantization();
  // Each layer has 3 x 32 x 32 weights of 4 experts, beside 96 x 32 of attention.
  CHECK(quantization.decoded_part() == Approx(0.2));
  CHECK(quantization.code_bytes() == Approx(0.8 * 1.125));
  CHECK(checked->quantised.decoded == 0);
}

TEST_CASE("a checkpoint of int4 codes says how much of its fullest layer is held otherwise") {
  const auto quantization = [](const char* name) {
    const auto checked = ReadCheckedModel(std::string("tests/golden/models/") + name);
    INFO(checked.status().ToString());
    REQUIRE(checked.ok());
    return checked->model;
  };
  // In layer 0 keys are in no group, with which queries and values are computed, and down has 8
  // bits.
  const v1::Model mixed = quantization("llama_pack_quantized");
  const v1::Attention& attention = mixed.kinds(0).attention();
  const double hidden = mixed.hidden(), ffn = mixed.kinds(0).ffn().width();
  const double q = attention.heads() * attention.head_dim(),
               kv = attention.kv_heads() * attention.head_dim();
  const double decoded = (q + 2 * kv) * hidden + ffn * hidden;
  const double all = decoded + q * hidden + 2 * ffn * hidden;
  CHECK(mixed.quantization().decoded_part() == Approx(decoded / all));
  CHECK(mixed.quantization().code_bytes() ==
        Approx((1 - decoded / all) *
               Int4ElementBytes(Int4GroupInputs(mixed.quantization().group_size()))));
  CHECK(IsMixed(mixed.quantization()));
  for (const char* name : {"llama_gptq", "qwen2_awq", "mixtral_awq_bf16"}) {
    CHECK(!IsMixed(quantization(name).quantization()));
  }
  CHECK(IsMixed(quantization("llama_auto_round").quantization()));
}

}  // namespace tessera
