// DeepSeek's configurations and its descendants' as published: latent attention, experts by groups,
// and what a token keeps.
#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "proto/layers/layer_sizes.h"
#include "proto/layers/layers.h"
#include "proto/model/model_config.h"

namespace tessera {
namespace {

using Catch::Contains;

const std::string kV3 = R"({"architectures": ["DeepseekV3ForCausalLM"], "attention_bias": false,
    "attention_dropout": 0.0, "bos_token_id": 0, "eos_token_id": 1, "ep_size": 1,
    "first_k_dense_replace": 3, "hidden_act": "silu", "hidden_size": 7168,
    "initializer_range": 0.02, "intermediate_size": 18432, "kv_lora_rank": 512,
    "max_position_embeddings": 163840, "model_type": "deepseek_v3", "moe_intermediate_size": 2048,
    "moe_layer_freq": 1, "n_group": 8, "n_routed_experts": 256, "n_shared_experts": 1,
    "norm_topk_prob": true, "num_attention_heads": 128, "num_experts_per_tok": 8,
    "num_hidden_layers": 61, "num_key_value_heads": 128, "num_nextn_predict_layers": 1,
    "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06,
    "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0,
    "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096, "type": "yarn"},
    "rope_theta": 10000, "routed_scaling_factor": 2.5, "scoring_func": "sigmoid",
    "tie_word_embeddings": false, "topk_group": 4, "topk_method": "noaux_tc",
    "torch_dtype": "bfloat16", "use_cache": true, "v_head_dim": 128, "vocab_size": 129280})";

const std::string kV2Lite = R"({"architectures": ["DeepseekV2ForCausalLM"], "attention_bias": false,
    "aux_loss_alpha": 0.001, "bos_token_id": 100000, "eos_token_id": 100001,
    "first_k_dense_replace": 1, "hidden_act": "silu", "hidden_size": 2048,
    "intermediate_size": 10944, "kv_lora_rank": 512, "max_position_embeddings": 163840,
    "model_type": "deepseek_v2", "moe_intermediate_size": 1408, "moe_layer_freq": 1, "n_group": 1,
    "n_routed_experts": 64, "n_shared_experts": 2, "norm_topk_prob": false,
    "num_attention_heads": 16, "num_experts_per_tok": 6, "num_hidden_layers": 27,
    "num_key_value_heads": 16, "q_lora_rank": null, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06, "rope_scaling": {"beta_fast": 32,
    "beta_slow": 1, "factor": 40, "mscale": 0.707, "mscale_all_dim": 0.707,
    "original_max_position_embeddings": 4096, "type": "yarn"}, "rope_theta": 10000,
    "routed_scaling_factor": 1.0, "scoring_func": "softmax", "seq_aux": true,
    "tie_word_embeddings": false, "topk_group": 1, "topk_method": "greedy",
    "torch_dtype": "bfloat16", "use_cache": true, "v_head_dim": 128, "vocab_size": 102400})";

