// quantization_config of each format: what it says of the weights, and what is refused by its key.
#include <catch2/catch.hpp>
#include <string>

#include "proto/model/formats/formats.h"
#include "proto/model/model_config.h"

namespace tessera {
namespace {

using Catch::Contains;

absl::StatusOr<v1::Model> Parse(const std::string& member) {
  return ParseModelConfig(R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 64,
      "num_hidden_layers": 4, "num_attention_heads": 4, "vocab_size": 128, "intermediate_size": 96,
      "max_position_embeddings": 32, )" +
                              member + "}",
                          "folder/config.json");
}

v1::Model Read(const std::string& member) {
  const auto model = Parse(member);
  INFO(model.status().ToString());
  REQUIRE(model.ok());
  return *model;
}

std::string ErrorWith(const std::string& member) {
  const auto model = Parse(member);
  REQUIRE_FALSE(model.ok());
  CHECK(model.status().code() == absl::StatusCode::kInvalidArgument);
  return std::string(model.status().message());
}

// Errors of a quantization_config with these keys.
std::string QuantisationError(const std::string& keys) {
  return ErrorWith(R"("quantization_config": {)" + keys + "}");
}

}  // namespace

TEST_CASE("quantization_config: AWQ and GPTQ of 4 bits") {
  const v1::Quantization awq = Read(R"("quantization_config": {
      "quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": true, "version": "GEMM"})")
                                   .quantization();
  CHECK(awq.format() == v1::WEIGHT_FORMAT_AWQ);
  CHECK(awq.group_size() == 64);
  CHECK_FALSE(awq.zeros_less_one());
  const v1::Quantization gptq = Read(R"("quantization_config": {
      "quant_method": "gptq", "bits": 4, "group_size": -1, "desc_act": false, "sym": true})")
                                    .quantization();
  CHECK(gptq.format() == v1::WEIGHT_FORMAT_GPTQ);
  CHECK(gptq.group_size() == 0);
  CHECK(gptq.zeros_less_one());
  CHECK_FALSE(Read(R"("quantization_config": {"quant_method": "gptq",
      "bits": 4, "checkpoint_format": "gptq_v2"})")
                  .quantization()
                  .zeros_less_one());
  CHECK_FALSE(Read(R"("quantization_config": null)").has_quantization());
}

TEST_CASE("weights that MLX quantised are refused by the key that says so") {
  CHECK_THAT(ErrorWith(R"("quantization": {"group_size": 64, "bits": 4})"),
             Contains("quantization says that weights are quantised by MLX"));
}

TEST_CASE("quantization_config: AWQ's own spelling of bits and group size") {
  const v1::Quantization awq = Read(R"("quantization_config": {
      "quant_method": "awq", "w_bit": 4, "q_group_size": 64, "zero_point": true})")
                                   .quantization();
  CHECK(awq.format() == v1::WEIGHT_FORMAT_AWQ);
  CHECK(awq.group_size() == 64);
  CHECK_THAT(QuantisationError(R"("quant_method": "awq", "w_bit": 8)"),
             Contains("quantization_config.w_bit 8 is not supported"));
  CHECK_THAT(QuantisationError(R"("quant_method": "awq", "w_bit": 4, "q_group_size": 12)"),
             Contains("quantization_config.q_group_size 12"));
  CHECK_THAT(QuantisationError(
                 R"("quant_method": "awq", "bits": 4, "group_size": 32, "q_group_size": 64)"),
             Contains("group_size and q_group_size say different things"));
}

