// Every key that changes a model's shape, in both forms that transformers has written.
#include "proto/model/model_config.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <cmath>
#include <string>
#include <vector>

#include "proto/layers/layers.h"

namespace tessera {
namespace {

// A config.json of `architecture` with `extra` members.
std::string Config(const std::string& architecture, const std::string& extra = "") {
  return R"({"architectures": [")" + architecture + R"("], "hidden_size": 64,
    "num_hidden_layers": 4, "num_attention_heads": 4, "vocab_size": 128, "intermediate_size": 96,
    "ffn_dim": 96, "max_position_embeddings": 32)" +
         (extra.empty() ? "" : ", " + extra) + "}";
}

v1::Model Read(const std::string& architecture, const std::string& extra = "") {
  const auto model = ParseModelConfig(Config(architecture, extra), "config.json");
  INFO(model.status().ToString());
  REQUIRE(model.ok());
  return *model;
}

std::string ErrorOf(const std::string& text) {
  const auto model = ParseModelConfig(text, "folder/config.json");
  REQUIRE_FALSE(model.ok());
  CHECK(model.status().code() == absl::StatusCode::kInvalidArgument);
  return std::string(model.status().message());
}

std::string ErrorWith(const std::string& extra,
                      const std::string& architecture = "LlamaForCausalLM") {
  return ErrorOf(Config(architecture, extra));
}

using Catch::Contains;

const v1::Rope& RopeOf(const v1::Model& model) { return model.kinds(0).attention().rope(); }

// By layer.
std::vector<int64_t> Windows(const v1::Model& model) {
  std::vector<int64_t> windows;
  for (int64_t layer = 0; layer < LayerCount(model); ++layer) {
    windows.push_back(KindOf(model, layer).attention().window());
  }
  return windows;
}

}  // namespace

TEST_CASE("llama: defaults of absent keys") {
  const v1::Model model = Read("LlamaForCausalLM");
  CHECK(model.architecture() == "LlamaForCausalLM");
  REQUIRE(model.kinds_size() == 1);
  CHECK(LayerCount(model) == 4);
  const v1::Attention& attention = model.kinds(0).attention();
  const v1::Ffn& ffn = model.kinds(0).ffn();
  CHECK(attention.kv_heads() == 4);
  CHECK(attention.head_dim() == 16);
  CHECK(ffn.width() == 96);
  CHECK(ffn.gated());
  CHECK(model.norm() == v1::NORM_KIND_RMS);
  CHECK(model.norm_epsilon() == 1e-6);
  CHECK(ffn.activation() == v1::ACTIVATION_KIND_SILU);
  CHECK_FALSE(attention.qkv_bias());
  CHECK_FALSE(model.tied_embeddings());
  CHECK(attention.rope().theta() == 10000.0);
  CHECK(attention.rope().rotary_dim() == 16);
  CHECK(attention.rope().scaling() == v1::ROPE_SCALING_KIND_UNSPECIFIED);
  CHECK(attention.window() == 0);
  CHECK(model.eos_token_ids().empty());
  CHECK(model.dtype() == v1::DATA_TYPE_UNSPECIFIED);
}