std::string With(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

v1::Model Read(const std::string& text, size_t notes = 0) {
  std::vector<std::string> noted;
  const auto model = ParseModelConfig(text, "config.json", &noted);
  INFO(model.status().ToString() << (noted.empty() ? "" : noted[0]));
  REQUIRE(model.ok());
  CHECK(noted.size() == notes);
  return *model;
}

std::string ErrorOf(const std::string& text) {
  const auto model = ParseModelConfig(text, "config.json");
  REQUIRE_FALSE(model.ok());
  return std::string(model.status().message());
}

// Bytes of KV a token, in 16 bits, of all layers.
int64_t KvBytes(const v1::Model& model) {
  int64_t elements = 0;
  for (int64_t layer = 0; layer < LayerCount(model); ++layer) {
    const LayerShape shape = ShapeOf(model, KindOf(model, layer));
    elements += KvElementsPerToken(shape, WholeLayer(shape));
  }
  return 2 * elements;
}

double Parameters(const v1::Model& model) {
  double parameters = 2 * VocabularyParameters(model, model.vocabulary());
  for (int64_t layer = 0; layer < LayerCount(model); ++layer) {
    const LayerShape shape = ShapeOf(model, KindOf(model, layer));
    parameters += MatrixParameters(shape, WholeLayer(shape)) + RouterParameters(shape);
  }
  return parameters;
}

TEST_CASE("deepseek v3 as published: 576 numbers a token and layer, experts of four groups") {
  const v1::Model model = Read(kV3);
  const v1::Attention& attention = KindOf(model, 60).attention();
  CHECK(attention.heads() == 128);
  CHECK(attention.kv_heads() == 1);
  CHECK(attention.head_dim() == 576);
  CHECK(attention.latent().query_rank() == 1536);
  CHECK(attention.rope().neighbour_pairs());
  CHECK(attention.rope().attention_factor() == Approx(1));
  const double mscale = 0.1 * std::log(40.0) + 1;
  CHECK(attention.scale() == Approx(mscale * mscale / std::sqrt(192.0)));
  CHECK(KvBytes(model) == 576 * 61 * 2);
  CHECK(Parameters(model) == Approx(671e9).epsilon(0.002));
  CHECK_FALSE(KindOf(model, 2).ffn().has_experts());
  const v1::Experts& experts = KindOf(model, 3).ffn().experts();
  CHECK(experts.score() == v1::EXPERT_SCORE_SIGMOID);
  CHECK(experts.correction_bias());
  CHECK(experts.renormalise());
  CHECK(experts.groups() == 8);
  CHECK(experts.groups_per_token() == 4);
  CHECK_FALSE(experts.groups_by_best());
  CHECK(experts.factor() == 2.5);
  CHECK(KindOf(model, 3).ffn().width() == 2048);
  CHECK(model.max_positions() == 163840);
}

TEST_CASE("deepseek v2-lite as published: queries of no low rank, experts by softmax alone") {
  const v1::Model model = Read(kV2Lite);
  const v1::Attention& attention = KindOf(model, 0).attention();
  CHECK(attention.latent().query_rank() == 0);
  CHECK(attention.rope().attention_factor() == Approx(1));
  CHECK(KvBytes(model) == 576 * 27 * 2);
  CHECK(Parameters(model) == Approx(15.7e9).epsilon(0.005));
  const v1::Experts& experts = KindOf(model, 1).ffn().experts();
  CHECK(experts.score() == v1::EXPERT_SCORE_UNSPECIFIED);
  CHECK_FALSE(experts.renormalise());
  CHECK(experts.groups() == 0);
  CHECK(KindOf(model, 1).ffn().width() == 2816);
  const v1::Model grouped = Read(With(With(With(kV2Lite, "\"greedy\"", "\"group_limited_greedy\""),
                                           "\"n_group\": 1", "\"n_group\": 8"),
                                      "\"topk_group\": 1", "\"topk_group\": 3"));
  CHECK(KindOf(grouped, 1).ffn().experts().groups() == 8);
  CHECK(KindOf(grouped, 1).ffn().experts().groups_by_best());
}

TEST_CASE("kimi k2, alone and inside k2.5, is deepseek v3 with other numbers") {
  const std::string k2 = With(
      With(With(With(kV3, "\"deepseek_v3\"", "\"kimi_k2\""), "\"n_group\": 8", "\"n_group\": 1"),
           "\"topk_group\": 4", "\"topk_group\": 1"),
      "\"n_routed_experts\": 256", "\"n_routed_experts\": 384");
  CHECK(KindOf(Read(k2), 60).ffn().experts().groups() == 0);
  const v1::Model inside =
      Read(R"({"architectures": ["KimiK25ForConditionalGeneration"], "model_type": "kimi_k25",
              "vision_config": {}, "text_config": )" +
           k2 + "}");
  CHECK(SameLayers(inside, Read(k2)));
}

TEST_CASE("glm-4.7-flash: which layers are dense is a number or a list") {
  const std::string flash = R"({"architectures": ["Glm4MoeLiteForCausalLM"],
      "num_hidden_layers": 3, "hidden_size": 2048, "num_attention_heads": 20,
      "intermediate_size": 10240, "first_k_dense_replace": 1, "qk_nope_head_dim": 192,
      "v_head_dim": 256, "q_lora_rank": 768})";
  const v1::Model model = Read(flash);
  CHECK_FALSE(KindOf(model, 0).ffn().has_experts());
  CHECK(KindOf(model, 1).ffn().experts().per_token() == 4);
  CHECK(KindOf(model, 1).ffn().experts().factor() == 1.8);
  CHECK(KindOf(model, 1).attention().scale() == Approx(1.0 / 16));
  const std::string key = "\"first_k_dense_replace\": 1";
  const v1::Model listed =
      Read(With(flash, key, R"("mlp_layer_types": ["sparse", "dense", "sparse"])"));
  CHECK(KindOf(listed, 0).ffn().has_experts());
  CHECK_FALSE(KindOf(listed, 1).ffn().has_experts());
  CHECK_THAT(ErrorOf(With(flash, key, R"("mlp_layer_types": ["sparse", "moe", "dense"])")),
             Contains("mlp_layer_types") && Contains("'moe'"));
  CHECK_THAT(ErrorOf(With(flash, key, R"("mlp_layer_types": ["sparse"])")),
             Contains("mlp_layer_types") && Contains("names 1 layers"));
}

TEST_CASE("what changes results and is not computed is refused by name") {
  CHECK_THAT(ErrorOf(With(kV3, "\"sigmoid\"", "\"softmax\"")), Contains("scoring_func"));
  CHECK_THAT(ErrorOf(With(kV3, "\"noaux_tc\"", "\"greedy\"")), Contains("topk_method"));
  CHECK_THAT(ErrorOf(With(kV3, "\"moe_layer_freq\": 1", "\"moe_layer_freq\": 2")),
             Contains("moe_layer_freq"));
  CHECK_THAT(ErrorOf(With(kV3, "\"attention_bias\": false", "\"attention_bias\": true")),
             Contains("attention_bias"));
  CHECK_THAT(ErrorOf(With(kV3, "\"num_key_value_heads\": 128", "\"num_key_value_heads\": 8")),
             Contains("num_key_value_heads") && Contains("(8)"));
  CHECK_THAT(ErrorOf(With(kV2Lite, "\"norm_topk_prob\": false", "\"norm_topk_prob\": true")),
             Contains("norm_topk_prob"));
  CHECK_THAT(ErrorOf(With(kV3, "\"n_group\": 8", "\"n_group\": 7")), Contains("n_group"));
}

}  // namespace
}  // namespace tessera