TEST_CASE("quantization_config: whether the codes of a method are kept") {
  const auto read = [](const std::string& keys) {
    return Read(R"("quantization_config": {)" + keys + "}").quantization();
  };
  const auto is_decoded = [&](const std::string& keys) { return read(keys).decoded(); };
  CHECK(is_decoded(R"("quant_method": "gptq", "bits": 4, "desc_act": true)"));
  CHECK_FALSE(
      is_decoded(R"("quant_method": "gptq", "bits": 4, "desc_act": true, "group_size": -1)"));
  CHECK(is_decoded(R"("quant_method": "gptq", "bits": 8)"));
  CHECK_FALSE(is_decoded(R"("quant_method": "gptq", "bits": 3)"));
  CHECK(is_decoded(R"("quant_method": "modelopt", "quant_algo": "FP8")"));
  CHECK(is_decoded(R"("quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0,
                      "modules_to_not_convert": ["model.layers.0.mlp.down_proj"])"));
  CHECK(is_decoded(R"("quant_algo": "FP8")"));
  const v1::Quantization fp8 = read(R"("quant_method": "fp8", "weight_block_size": [64, 32])");
  CHECK(fp8.decoded());
  CHECK(fp8.block_rows() == 64);
  CHECK(fp8.block_columns() == 32);
  CHECK(fp8.code_bytes() == 1.125);
  CHECK(read(R"("quant_method": "fp8", "weight_block_size": [16, 24])").code_bytes() == 0);
  CHECK(read(R"("quant_algo": "FP8")").code_bytes() == 1.03125);
  CHECK(read(R"("quant_method": "fp8")").block_rows() == 128);
  CHECK(read(R"("quant_method": "fp8", "weight_block_size": null)").block_rows() == 0);
  const v1::Quantization round = read(R"("quant_method": "auto-round", "bits": 4,
      "packing_format": "auto_round", "extra_config": {"lm_head": {"bits": 16}})");
  CHECK(round.format() == v1::WEIGHT_FORMAT_GPTQ);
  CHECK_FALSE(round.zeros_less_one());
  CHECK(read(R"("quant_method": "intel/auto-round", "bits": 4)").zeros_less_one());
  CHECK(read(R"("quant_method": "auto-round", "bits": 4,
      "packing_format": "auto_round:auto_awq")")
            .format() == v1::WEIGHT_FORMAT_AWQ);
  const auto groups = [&](const std::string& first, const std::string& second) {
    return read(R"("config_groups": {"a": {"targets": ["re:.*q_proj"], "weights": {)" + first +
                R"(}}, "b": {"targets": ["Linear"], "weights": {)" + second + "}}}");
  };
  const v1::Quantization mixed =
      groups(R"("num_bits": 4, "group_size": 32)", R"("num_bits": 4, "group_size": 128)");
  CHECK_FALSE(mixed.decoded());
  CHECK(mixed.group_size() == 128);
  CHECK(groups(R"("num_bits": 8)", R"("num_bits": 8, "type": "float")").decoded());
  CHECK(groups(R"("num_bits": 8)", R"("num_bits": 8, "type": "float")").code_bytes() == 0);
  const std::string float8 = R"("num_bits": 8, "type": "float", "strategy": "channel")";
  CHECK(groups(float8, float8).code_bytes() == 1.03125);
  CHECK_FALSE(groups(R"("num_bits": 8)", R"("num_bits": 4, "strategy": "channel")").decoded());
  CHECK(groups(R"("num_bits": 8)", R"("num_bits": 4, "group_size": 32, "actorder": "group")")
            .decoded());
  CHECK(groups(R"("num_bits": 8, "type": "float", "strategy": "block",
      "block_structure": [128, 64])",
               R"("num_bits": 8)")
            .block_columns() == 64);
  const v1::Quantization text = groups(R"("num_bits": 8, "type": "float", "strategy": "block",
      "block_structure": "128x64")",
                                       R"("num_bits": 8)");
  CHECK(text.block_rows() == 128);
  CHECK(text.block_columns() == 64);
  // Inputs of attention alone, which stay as they are.
  const v1::Quantization attention = read(R"("config_groups": {"a": {"targets": ["LlamaAttention"],
      "weights": null, "input_activations": {"num_bits": 8, "type": "float"}}})");
  CHECK(attention.decoded());
  CHECK(attention.code_bytes() == 0);
}