TEST_CASE("llama: keys of transformers 4 and 5 mean the same") {
  const v1::Model four = Read("LlamaForCausalLM", R"("torch_dtype": "bfloat16",
      "rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0,
      "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16})");
  const v1::Model five = Read("LlamaForCausalLM", R"("dtype": "bfloat16",
      "rope_parameters": {"rope_theta": 500000.0, "rope_type": "llama3", "factor": 8.0,
      "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16})");
  CHECK(four.SerializeAsString() == five.SerializeAsString());
  CHECK(four.dtype() == v1::DATA_TYPE_BFLOAT16);
  CHECK(RopeOf(four).theta() == 500000.0);
  CHECK(RopeOf(four).scaling() == v1::ROPE_SCALING_KIND_LLAMA3);
  CHECK(RopeOf(four).original_max_positions() == 16);
  CHECK(RopeOf(four).high_frequency_factor() == 4.0);
  CHECK(four.max_positions() == 32);
}

TEST_CASE("rope: older `type`, and positions that linear and dynamic stretch") {
  const v1::Model linear =
      Read("LlamaForCausalLM", R"("rope_scaling": {"type": "linear", "factor": 4.0})");
  CHECK(RopeOf(linear).scaling() == v1::ROPE_SCALING_KIND_LINEAR);
  CHECK(RopeOf(linear).factor() == 4.0);
  CHECK(linear.max_positions() == 128);
  const v1::Model dynamic =
      Read("LlamaForCausalLM", R"("rope_scaling": {"type": "dynamic", "factor": 2.0})");
  CHECK(RopeOf(dynamic).scaling() == v1::ROPE_SCALING_KIND_DYNAMIC);
  CHECK(RopeOf(dynamic).original_max_positions() == 32);
  CHECK(dynamic.max_positions() == 64);
  CHECK(RopeOf(Read("LlamaForCausalLM", R"("rope_scaling": null)")).factor() == 0);
}

TEST_CASE("rope: what is not understood is refused by name") {
  CHECK_THAT(ErrorWith(R"("rope_scaling": {"rope_type": "ntk", "factor": 4.0})"),
             Contains("folder/config.json: rope_scaling.rope_type 'ntk' is not supported"));
  CHECK_THAT(ErrorWith(R"("rope_parameters": {"full_attention": {"rope_theta": 1.0}})"),
             Contains("rope_parameters.full_attention"));
  CHECK_THAT(ErrorWith(R"("rope_scaling": {"rope_type": "linear"})"),
             Contains("rope_scaling.factor is missing"));
  CHECK_THAT(ErrorWith(R"("rope_scaling": "linear")"), Contains("rope_scaling must be an object"));
  CHECK_THAT(ErrorWith(R"("partial_rotary_factor": 0.5)"), Contains("partial_rotary_factor"));
  CHECK_THAT(ErrorWith(R"("rope_theta": -1)"), Contains("rope_theta must be a number"));
  CHECK_THAT(ErrorWith(R"("head_dim": 15)"), Contains("head_dim must be even"));
}

TEST_CASE("rope: two keys are served where they agree, else refused with both of them") {
  const std::string linear = R"("rope_scaling": {"type": "linear", "factor": 4.0})";
  const v1::Model alone = Read("LlamaForCausalLM", linear);
  for (const char* parameters :
       {R"("rope_parameters": {"rope_type": "linear", "factor": 4.0})",
        R"("rope_parameters": {"rope_type": "linear", "factor": 4, "rope_theta": 10000.0})",
        R"("rope_parameters": null)", R"("rope_parameters": {})"}) {
    CAPTURE(parameters);
    const v1::Model both = Read("LlamaForCausalLM", linear + ", " + parameters);
    CHECK(both.SerializeAsString() == alone.SerializeAsString());
  }
  const std::string plain =
      R"("rope_parameters": {"rope_type": "default", "rope_theta": 500000.0})";
  for (const char* nothing : {R"("rope_scaling": null)", R"("rope_scaling": {})"}) {
    CHECK(RopeOf(Read("LlamaForCausalLM", plain + ", " + nothing)).theta() == 500000.0);
  }
  CHECK_THAT(ErrorWith(plain + ", " + linear),
             Contains("folder/config.json: rope_scaling {\"factor\":4.0,\"type\":\"linear\"} "
                      "(with rope_theta 10000)") &&
                 Contains("rope_parameters {\"rope_theta\":500000.0,") &&
                 Contains("write what is meant into rope_parameters, with rope_theta, and remove"));
  // transformers reads the first of these with a rope_theta of 10000.
  for (const char* scaling :
       {R"("rope_scaling": {"rope_type": "default"})", R"("rope_scaling": {"rope_theta": 10000.0})",
        R"("rope_scaling": {"rope_type": "dynamic", "factor": 1.0})"}) {
    CAPTURE(scaling);
    CHECK_THAT(ErrorWith(plain + ", " + scaling), Contains("and remove rope_scaling"));
  }
  CHECK_THAT(ErrorWith(plain + R"(, "rope_scaling": {"rope_type": "yarn", "factor": 4.0})"),
             Contains("rope_scaling {") && Contains("says something else than rope_parameters"));
  CHECK_THAT(ErrorWith(plain + R"(, "rope_scaling": [4])"), Contains("must be an object"));
}

TEST_CASE("rope: rope_theta in two places is one number") {
  const auto with = [](const std::string& theta) {
    return R"("rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}, "rope_theta": )" +
           theta;
  };
  CHECK(RopeOf(Read("LlamaForCausalLM", with("500000"))).theta() == 500000.0);
  CHECK(RopeOf(Read("LlamaForCausalLM", with("null"))).theta() == 500000.0);
  CHECK_THAT(
      ErrorWith(with("250000.0")),
      Contains("rope_parameters.rope_theta is 500000, rope_theta at the top level is 250000"));
  CHECK(
      RopeOf(
          Read("LlamaForCausalLM",
               R"("rope_theta": 500000.0, "rope_scaling": {"rope_type": "linear", "factor": 2.0})"))
          .theta() == 500000.0);
}

