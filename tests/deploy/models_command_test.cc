// What `tessera models` says of families and of checkpoints.
#include "deploy/models_command.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

#include "proto/model/families/families.h"
#include "tests/temporary_folder.h"

namespace tessera::deploy {
namespace {

using Catch::Contains;

std::string TextOf(const std::string& path) {
  std::ifstream file(path);
  REQUIRE(file);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST_CASE("docs/models.md has the table of families that the command prints") {
  CHECK_THAT(TextOf("docs/models.md"), Contains("\n\n" + ModelsMarkdown() + "\n"));
}

TEST_CASE("docs/models.md names each architecture that GGUF files may have") {
  const std::string text = TextOf("docs/models.md");
  const std::string named = text.substr(text.find("\nArchitectures: "));
  for (const Family* family : Families()) {
    for (const std::string_view name : {family->gguf.architecture, family->gguf.with_images}) {
      CHECK_THAT(named.substr(0, named.find("Tokenizers are")), Contains(std::string(name)));
    }
  }
}

TEST_CASE("the list names families by their publishers' names and by their classes") {
  CHECK_THAT(ListModels(), Contains("  GLM-4-0414                 Glm4ForCausalLM\n") &&
                               Contains("  AWQ (gemm), 4 bits\n") &&
                               Contains("  compressed-tensors: pack-") &&
                               Contains("compute capability 7.5"));
}

TEST_CASE("a checkpoint: its family, its layers by kind, its bytes") {
  const auto text = DescribeModel("tests/golden/models/exaone4");
  REQUIRE(text.status().message() == "");
  CHECK_THAT(*text,
             Contains("family:   EXAONE 4 (Exaone4ForCausalLM)\n") && Contains("layers:   4\n") &&
                 Contains("warning: it cannot be served yet: ") && Contains(": no tokenizer"));
  // 2 x 2 kv heads x 8 x 2 bytes in each layer.
  CHECK_THAT(*text, Contains("  3 with 4 heads and 2 kv heads of 8, a window of 16 tokens, rope of "
                             "base 10000; ffn of width 48, gated; KV 0.19 KiB per token") &&
                        Contains("  1 with 4 heads and 2 kv heads of 8, all tokens seen, not "
                                 "rotated; ffn of width 48, gated; KV 0.06 KiB per token"));
  const auto hybrid = DescribeModel("tests/golden/models/qwen3_5");
  REQUIRE(hybrid.status().message() == "");
  // 4 heads x 8 x 6 numbers and 3 rows of 56 channels, in each layer.
  CHECK_THAT(*hybrid,
             Contains("  2 with a gated delta net of 2 key heads of 8 and 4 value heads of "
                      "6; ffn of width 20, gated; states of 2.81 KiB per sequence in "
                      "float32\n") &&
                 Contains("  1 with 4 gated heads and 2 kv heads of 8, all tokens seen"));
  const auto experts = DescribeModel("tests/golden/models/qwen3_moe");
  REQUIRE(experts.status().message() == "");
  CHECK_THAT(*experts, Contains("2 of 4 experts of width 24, gated"));
  const auto chunks = DescribeModel("tests/golden/models/llama4");
  REQUIRE(chunks.status().message() == "");
  CHECK_THAT(*chunks, Contains("2 kv heads of 8, chunks of 8 tokens, rope of base 100;") &&
                          Contains("; 1 of 4 experts of width 8 beside a shared ffn of width 8"));
  const auto borrowed = DescribeModel("tests/golden/models/gemma4_per_layer");
  REQUIRE(borrowed.status().message() == "");
  CHECK_THAT(
      *borrowed,
      Contains("  1 with 4 heads and 2 kv heads of 16 of an earlier layer, all tokens seen, "
               "rope of base 100, proportional; ffn of width 24, gated; KV 0.00 KiB per token"));
  const auto int4 = DescribeModel("tests/golden/models/llama_gptq");
  REQUIRE(int4.status().message() == "");
  CHECK_THAT(*int4,
             Contains("float16, matrices of layers int4 (GPTQ)") &&
                 Contains("on a CPU: computed in float32 (exact); 14 matrices kept as codes"));
  const auto fp8 = DescribeModel("tests/golden/models/llama_fp8_blocks");
  REQUIRE(fp8.status().message() == "");
  CHECK_THAT(*fp8, Contains("bfloat16, matrices stored as FP8\n") &&
                       Contains("on a CPU: computed in the stored type; 14 matrices decoded when "
                                "they are read: 15.00 KiB of codes become 30.00 KiB; "
                                "--quantization int8"));
  const auto mixed = DescribeModel("tests/golden/models/llama_pack_quantized");
  REQUIRE(mixed.status().message() == "");
  CHECK_THAT(*mixed, Contains("(compressed-tensors)") &&
                         Contains("; 7 matrices kept as codes; 5 matrices decoded"));
}

TEST_CASE("a checkpoint without all its weights is described, and what is missing is named") {
  const tests::TemporaryFolder folder;
  const std::filesystem::path model = "tests/golden/models/exaone4";
  std::filesystem::copy(model / "config.json", folder.path() / "config.json");
  folder.Write("model.safetensors.index.json", R"({"weight_map": {"a": "1.safetensors"}})");
  const auto text = DescribeModel(folder.path().string());
  REQUIRE(text.status().message() == "");
  CHECK_THAT(*text, Contains("warning: it cannot be served yet: ") &&
                        Contains("1.safetensors is missing"));
}

TEST_CASE("a GGUF file: its family, and how much of its matrices is kept as codes") {
  const auto text = DescribeModel("tests/golden/models/gguf_llama_q4/model.gguf");
  REQUIRE(text.status().message() == "");
  CHECK_THAT(*text, Contains("family:   Llama 1 to 3 (LlamaForCausalLM)\n") &&
                        Contains("layers:   2\n") && Contains("(GGUF) kept as codes"));
  const auto int8 = DescribeModel("tests/golden/models/gguf_llama_q8_0/model.gguf");
  REQUIRE(int8.status().message() == "");
  CHECK_THAT(*int8, Contains("matrices of layers (GGUF) kept as codes\n"));
  CHECK_THAT(ListModels(),
             Contains("GGUF files: Q4_0, Q4_1, Q5_0,") && Contains("IQ4_XS, MXFP4, F32,"));
}

TEST_CASE("NVFP4: codes on a CPU, 16 bits on a GPU") {
  const auto text = DescribeModel("tests/golden/models/qwen3_nvfp4");
  REQUIRE(text.status().message() == "");
  CHECK_THAT(*text, Contains("bfloat16, matrices stored as NVFP4\n") &&
                        Contains("on a CPU: computed in the stored type; 14 matrices kept as "
                                 "codes; --quantization") &&
                        Contains("before Ampere; 14 matrices decoded when they are read: "));
}

TEST_CASE("the first key that is not understood is named") {
  const tests::TemporaryFolder folder;
  std::ofstream(folder.path() / "config.json") << R"({"architectures": ["LlamaForCausalLM"],
      "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 32,
      "intermediate_size": 64, "rope_scaling": {"rope_type": "ntk", "factor": 2}})";
  const auto text = DescribeModel(folder.path().string());
  CHECK_THAT(std::string(text.status().message()), Contains("rope_scaling.rope_type 'ntk'"));
}

}  // namespace
}  // namespace tessera::deploy