TEST_CASE("quantization_config: floats of four bits are planned as decoded") {
  const auto read = [](const std::string& keys) {
    return Read(R"("quantization_config": {)" + keys + "}").quantization();
  };
  const std::string four = R"({"weights": {"num_bits": 4, "type": "float",
      "strategy": "tensor_group", "group_size": 16}})";
  for (const std::string& keys :
       {std::string(R"("quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16)"),
        std::string(R"("quant_method": "modelopt_fp4", "quant_algo": "W4A16_NVFP4")"),
        R"("quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized",
            "config_groups": {"group_0": )" +
            four + "}"}) {
    const v1::Quantization quantization = read(keys);
    CHECK(quantization.decoded());
    CHECK(quantization.code_bytes() == 0);
    CHECK(FormatName(quantization) == "NVFP4");
  }
  const v1::Quantization mixed = read(R"("quant_method": "modelopt",
      "quant_algo": "MIXED_PRECISION", "quantized_layers": {
        "a": {"quant_algo": "FP8_PB_WO"}, "b": {"quant_algo": "NVFP4", "group_size": 16}})");
  CHECK(mixed.decoded());
  CHECK(mixed.block_rows() == 128);
  CHECK(FormatName(mixed) == "NVFP4");
  CHECK(FormatName(read(R"("quant_method": "compressed-tensors", "config_groups": {"g": {
      "weights": {"num_bits": 4, "group_size": 16}}})")) == "compressed-tensors");
  const auto named = [&](const std::string& first, const std::string& second) {
    return FormatName(read(R"("quant_method": "compressed-tensors", "config_groups": {"a": )" +
                           first + R"(, "b": )" + second + "}"));
  };
  const std::string powers = R"({"weights": {"num_bits": 4, "type": "float",
      "strategy": "group", "group_size": 32, "scale_dtype": "torch.uint8"}})";
  const std::string eight = R"({"weights": {"num_bits": 8, "type": "float",
      "strategy": "channel"}})";
  CHECK(named(powers, powers) == "MXFP4");
  CHECK(named(powers, eight) == "MXFP4");
  CHECK(named(powers, four) == "NVFP4");
  CHECK(named(four, powers) == "NVFP4");
  CHECK(named(eight, eight) == "compressed-tensors");
}

// Sizes and keys of gpt-oss-20b.
TEST_CASE("quantization_config: gpt-oss as it is published, of which no key is left over") {
  std::vector<std::string> notes;
  const auto model = ParseModelConfig(R"({"architectures": ["GptOssForCausalLM"],
      "model_type": "gpt_oss", "attention_bias": true, "attention_dropout": 0.0,
      "eos_token_id": 200002, "pad_token_id": 199999, "experts_per_token": 4, "head_dim": 64,
      "hidden_act": "silu", "hidden_size": 2880, "initial_context_length": 4096,
      "initializer_range": 0.02, "intermediate_size": 2880, "max_position_embeddings": 131072,
      "num_attention_heads": 64, "num_experts_per_tok": 4, "num_hidden_layers": 24,
      "num_key_value_heads": 8, "num_local_experts": 32, "output_router_logits": false,
      "quantization_config": {"modules_to_not_convert": ["model.layers.*.self_attn",
        "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"], "quant_method": "mxfp4"},
      "rms_norm_eps": 1e-05, "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0,
        "original_max_position_embeddings": 4096, "rope_type": "yarn", "truncate": false},
      "rope_theta": 150000, "router_aux_loss_coef": 0.9, "sliding_window": 128,
      "swiglu_limit": 7.0, "tie_word_embeddings": false, "use_cache": true,
      "vocab_size": 201088})",
                                      "config.json", &notes);
  INFO(model.status().ToString());
  REQUIRE(model.ok());
  CHECK(notes.empty());
  CHECK(model->quantization().format() == v1::WEIGHT_FORMAT_MXFP4);
  CHECK_FALSE(model->quantization().decoded());
  CHECK(model->kinds(0).ffn().experts().count() == 32);
}