TEST_CASE("yarn: the original length, its ramp, and the context that it serves") {
  const v1::Model model = Read("Qwen3ForCausalLM", R"("num_key_value_heads": 2, "rope_scaling":
      {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32})");
  CHECK(model.max_positions() == 128);
  const v1::Rope& rope = RopeOf(model);
  CHECK(rope.scaling() == v1::ROPE_SCALING_KIND_YARN);
  CHECK(rope.original_max_positions() == 32);
  CHECK(rope.beta_fast() == 32);
  CHECK(rope.beta_slow() == 1);
  CHECK(rope.attention_factor() == Approx(0.1 * std::log(4.0) + 1));
  CHECK_FALSE(rope.ramp_not_truncated());
  CHECK_THAT(ErrorOf(Config("Qwen3ForCausalLM", R"("num_key_value_heads": 2, "rope_scaling":
      {"rope_type": "yarn", "factor": 4.0, "attention_factor": 0})")),
             Contains("attention_factor"));
  const v1::Model scaled = Read("Qwen3ForCausalLM", R"("num_key_value_heads": 2, "rope_scaling":
      {"type": "yarn", "factor": 40, "original_max_position_embeddings": 8, "mscale": 1.0,
       "mscale_all_dim": 1.0, "beta_fast": 0, "truncate": false})");
  CHECK(scaled.max_positions() == 320);
  CHECK(RopeOf(scaled).attention_factor() == 1);
  CHECK(RopeOf(scaled).beta_fast() == 32);
  CHECK(RopeOf(scaled).ramp_not_truncated());
}

TEST_CASE("longrope: a divisor for each pair, of whatever name Phi-3 gave it") {
  const std::string lists = R"("short_factor": [1, 1, 1, 1, 1, 1, 1, 1],
      "long_factor": [2, 2, 2, 2, 4, 4, 4, 4]})";
  for (const char* type : {"longrope", "su", "yarn"}) {
    INFO(type);
    const v1::Model model =
        Read("Phi3ForCausalLM", std::string(R"("original_max_position_embeddings": 8,
             "rope_scaling": {"type": ")") +
                                    type + "\", " + lists);
    const v1::Rope& rope = RopeOf(model);
    CHECK(rope.scaling() == v1::ROPE_SCALING_KIND_LONGROPE);
    CHECK(rope.original_max_positions() == 8);
    CHECK(model.max_positions() == 32);
    REQUIRE(rope.long_factors_size() == 8);
    CHECK(rope.long_factors(7) == 4);
    CHECK(rope.attention_factor() == Approx(std::sqrt(1 + std::log(4.0) / std::log(8.0))));
  }
  CHECK_THAT(ErrorWith(R"("rope_scaling": {"type": "longrope", "short_factor": [1, 1],
                          "long_factor": [1, 1]})",
                       "Phi3ForCausalLM"),
             Contains("rope_scaling.short_factor has 2 numbers; 8 pairs are rotated"));
  CHECK_THAT(ErrorWith(R"("rope_scaling": {"type": "longrope", "short_factor": [1, "x"]})",
                       "Phi3ForCausalLM"),
             Contains("rope_scaling.short_factor must hold numbers"));
}

TEST_CASE("a part of each head is rotated, where the family knows it") {
  const auto rotary = [](const std::string& architecture, const std::string& extra) {
    return RopeOf(Read(architecture, extra)).rotary_dim();
  };
  CHECK(rotary("StableLmForCausalLM", "") == 4);
  CHECK(rotary("StableLmForCausalLM", R"("partial_rotary_factor": 0.5)") == 8);
  CHECK(rotary("GPTNeoXForCausalLM", R"("rotary_pct": 1.0)") == 16);
  CHECK(rotary("Phi3ForCausalLM", R"("rope_parameters": {"partial_rotary_factor": 0.75})") == 12);
  CHECK(RopeOf(Read("GPTNeoXForCausalLM", R"("rotary_emb_base": 500)")).theta() == 500);
  CHECK_THAT(ErrorWith(R"("partial_rotary_factor": 0.2)", "StableLmForCausalLM"),
             Contains("must be an even number"));
}

TEST_CASE("layers that are not rotated: by list, by interval, by window") {
  const auto rotated = [](const std::string& architecture, const std::string& extra) {
    const v1::Model model = Read(architecture, extra);
    std::vector<bool> layers;
    for (int64_t i = 0; i < LayerCount(model); ++i) {
      layers.push_back(KindOf(model, i).attention().has_rope());
    }
    return layers;
  };
  using Layers = std::vector<bool>;
  CHECK(rotated("SmolLM3ForCausalLM", "") == Layers{true, true, true, false});
  CHECK(rotated("SmolLM3ForCausalLM", R"("no_rope_layers": [0, 1, 1, 0])") ==
        Layers{false, true, true, false});
  CHECK_THAT(ErrorWith(R"("no_rope_layers": [1, 0])", "SmolLM3ForCausalLM"),
             Contains("no_rope_layers names fewer layers"));
  const std::string heads = R"("num_key_value_heads": 2)";
  CHECK(rotated("Exaone4ForCausalLM", heads + R"(, "sliding_window_pattern": "LG")") ==
        Layers{true, false, true, false});
  CHECK(rotated("Exaone4ForCausalLM", heads + R"(, "sliding_window": null)") ==
        Layers{true, true, true, true});
  CHECK(Windows(Read("Exaone4ForCausalLM", heads + R"(, "sliding_window_pattern": 3)")) ==
        std::vector<int64_t>{4096, 4096, 0, 4096});
  CHECK_THAT(ErrorWith(heads + R"(, "sliding_window_pattern": "LX")", "Exaone4ForCausalLM"),
             Contains("sliding_window_pattern must be a number, or letters"));
}

TEST_CASE("mistral: an absent window is 4096, null is none") {
  const auto windows = [](const std::string& window) {
    return Windows(Read("MistralForCausalLM", "\"num_key_value_heads\": 2" + window));
  };
  CHECK(windows("") == std::vector<int64_t>(4, 4096));
  CHECK(windows(", \"sliding_window\": null") == std::vector<int64_t>(4, 0));
  CHECK(windows(", \"sliding_window\": 16") == std::vector<int64_t>(4, 16));
}

TEST_CASE("qwen2: biases, and the window only where it is switched on") {
  const v1::Model plain = Read("Qwen2ForCausalLM", R"("sliding_window": 16)");
  CHECK(plain.kinds(0).attention().qkv_bias());
  CHECK_FALSE(plain.kinds(0).attention().output_bias());
  CHECK(Windows(plain) == std::vector<int64_t>(4, 0));
  const v1::Model windowed =
      Read("Qwen2ForCausalLM",
           R"("sliding_window": 16, "use_sliding_window": true, "max_window_layers": 3)");
  CHECK(Windows(windowed) == std::vector<int64_t>{0, 0, 0, 16});
  REQUIRE(windowed.layers_size() == 2);
  CHECK(windowed.layers(0).count() == 3);
  CHECK(Windows(
            Read("Qwen2ForCausalLM",
                 R"("sliding_window": 16, "use_sliding_window": true, "max_window_layers": 4)")) ==
        std::vector<int64_t>(4, 0));
  const v1::Model by_type = Read("Qwen2ForCausalLM",
                                 R"("sliding_window": 16, "use_sliding_window": true,
      "layer_types": ["full_attention", "sliding_attention", "full_attention", "full_attention"])");
  CHECK(Windows(by_type) == std::vector<int64_t>{0, 16, 0, 0});
  CHECK(by_type.kinds_size() == 2);
  CHECK(by_type.layers_size() == 3);
  CHECK_THAT(ErrorWith(R"("sliding_window": 16, "use_sliding_window": true,
      "layer_types": ["full_attention", "chunked_attention", "full_attention", "full_attention"])",
                       "Qwen2ForCausalLM"),
             Contains("'chunked_attention'"));
}

TEST_CASE("qwen3: qk norm and a head_dim of its own") {
  const v1::Model model = Read("Qwen3ForCausalLM", R"("num_key_value_heads": 2)");
  const v1::Attention& attention = model.kinds(0).attention();
  CHECK(attention.qk_norm());
  CHECK(attention.head_dim() == 128);
  CHECK_FALSE(attention.qkv_bias());
}

TEST_CASE("opt: learned positions, layer norm, relu") {
  const v1::Model model = Read("OPTForCausalLM", R"("word_embed_proj_dim": 32)");
  CHECK(model.norm() == v1::NORM_KIND_LAYER);
  CHECK(model.norm_epsilon() == 1e-5);
  const v1::LayerKind& layer = model.kinds(0);
  CHECK(layer.ffn().activation() == v1::ACTIVATION_KIND_RELU);
  CHECK(model.learned_positions());
  CHECK(model.learned_position_offset() == 2);
  CHECK_FALSE(layer.attention().has_rope());
  CHECK_FALSE(layer.ffn().gated());
  CHECK(model.tied_embeddings());
  CHECK(model.embedding_width() == 32);
  CHECK(layer.ffn().bias());
  CHECK(layer.norm_place() == v1::NORM_PLACE_UNSPECIFIED);
  const v1::Model post = Read("OPTForCausalLM", R"("do_layer_norm_before": false)");
  CHECK(post.kinds(0).norm_place() == v1::NORM_PLACE_AFTER_RESIDUAL);
  CHECK(post.final_norm_absent());
}