TEST_CASE("quantization_config: what is not supported is named, with what to use instead") {
  const auto refused = [](const std::string& keys, const std::string& named) {
    CHECK_THAT(QuantisationError(keys),
               Contains("folder/config.json: quantization_config." + named) &&
                   Contains("use an AWQ or GPTQ checkpoint of 4 bits") &&
                   Contains("--quantization int8"));
  };
  refused(R"("quant_method": "hqq", "bits": 8)", "quant_method 'hqq' is not supported");
  refused(R"("bits": 4)", "quant_method '' is not supported");
  refused(R"("quant_method": "gptq", "bits": 1)", "bits 1 is not supported");
  refused(R"("quant_method": "gptq", "bits": 16)", "bits 16 is not supported");
  refused(R"("quant_method": "gptq", "bits": 4, "pack_dtype": "int16")", "pack_dtype");
  refused(R"("quant_method": "fp8", "fmt": "e5m2")", "fmt 'e5m2' is not supported");
  refused(R"("quant_method": "fp8", "expert_dtype": "fp4")", "expert_dtype 'fp4'");
  refused(R"("quant_method": "modelopt", "quant_algo": "NVFP4_AWQ")", "quant_algo 'NVFP4_AWQ'");
  refused(R"("quant_method": "modelopt", "quant_algo": "MIXED_PRECISION")", "quantized_layers");
  refused(R"("quant_method": "modelopt", "quant_algo": "MIXED_PRECISION",
      "quantized_layers": {"model.layers.0.mlp.up_proj": {"quant_algo": "W4A8_AWQ"}})",
          "quantized_layers.model.layers.0.mlp.up_proj.quant_algo 'W4A8_AWQ'");
  refused(R"("quant_method": "auto-round", "bits": 4, "packing_format": "auto_round:fp8_static")",
          "packing_format 'auto_round:fp8_static'");
  refused(R"("quant_method": "auto-round", "bits": 4, "data_type": "mx_fp")", "data_type 'mx_fp'");
  refused(R"("quant_method": "auto-round", "bits": 4, "super_bits": 6)", "super_bits is set");
  refused(R"("quant_method": "bitsandbytes", "load_in_8bit": true)", "load_in_8bit is set");
  refused(R"("quant_method": "bitsandbytes", "bnb_4bit_quant_storage": "bfloat16")",
          "bnb_4bit_quant_storage 'bfloat16'");
  const auto compressed = [](const std::string& weights) {
    return R"("quant_method": "compressed-tensors", "config_groups": {"g": {"targets": ["Linear"],
        "weights": {)" +
           weights + "}}}";
  };
  refused(compressed(R"("type": "float", "num_bits": 6)"),
          "config_groups.g.weights.num_bits 6 of type float");
  refused(compressed(R"("type": "int", "num_bits": 16)"), "config_groups.g.weights.num_bits 16");
  refused(compressed(R"("strategy": "token")"), "config_groups.g.weights.strategy");
  for (const char* block : {"128", "x128", "0x128", "128x128x1", "128x99999999999"}) {
    CHECK_THAT(QuantisationError(compressed(R"("type": "float", "num_bits": 8,
        "strategy": "block", "block_structure": ")" +
                                            std::string(block) + "\"")),
               Contains("config_groups.g.weights.block_structure must be two numbers"));
  }
  refused(compressed("") + R"(, "format": "marlin-24")", "format 'marlin-24'");
  refused(compressed("") + R"(, "transform_config": {"R1": {}})", "transform_config is set");
  refused(R"("quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin")",
          "checkpoint_format 'marlin'");
  refused(R"("quant_method": "awq", "bits": 4, "version": "gemv")", "version 'gemv'");
  refused(R"("quant_method": "awq", "bits": 4, "zero_point": false)", "zero_point false");
  CHECK_THAT(QuantisationError(R"("quant_method": "awq", "bits": 4, "group_size": 12)"),
             Contains("quantization_config.group_size 12") && Contains("multiple of 8"));
  CHECK_THAT(QuantisationError(R"("quant_method": "awq")"),
             Contains("quantization_config.bits is missing"));
  CHECK_THAT(ErrorWith(R"("quantization_config": [4])"),
             Contains("quantization_config must be an object"));
}

}  // namespace tessera