TEST_CASE("mixture of experts: mixtral and qwen3-moe") {
  const v1::Model mixtral = Read("MixtralForCausalLM", R"("num_key_value_heads": 2,
      "num_local_experts": 4, "sliding_window": null)");
  REQUIRE(mixtral.kinds_size() == 1);
  const v1::Experts& routed = mixtral.kinds(0).ffn().experts();
  CHECK(routed.count() == 4);
  CHECK(routed.per_token() == 2);
  CHECK(routed.width() == 96);
  CHECK(routed.renormalise());
  CHECK(mixtral.kinds(0).ffn().width() == 0);
  CHECK(mixtral.kinds(0).attention().rope().theta() == 1e6);
  const v1::Model qwen = Read("Qwen3MoeForCausalLM", R"("num_key_value_heads": 2,
      "num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 48,
      "decoder_sparse_step": 2, "mlp_only_layers": [1])");
  // Layers 0 and 2 are dense by the step, 1 by name.
  REQUIRE(qwen.kinds_size() == 2);
  CHECK(KindsOfLayers(qwen) == std::vector<int>{0, 0, 0, 1});
  CHECK_FALSE(qwen.kinds(0).ffn().has_experts());
  CHECK(qwen.kinds(0).ffn().width() == 96);
  const v1::Experts& experts = qwen.kinds(1).ffn().experts();
  CHECK(experts.count() == 8);
  CHECK(Read("Qwen3MoeForCausalLM", R"("num_key_value_heads": 2, "num_local_experts": 16)")
            .kinds(0)
            .ffn()
            .experts()
            .count() == 16);
  CHECK(experts.width() == 48);
  CHECK_FALSE(experts.renormalise());
  CHECK_THAT(ErrorWith(R"("num_key_value_heads": 2, "num_experts": 4, "num_experts_per_tok": 5)",
                       "Qwen3MoeForCausalLM"),
             Contains("num_experts_per_tok (5) is above"));
  for (const char* key : {"n_shared_experts", "shared_expert_intermediate_size"}) {
    CHECK_THAT(
        ErrorWith(std::string(R"("num_key_value_heads": 2, "num_experts": 4, ")") + key + R"(": 1)",
                  "Qwen3MoeForCausalLM"),
        Contains(std::string(key) + " shared experts are not supported"));
  }
}

TEST_CASE("qwen2-moe: a shared expert with a gate, windows on every other layer") {
  const v1::Model model = Read("Qwen2MoeForCausalLM", R"("num_key_value_heads": 2,
      "num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 48,
      "shared_expert_intermediate_size": 40, "mlp_only_layers": [3], "use_sliding_window": true,
      "sliding_window": 16, "max_window_layers": 2)");
  CHECK(Windows(model) == std::vector<int64_t>{16, 0, 0, 0});
  const v1::Ffn& routed = KindOf(model, 1).ffn();
  CHECK(routed.width() == 40);
  CHECK(routed.shared_gate());
  CHECK(routed.experts().count() == 8);
  CHECK_FALSE(routed.experts().renormalise());
  CHECK(KindOf(model, 0).attention().qkv_bias());
  CHECK_FALSE(KindOf(model, 0).attention().output_bias());
  const v1::Ffn& dense = KindOf(model, 3).ffn();
  CHECK(dense.width() == 96);
  CHECK_FALSE(dense.has_experts());
  CHECK_FALSE(dense.shared_gate());
}

TEST_CASE("glm-4.5: scores by sigmoid, groups, a factor; dense layers before experts") {
  const std::string sizes = R"("num_key_value_heads": 2, "n_routed_experts": 8,
      "num_experts_per_tok": 3, "moe_intermediate_size": 48, "n_shared_experts": 2)";
  const v1::Model model = Read("Glm4MoeForCausalLM", sizes + R"(, "first_k_dense_replace": 3,
      "n_group": 4, "topk_group": 2, "routed_scaling_factor": 2.5, "use_qk_norm": true)");
  CHECK(KindsOfLayers(model) == std::vector<int>{0, 0, 0, 1});
  CHECK(model.kinds(0).ffn().width() == 96);
  const v1::Ffn& ffn = model.kinds(1).ffn();
  CHECK(ffn.width() == 96);  // two shared experts of 48
  CHECK_FALSE(ffn.shared_gate());
  const v1::Experts& experts = ffn.experts();
  CHECK(experts.score() == v1::EXPERT_SCORE_SIGMOID);
  CHECK(experts.correction_bias());
  CHECK(experts.renormalise());
  CHECK(experts.groups() == 4);
  CHECK(experts.groups_per_token() == 2);
  CHECK(experts.factor() == 2.5);
  CHECK(model.kinds(1).attention().qk_norm());
  CHECK(RopeOf(model).rotary_dim() == 8);
  CHECK_FALSE(RopeOf(model).neighbour_pairs());
  const auto error = [&](const std::string& extra) {
    return ErrorWith(sizes + extra, "Glm4MoeForCausalLM");
  };
  CHECK_THAT(error(R"(, "n_group": 3)"), Contains("n_group groups (3) must be at most 64 and cut"));
  CHECK_THAT(error(R"(, "n_group": 4, "topk_group": 1)"),
             Contains("groups_per_token (1) must be at most groups (4), and hold as many"));
  CHECK_THAT(error(R"(, "n_group": 65)"), Contains("n_group"));
}

TEST_CASE("ernie 4.5 with experts: which layers have them, and what is refused") {
  const std::string sizes = R"("num_key_value_heads": 2, "moe_num_experts": 8, "moe_k": 3,
      "moe_intermediate_size": 48, "moe_num_shared_experts": 2)";
  const v1::Model model = Read("Ernie4_5_MoeForCausalLM", sizes + R"(, "moe_layer_interval": 2,
      "moe_layer_start_index": 2)");
  CHECK(KindsOfLayers(model) == std::vector<int>{0, 0, 0, 1});
  const v1::Ffn& ffn = model.kinds(1).ffn();
  CHECK(ffn.width() == 96);
  CHECK(ffn.experts().per_token() == 3);
  CHECK(ffn.experts().score() == v1::EXPERT_SCORE_UNSPECIFIED);
  CHECK(ffn.experts().correction_bias());
  CHECK(RopeOf(model).neighbour_pairs());
  CHECK(LayerCount(Read("Ernie4_5_MoeForCausalLM", sizes + R"(, "moe_layer_end_index": 1)")) == 4);
  const v1::Model biases = Read("Ernie4_5_MoeForCausalLM", sizes + R"(, "use_bias": true)");
  CHECK((biases.head_bias() && !model.head_bias()));
  const v1::Attention& attention = biases.kinds(0).attention();
  CHECK((attention.qkv_bias() && attention.output_bias() && biases.kinds(0).ffn().bias()));
  const v1::Ffn& shared = biases.kinds(1).ffn();  // its bias is the shared expert's
  CHECK((shared.bias() && !shared.experts().biases()));
}

TEST_CASE("hunyuan with experts: lists of one number for each layer") {
  const std::string sizes = R"("num_key_value_heads": 2, "num_experts": 8)";
  const v1::Model model = Read("HunYuanMoEV1ForCausalLM", sizes + R"(, "moe_topk": [3, 3, 3, 3],
      "moe_intermediate_size": [96, 96, 96, 96])");
  const v1::Ffn& ffn = model.kinds(0).ffn();
  CHECK(ffn.experts().per_token() == 3);
  CHECK(ffn.experts().width() == 96);
  CHECK(ffn.width() == 96);  // the shared one
  CHECK(model.kinds(0).attention().qk_norm_after_rope());
  CHECK_THAT(ErrorWith(sizes + R"(, "moe_topk": [3, 2, 3, 3])", "HunYuanMoEV1ForCausalLM"),
             Contains("moe_topk differs from layer to layer"));
}

TEST_CASE("minimax m2: part of a head rotated, by either key; sigmoid with a correction") {
  const std::string sizes = R"("num_key_value_heads": 2, "head_dim": 16, "num_local_experts": 8,
      "num_experts_per_tok": 3)";
  const v1::Model model = Read("MiniMaxM2ForCausalLM", sizes + R"(, "rotary_dim": 8)");
  CHECK(RopeOf(model).rotary_dim() == 8);
  CHECK(RopeOf(model).theta() == 5e6);
  CHECK(model.kinds(0).attention().qk_norm_full_width());
  CHECK(model.kinds(0).ffn().experts().score() == v1::EXPERT_SCORE_SIGMOID);
  CHECK(model.kinds(0).ffn().experts().correction_bias());
  CHECK(model.kinds(0).ffn().experts().width() == 96);
  CHECK(RopeOf(Read("MiniMaxM2ForCausalLM", sizes)).rotary_dim() == 16);
}

TEST_CASE("olmoe: limits of q, k and v") {
  const std::string sizes = R"("num_key_value_heads": 4, "num_experts": 8)";
  CHECK(Read("OlmoeForCausalLM", sizes).kinds(0).ffn().experts().per_token() == 8);
  const auto limit = [&](const std::string& extra) {
    return Read("OlmoeForCausalLM", sizes + extra).kinds(0).attention().qkv_limit();
  };
  CHECK((limit("") == 0 && limit(R"(, "clip_qkv": null)") == 0));
  CHECK(limit(R"(, "clip_qkv": 8.0)") == 8);
  CHECK_THAT(ErrorWith(sizes + R"(, "clip_qkv": 0)", "OlmoeForCausalLM"), Contains("clip_qkv"));
}

TEST_CASE("gpt-oss: sinks, biases, a clamped gate, windows on every other layer") {
  const v1::Model model = Read("GptOssForCausalLM", R"("num_key_value_heads": 2, "head_dim": 16,
      "num_local_experts": 8, "num_experts_per_tok": 3, "sliding_window": 16,
      "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "truncate": false,
                       "original_max_position_embeddings": 8}, "rope_theta": 150000)");
  CHECK(Windows(model) == std::vector<int64_t>{16, 0, 16, 0});
  const v1::Attention& attention = model.kinds(0).attention();
  CHECK(attention.sinks());
  CHECK(attention.qkv_bias());
  CHECK(attention.output_bias());
  CHECK(attention.rope().ramp_not_truncated());
  const v1::Ffn& ffn = model.kinds(0).ffn();
  CHECK(ffn.width() == 0);
  CHECK(ffn.gate_limit() == 7);
  CHECK(ffn.gate_alpha() == 1.702);
  CHECK(ffn.experts().width() == 96);
  CHECK((ffn.experts().biases() && ffn.experts().router_bias()));
  CHECK(ffn.experts().renormalise());
  CHECK(Read("GptOssForCausalLM", R"("num_key_value_heads": 2, "swiglu_limit": 3.5,
      "rope_parameters": {"rope_type": "default"})")
            .kinds(0)
            .ffn()
            .gate_limit() == 3.5);
}

TEST_CASE("token ids: one or several") {
  CHECK(Read("LlamaForCausalLM", R"("eos_token_id": [2, 3])").eos_token_ids_size() == 2);
  CHECK(Read("LlamaForCausalLM", R"("eos_token_id": 7)").eos_token_ids(0) == 7);
}

TEST_CASE("impossible values name file and key") {
  CHECK_THAT(ErrorWith(R"("hidden_size": 0)"), Contains("folder/config.json: hidden_size"));
  CHECK_THAT(ErrorWith(R"("num_hidden_layers": -4)"), Contains("num_hidden_layers"));
  CHECK_THAT(ErrorWith(R"("vocab_size": 18446744073709551615)"), Contains("vocab_size"));
  CHECK_THAT(ErrorWith(R"("vocab_size": 99999999999)"), Contains("vocab_size"));
  CHECK_THAT(ErrorWith(R"("vocab_size": 1.5)"), Contains("vocab_size must be an integer"));
  CHECK_THAT(ErrorWith(R"("num_key_value_heads": 3)"),
             Contains("num_attention_heads (4) is not a multiple of num_key_value_heads (3)"));
  CHECK_THAT(ErrorWith(R"("num_attention_heads": 5)"), Contains("hidden_size (64)"));
  CHECK_THAT(ErrorWith(R"("hidden_act": "snake")"), Contains("hidden_act 'snake'"));
  CHECK_THAT(ErrorWith(R"("torch_dtype": "float8_e4m3fn")"), Contains("torch_dtype"));
  CHECK_THAT(ErrorWith(R"("eos_token_id": [1, "x"])"), Contains("eos_token_id"));
  CHECK_THAT(ErrorWith(R"("vocab_size": 100, "eos_token_id": [2, 100])"),
             Contains("folder/config.json: eos_token_id names the token 100") &&
                 Contains("the ids 0 to 99"));
  CHECK_THAT(ErrorWith(R"("tie_word_embeddings": "no")"), Contains("tie_word_embeddings"));
  CHECK_THAT(ErrorWith("", "BloomForCausalLM"),
             Contains("'BloomForCausalLM' is not supported; ") && Contains("; known are ") &&
                 Contains("MistralForCausalLM, MixtralForCausalLM"));
  CHECK_THAT(ErrorOf(R"({"architectures": ["LlamaForCausalLM"]})"),
             Contains("num_hidden_layers is missing"));
}

TEST_CASE("llama3's band between scaled and unscaled frequencies may be empty, not inverted") {
  const auto rope = [](const std::string& low) {
    return R"("rope_scaling": {"rope_type": "llama3", "factor": 8.0, "high_freq_factor": 1.0,
        "original_max_position_embeddings": 16, "low_freq_factor": )" +
           low + "}";
  };
  CHECK_THAT(ErrorWith(rope("2.0")), Contains("high_freq_factor must not be below"));
  const auto model = ParseModelConfig(Config("LlamaForCausalLM", rope("1.0")), "config.json");
  CHECK(model.status().message() == "");
}

TEST_CASE("a refused class names the nearest one, a wrapper the class of its text part") {
  const auto nearest = [](const std::string& name) {
    const std::string error = ErrorWith("", name);
    const std::string mark = "the nearest class by name is ";
    const size_t begin = error.find(mark);
    REQUIRE(begin != std::string::npos);
    return error.substr(begin + mark.size(), error.find(';', begin) - begin - mark.size());
  };
  CHECK(nearest("LLaMAForCausalLM") == "LlamaForCausalLM");
  CHECK(nearest("Llama5ForCausalLM") == "Llama4ForCausalLM");
  CHECK(nearest("Qwen2MoEForCausalLM") == "Qwen2MoeForCausalLM");
  CHECK(nearest("Qwen3XForCausalLM") == "Qwen3ForCausalLM");
  CHECK(nearest("LlamaModel") == "LlamaForCausalLM");
  CHECK(nearest("Qwen3ForSequenceClassification") == "Qwen3ForCausalLM");
  CHECK(nearest("MixtralForCausualLM") == "MixtralForCausalLM");
  CHECK(nearest("Qwen2VLForConditionalGeneration") == "Qwen2_5_VLForConditionalGeneration");
  CHECK_THAT(ErrorWith("", std::string(100000, 'x')), Contains("the nearest class by name is "));

  const auto wrapper = [](const std::string& text) {
    return ErrorWith(text, "LlavaForConditionalGeneration");
  };
  const std::string alone = ", which is supported alone";
  CHECK_THAT(wrapper(R"("text_config": {"model_type": "mistral"})"),
             Contains("'LlavaForConditionalGeneration' is not supported; it wraps a text model "
                      "(text_config) of the class MistralForCausalLM" +
                      alone));
  CHECK_THAT(wrapper(R"("text_config": {"architectures": ["LlamaForCausalLM"]})"),
             Contains("of the class LlamaForCausalLM" + alone));
  CHECK_THAT(wrapper(R"("llm_config": {"model_type": "qwen3_moe_text"})"),
             Contains("(llm_config) of the class Qwen3MoeForCausalLM" + alone));
  CHECK_THAT(wrapper(R"("text_config": {"model_type": "bloom_text"})"),
             Contains("(text_config) 'bloom_text', which is not supported either"));
  CHECK_THAT(wrapper(R"("text_config": {})"), Contains("the nearest class by name is"));
  CHECK_THAT(wrapper(R"("text_config": [1])"), Contains("the nearest class by name is"));
}

TEST_CASE("documents that are no configuration") {
  CHECK_THAT(ErrorOf("{\"a\": "), Contains("not valid JSON"));
  CHECK_THAT(ErrorOf("[]"), Contains("top level must be an object"));
  CHECK_THAT(ErrorOf("{}"), Contains("architectures"));
  CHECK_THAT(ErrorOf("{\"a\": \"\xff\xfe\"}"), Contains("not valid JSON"));
  CHECK_THAT(ErrorOf(std::string(100000, '[')), Contains("nested 100000 deep"));
  CHECK_THAT(ErrorOf(std::string(kMaxJsonBytes + 1, ' ')), Contains("at most"));
  CHECK_THAT(ErrorOf(R"({"a": 1e999})"), Contains("not valid JSON"));
}

TEST_CASE("large configurations end in bounded time, in layers or in an error that names the key") {
  const auto begin = std::chrono::steady_clock::now();
  std::string types = R"("layer_types": ["linear_attention")";
  for (int i = 1; i < 10'000; ++i)
    types += i % 4 == 3 ? R"(,"full_attention")" : R"(,"linear_attention")";
  const std::string many = R"("num_hidden_layers": 10000)";
  for (const char* family : {"LlamaForCausalLM", "Gemma3ForCausalLM", "DeepseekV3ForCausalLM"}) {
    INFO(family);
    CHECK(LayerCount(Read(family, many)) == 10'000);
  }
  const v1::Model hybrid = Read("Qwen3_5ForCausalLM", many + "," + types + "]");
  CHECK(LayerCount(hybrid) == 10'000);
  CHECK(hybrid.kinds_size() == 2);
  CHECK_THAT(ErrorWith(R"("num_hidden_layers": 10001)"),
             Contains("folder/config.json: num_hidden_layers"));
  const std::string padding(10'000'000, 'x');
  CHECK_THAT(ErrorWith("\"name\": \"" + padding + "\""), Contains("at most"));
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20));
}

}  // namespace tessera
