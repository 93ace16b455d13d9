// What single families read of a config.json: multipliers, caps, norms, rotations by layer type,
// and the text part of what takes images.
#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "proto/layers/layers.h"
#include "proto/model/model_config.h"

namespace tessera {
namespace {

constexpr const char* kSizes = R"("hidden_size": 64, "num_hidden_layers": 4,
    "num_attention_heads": 4, "vocab_size": 128, "intermediate_size": 96,
    "max_position_embeddings": 32)";

std::string Config(const std::string& architecture, const std::string& extra,
                   const std::string& sizes = kSizes) {
  return R"({"architectures": [")" + architecture + R"("], )" + sizes +
         (extra.empty() ? "" : ", " + extra) + "}";
}

v1::Model ReadText(const std::string& text) {
  const auto model = ParseModelConfig(text, "config.json");
  INFO(model.status().ToString());
  REQUIRE(model.ok());
  return *model;
}
v1::Model Read(const std::string& architecture, const std::string& extra = "") {
  return ReadText(Config(architecture, extra));
}

std::string ErrorOf(const std::string& text) {
  const auto model = ParseModelConfig(text, "config.json");
  REQUIRE_FALSE(model.ok());
  return std::string(model.status().message());
}

using Catch::Contains;

}  // namespace

TEST_CASE("gemma: the embedding's factor is rounded to the stored type") {
  const std::string wide =
      R"("hidden_size": 3072, "num_hidden_layers": 4, "intermediate_size": 96)";
  const auto scale_of = [&](const std::string& dtype) {
    return ReadText(Config("GemmaForCausalLM", R"("dtype": ")" + dtype + "\"", wide))
        .embedding_scale();
  };
  CHECK(scale_of("bfloat16") == 55.5);
  CHECK(scale_of("float16") == 55.4375);
  CHECK(scale_of("float32") == static_cast<double>(std::sqrt(3072.0F)));
  const v1::Model model =
      Read("GemmaForCausalLM", R"("hidden_act": "gelu", "num_key_value_heads": 1)");
  CHECK(model.kinds(0).ffn().activation() == v1::ACTIVATION_KIND_GELU_TANH);
  CHECK(model.kinds(0).attention().head_dim() == 256);
  CHECK(model.tied_embeddings());
  CHECK_THAT(ErrorOf(Config("GemmaForCausalLM",
                            R"("use_bidirectional_attention": true, "num_key_value_heads": 4)")),
             Contains("use_bidirectional_attention"));
}

TEST_CASE("gemma2: caps of scores and logits, null is none, every other layer has the window") {
  const v1::Model model = Read("Gemma2ForCausalLM", R"("query_pre_attn_scalar": 144)");
  CHECK(model.logits_soft_cap() == 30);
  CHECK(model.kinds(0).attention().soft_cap() == 50);
  CHECK(model.kinds(0).attention().scale() == 1.0 / 12);
  CHECK(model.kinds(0).norm_place() == v1::NORM_PLACE_BOTH);
  CHECK(KindOf(model, 0).attention().window() == 4096);
  CHECK(KindOf(model, 1).attention().window() == 0);
  const v1::Model plain = Read("Gemma2ForCausalLM", R"("attn_logit_softcapping": null,
      "final_logit_softcapping": null, "sliding_window": null)");
  CHECK(plain.logits_soft_cap() == 0);
  CHECK(plain.kinds(0).attention().soft_cap() == 0);
  CHECK(plain.kinds_size() == 1);
}

TEST_CASE("gemma3: a rotation for layers with a window, another one for the others") {
  const std::string old_form = R"("rope_theta": 1000000, "rope_local_base_freq": 10000,
      "rope_scaling": {"rope_type": "linear", "factor": 8.0}, "sliding_window": 16,
      "sliding_window_pattern": 2)";
  const std::string new_form = R"("rope_parameters": {
      "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
      "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}},
      "sliding_window": 16, "layer_types": ["sliding_attention", "full_attention",
      "sliding_attention", "full_attention"])";
  const v1::Model model = Read("Gemma3ForCausalLM", old_form);
  CHECK(model.SerializeAsString() == Read("Gemma3ForCausalLM", new_form).SerializeAsString());
  CHECK(model.max_positions() == 32);  // names the stretched length
  const v1::Attention& windowed = KindOf(model, 0).attention();
  const v1::Attention& full = KindOf(model, 1).attention();
  CHECK(windowed.window() == 16);
  CHECK(windowed.rope().theta() == 10000);
  CHECK(windowed.rope().scaling() == v1::ROPE_SCALING_KIND_UNSPECIFIED);
  CHECK(full.window() == 0);
  CHECK(full.rope().theta() == 1000000);
  CHECK(full.rope().factor() == 8);
  CHECK_THAT(ErrorOf(Config("Gemma3ForCausalLM", R"("attn_logit_softcapping": 50.0)")),
             Contains("attn_logit_softcapping"));
  CHECK(model.logits_soft_cap() == 0);
  CHECK(Read("Gemma3ForCausalLM", R"("final_logit_softcapping": 30.0)").logits_soft_cap() == 30);
  CHECK_THAT(ErrorOf(Config("Gemma3ForCausalLM", R"("rope_parameters": {"rope_theta": 1e6})")),
             Contains("rope_parameters.full_attention is missing"));
}

TEST_CASE("a wrapper's text part is read, with the defaults of its class") {
  const std::string text = R"("hidden_size": 2560, "intermediate_size": 10240,
      "num_hidden_layers": 34, "model_type": "gemma3_text", "sliding_window": 1024,
      "rope_scaling": {"rope_type": "linear", "factor": 8.0})";
  const std::string outer = R"({"architectures": ["Gemma3ForConditionalGeneration"],
      "eos_token_id": [1, 106], "torch_dtype": "bfloat16", "vision_config": {"hidden_size": 8},
      "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 32,
      "version": "gemm", "zero_point": true}, "text_config": {)";
  const v1::Model model = ReadText(outer + text + "}}");
  CHECK(LayerCount(model) == 34);
  CHECK(model.vocabulary() == 262208);
  CHECK(model.max_positions() == 131072);
  CHECK(model.dtype() == v1::DATA_TYPE_BFLOAT16);
  CHECK(model.embedding_scale() == 50.5);
  CHECK(model.tied_embeddings());
  CHECK(model.eos_token_ids_size() == 2);
  CHECK(model.quantization().group_size() == 32);
  const v1::Attention& first = KindOf(model, 0).attention();
  CHECK(first.heads() == 8);
  CHECK(first.kv_heads() == 4);
  CHECK(first.head_dim() == 256);
  CHECK(first.scale() == 1.0 / 16);
  CHECK(first.window() == 1024);
  CHECK(KindOf(model, 5).attention().window() == 0);
  CHECK(KindOf(model, 5).attention().rope().factor() == 8);
  CHECK_THAT(ErrorOf(outer + R"("hidden_size": 0}})"), Contains("text_config.num_hidden_layers"));
  CHECK_THAT(ErrorOf(outer + text + R"(, "final_logit_softcapping": 30.0}})"),
             Contains("text_config.final_logit_softcapping is not supported here"));
  CHECK_THAT(ErrorOf(R"({"architectures": ["Gemma3ForConditionalGeneration"]})"),
             Contains("text_config must be an object"));
}

TEST_CASE("mistral3: a text part of Mistral or of Ministral, tied where the wrapper says so") {
  const auto wrapped = [](const std::string& text, const std::string& outer = "") {
    return R"({"architectures": ["Mistral3ForConditionalGeneration"], )" + outer +
           R"("text_config": {)" + std::string(kSizes) + R"(, "num_key_value_heads": 2, )" + text +
           "}}";
  };
  const v1::Model mistral = ReadText(wrapped(R"("model_type": "mistral", "sliding_window": null,
      "rope_theta": 1e9)"));
  CHECK(mistral.kinds(0).attention().window() == 0);
  CHECK(mistral.kinds(0).attention().head_dim() == 128);
  CHECK(mistral.kinds(0).attention().query_gain() == 0);
  CHECK_FALSE(mistral.tied_embeddings());
  const std::string ministral = R"("model_type": "ministral3", "rope_parameters": {
      "rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 16384,
      "rope_theta": 1e6, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1},
      "tie_word_embeddings": false)";
  const v1::Model model = ReadText(wrapped(ministral, R"("tie_word_embeddings": true, )"));
  CHECK(model.tied_embeddings());
  const v1::Attention& attention = model.kinds(0).attention();
  CHECK(attention.query_gain() == 0.1);
  CHECK(attention.query_gain_period() == 16384);
  CHECK(attention.rope().scaling() == v1::ROPE_SCALING_KIND_YARN);
  CHECK_FALSE(ReadText(wrapped(ministral)).tied_embeddings());
  CHECK_THAT(ErrorOf(wrapped(R"("model_type": "llama")")), Contains("text_config.model_type"));
  CHECK_THAT(ErrorOf(wrapped(R"("model_type": "mistral")")), Contains("sliding_window"));
  // transformers has a yarn of its own for what says nothing of rotation.
  CHECK_THAT(ErrorOf(wrapped(R"("model_type": "ministral3", "rope_scaling": null)")),
             Contains("rope_parameters is missing"));
  CHECK_THAT(ErrorOf(Config("GptOssForCausalLM", R"("num_key_value_heads": 2)")),
             Contains("rope_parameters is missing"));
}

TEST_CASE("qwen2.5-vl: the text part, in text_config or beside the towers as published") {
  const std::string outer = R"({"architectures": ["Qwen2_5_VLForConditionalGeneration"], )";
  const std::string text = std::string(kSizes) + R"(, "num_key_value_heads": 2,
      "use_sliding_window": false, "sliding_window": 32768, "max_window_layers": 28,
      "rope_theta": 1000000.0, "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]})";
  const std::string towers = R"("vision_config": {"depth": 32}, "vision_start_token_id": 3)";
  std::vector<std::string> notes;
  const auto beside = ParseModelConfig(outer + text + ", " + towers + "}", "config.json", &notes);
  INFO(beside.status().ToString());
  REQUIRE(beside.ok());
  CHECK(notes.empty());
  const v1::Attention& attention = beside->kinds(0).attention();
  CHECK(attention.qkv_bias());
  CHECK_FALSE(attention.output_bias());
  CHECK(attention.window() == 0);
  CHECK(attention.rope().theta() == 1e6);
  const v1::Model inside = ReadText(outer + towers + R"(, "text_config": {)" + text + "}}");
  CHECK(inside.SerializeAsString() == beside->SerializeAsString());
}

constexpr const char* kGemma4 = "Gemma4ForCausalLM";

TEST_CASE("gemma 4: heads of two sizes, values that are keys, rotations by type of layer") {
  const v1::Model model = Read(kGemma4, R"("hidden_size_per_layer_input": 0,
      "attention_k_eq_v": true, "num_global_key_value_heads": 1, "sliding_window": 8,
      "layer_types": ["full_attention", "sliding_attention", "sliding_attention",
                      "sliding_attention"], "final_logit_softcapping": 30.0)");
  CHECK(model.logits_soft_cap() == 30);
  CHECK(model.embedding_scale() == 8);
  CHECK(model.per_layer_width() == 0);
  CHECK(model.tied_embeddings());
  const v1::Attention& window = KindOf(model, 1).attention();
  CHECK(window.head_dim() == 256);
  CHECK(window.kv_heads() == 4);
  CHECK(window.window() == 8);
  CHECK_FALSE(window.values_are_keys());
  CHECK(window.rope().theta() == 1e4);
  CHECK(window.rope().rotary_dim() == 256);
  // The last layer has no window, whatever the file says.
  for (const int64_t layer : {0, 3}) {
    const v1::Attention& full = KindOf(model, layer).attention();
    CHECK(full.head_dim() == 512);
    CHECK(full.kv_heads() == 1);
    CHECK(full.window() == 0);
    CHECK(full.values_are_keys());
    CHECK(full.value_norm());
    CHECK(full.scale() == 1);
    CHECK(full.rope().scaling() == v1::ROPE_SCALING_KIND_PROPORTIONAL);
    CHECK(full.rope().theta() == 1e6);
    CHECK(full.rope().rotary_dim() == 512);
    CHECK(full.rope().turning_pairs() == 64);
  }
  CHECK(KindOf(model, 1).output_scale());
  // Every sixth layer where the file does not say; fewer kv heads only where values are keys.
  const v1::Model plain =
      Read(kGemma4, R"("hidden_size_per_layer_input": 0, "num_global_key_value_heads": 1)");
  CHECK(KindOf(plain, 2).attention().window() == 512);
  CHECK(KindOf(plain, 3).attention().kv_heads() == 4);
}

TEST_CASE("gemma 4: heads as transformers 5 writes them, and what it cannot say") {
  const std::string by_layer = R"("hidden_size_per_layer_input": 0, "attention_k_eq_v": true,
      "per_layer_config": {"3": {"head_dim": 64, "num_key_value_heads": 2}}})";
  const auto config = [&](const std::string& text) { return Config(kGemma4, text); };
  const v1::Model model = ReadText(config(by_layer.substr(0, by_layer.size() - 1)));
  CHECK(KindOf(model, 3).attention().head_dim() == 64);
  CHECK(KindOf(model, 3).attention().kv_heads() == 2);
  CHECK(KindOf(model, 3).attention().rope().turning_pairs() == 8);
  const std::string none = R"("hidden_size_per_layer_input": 0, )";
  CHECK_THAT(ErrorOf(config(none + R"("per_layer_config": {"2": {"head_dim": 64}})")),
             Contains("per_layer_config must say the same of all layers without a window"));
  CHECK_THAT(ErrorOf(config(none + R"("per_layer_config": {"3": 7})")),
             Contains("per_layer_config must be an object of objects"));
  CHECK_THAT(ErrorOf(config(none + R"("attention_k_eq_v": true,
                                      "num_global_key_value_heads": 3)")),
             Contains("num_global_key_value_heads (3) does not divide"));
  CHECK_THAT(ErrorOf(config(none + R"("use_bidirectional_attention": "all")")),
             Contains("use_bidirectional_attention"));
}

TEST_CASE("gemma 4 26B: experts beside a dense ffn, each between norms of its own") {
  const v1::Model model = Read(kGemma4, R"("hidden_size_per_layer_input": 0,
      "enable_moe_block": true, "num_experts": 128, "top_k_experts": 8,
      "moe_intermediate_size": 48)");
  const v1::Ffn& ffn = model.kinds(0).ffn();
  CHECK(ffn.width() == 96);
  CHECK(ffn.normed_apart());
  CHECK(ffn.activation() == v1::ACTIVATION_KIND_GELU_TANH);
  CHECK(ffn.experts().count() == 128);
  CHECK(ffn.experts().per_token() == 8);
  CHECK(ffn.experts().width() == 48);
  CHECK(ffn.experts().renormalise());
  CHECK(ffn.experts().expert_scales());
  CHECK_THAT(ErrorOf(Config(kGemma4, R"("enable_moe_block": true)")), Contains("num_experts"));
}

TEST_CASE("gemma 4 E2B: layers that borrow keys and values, and embeddings of each layer") {
  const v1::Model model = Read(kGemma4, R"("vocab_size_per_layer_input": 128,
      "num_kv_shared_layers": 2, "use_double_wide_mlp": true, "layer_types": [
      "sliding_attention", "full_attention", "sliding_attention", "full_attention"])");
  CHECK(model.per_layer_width() == 256);
  CHECK(model.per_layer_scale() == 16);
  CHECK(NeedsOneStage(model));
  CHECK_FALSE(KindOf(model, 1).attention().borrows_kv());
  CHECK(KindOf(model, 2).attention().borrows_kv());
  CHECK(KindOf(model, 1).ffn().width() == 96);
  CHECK(KindOf(model, 3).ffn().width() == 192);
  CHECK(KvLayerOf(model, 1) == 1);
  CHECK(KvLayerOf(model, 2) == 0);
  CHECK(KvLayerOf(model, 3) == 1);
  CHECK_THAT(ErrorOf(Config(kGemma4, "")), Contains("vocab_size_per_layer_input (262144)"));
  CHECK_THAT(ErrorOf(Config(kGemma4, R"("hidden_size_per_layer_input": 0,
      "num_kv_shared_layers": 1)")),
             Contains("layer 3 has no keys and values of its own"));
}

TEST_CASE("llama 4: chunks where layers are rotated, queries that grow elsewhere, experts") {
  const std::string sizes = R"("num_key_value_heads": 2, "head_dim": 16,
      "interleave_moe_layer_step": 2, "num_local_experts": 8, "intermediate_size_mlp": 80)";
  const v1::Model model = Read("Llama4ForCausalLM", sizes);
  const v1::LayerKind &dense = KindOf(model, 0), &routed = KindOf(model, 3);
  CHECK(dense.attention().window() == 8192);
  CHECK(dense.attention().chunked());
  CHECK(dense.attention().rope().neighbour_pairs());
  CHECK(dense.attention().qk_norm_without_weights());
  CHECK(dense.attention().qk_norm_after_rope());
  CHECK(dense.attention().query_gain() == 0);
  CHECK(dense.ffn().width() == 80);
  CHECK(dense.ffn().experts().count() == 0);
  CHECK(routed.attention().window() == 0);
  CHECK_FALSE(routed.attention().has_rope());
  CHECK_FALSE(routed.attention().qk_norm());
  CHECK(routed.attention().query_gain() == 0.1);
  CHECK(routed.attention().query_gain_period() == 8192);
  CHECK(routed.attention().query_gain_offset() == 1);
  CHECK(routed.ffn().width() == 96);  // of the shared expert
  CHECK(routed.ffn().experts().scales_input());
  CHECK(routed.ffn().experts().score() == v1::EXPERT_SCORE_SIGMOID);

  // As the first published files write it.
  const v1::Model first = Read("Llama4ForCausalLM", sizes + R"(, "attn_temperature_tuning": 4)");
  CHECK(first.SerializeAsString() == model.SerializeAsString());

  const v1::Model listed = Read("Llama4ForCausalLM", sizes + R"(, "moe_layers": [0],
      "no_rope_layers": [0, 1, 1, 1], "attention_chunk_size": null, "use_qk_norm": false,
      "attn_temperature_tuning": false)");
  CHECK(KindOf(listed, 0).ffn().experts().count() == 8);
  CHECK(KindOf(listed, 1).ffn().experts().count() == 0);
  CHECK_FALSE(KindOf(listed, 0).attention().has_rope());
  CHECK(KindOf(listed, 0).attention().query_gain() == 0);
  CHECK(KindOf(listed, 1).attention().window() == 0);
  CHECK_FALSE(KindOf(listed, 1).attention().qk_norm());
  const auto error = [&](const std::string& more) {
    return ErrorOf(Config("Llama4ForCausalLM", sizes + ", " + more));
  };
  CHECK_THAT(error(R"("num_experts_per_tok": 2)"), Contains("num_experts_per_tok other than 1"));
  CHECK_THAT(error(R"("no_rope_layers": [1])"), Contains("no_rope_layers names fewer layers"));
  CHECK_THAT(error(R"("layer_types": ["full_attention", "full_attention", "full_attention",
                                      "full_attention"])"),
             Contains("layer_types must be chunked_attention where layers are rotated"));
}

TEST_CASE(
    "phi-3.5-moe: its class has two names; the sparse mixer, biases, one factor of longrope") {
  const auto text = [](const std::string& class_name, const std::string& more) {
    return Config(class_name, R"("num_key_value_heads": 2, "attention_bias": true,
        "lm_head_bias": true, "input_jitter_noise": 0.01, "router_jitter_noise": 0.02)" +
                                  more);
  };
  const v1::Model model = ReadText(text("PhiMoEForCausalLM", ""));
  CHECK(model.SerializeAsString() == ReadText(text("PhimoeForCausalLM", "")).SerializeAsString());
  CHECK(model.architecture() == "PhimoeForCausalLM");
  CHECK(model.head_bias());
  CHECK(model.norm() == v1::NORM_KIND_LAYER);
  CHECK(model.kinds(0).attention().output_bias());
  const v1::Experts& experts = model.kinds(0).ffn().experts();
  CHECK(experts.score() == v1::EXPERT_SCORE_SPARSE_MIXER);
  CHECK(experts.jitter() == 0.02);
  CHECK(experts.count() == 16);
  const auto longrope = [](const std::string& of_long) {
    return R"(, "rope_scaling": {"type": "longrope", "original_max_position_embeddings": 16,
        "short_factor": [1, 1, 1, 1, 1, 1, 1, 1], "long_factor": [2, 2, 2, 2, 2, 2, 2, 2],
        "short_mscale": 1.243, "long_mscale": )" +
           of_long + "}";
  };
  const v1::Model scaled = ReadText(text("PhiMoEForCausalLM", longrope("1.243")));
  CHECK(scaled.kinds(0).attention().rope().attention_factor() == 1.243);
  CHECK_THAT(ErrorOf(text("PhiMoEForCausalLM", longrope("1.3"))), Contains("long_mscale"));
  CHECK_THAT(ErrorOf(text("PhiMoEForCausalLM", R"(, "num_experts_per_tok": 1)")),
             Contains("num_experts_per_tok other than 2"));
}

TEST_CASE("granite multiplies embeddings, scores and blocks, and divides logits") {
  const v1::Model model = Read("GraniteForCausalLM", R"("embedding_multiplier": 12.0,
      "attention_multiplier": 0.015625, "residual_multiplier": 0.22, "logits_scaling": 8.0)");
  CHECK(model.embedding_scale() == 12);
  CHECK(model.kinds(0).attention().scale() == 0.015625);
  CHECK(model.residual_scale() == 0.22);
  CHECK(model.logits_scale() == 0.125);
}

TEST_CASE("cohere: scaled logits, one norm without bias, q and k normed head by head") {
  const v1::Model model = Read("CohereForCausalLM", R"("use_qk_norm": true, "logit_scale": 0.5)");
  CHECK(model.logits_scale() == 0.5);
  CHECK(model.norm() == v1::NORM_KIND_LAYER_WITHOUT_BIAS);
  CHECK(model.kinds(0).parallel());
  CHECK(model.kinds(0).shared_norm());
  CHECK(model.kinds(0).attention().qk_norm_by_head());
  CHECK(model.kinds(0).attention().rope().neighbour_pairs());
  const v1::Model two = Read("Cohere2ForCausalLM");
  CHECK(KindOf(two, 0).attention().window() == 4096);
  CHECK(KindOf(two, 0).attention().has_rope());
  CHECK(KindOf(two, 3).attention().window() == 0);
  CHECK_FALSE(KindOf(two, 3).attention().has_rope());
}

TEST_CASE("olmo: norms over the full width; the scaled rotation is that of layers without window") {
  CHECK(Read("Olmo2ForCausalLM").kinds(0).attention().qk_norm_full_width());
  const v1::Model three = Read("Olmo3ForCausalLM", R"("rope_theta": 500000, "rope_scaling": {
      "rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 8192})");
  CHECK(KindOf(three, 0).attention().window() == 4096);
  CHECK(KindOf(three, 0).attention().rope().scaling() == v1::ROPE_SCALING_KIND_UNSPECIFIED);
  CHECK(KindOf(three, 3).attention().rope().scaling() == v1::ROPE_SCALING_KIND_YARN);
  CHECK_THAT(ErrorOf(Config("Olmo3ForCausalLM", R"("rope_theta": 10000)")),
             Contains("rope_theta other than 500000 is not supported at the top level"));
}

TEST_CASE("rope: an original length at the top level wins, where all layers have one rotation") {
  const v1::Model llama3 = Read("LlamaForCausalLM", R"("original_max_position_embeddings": 8,
      "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
      "high_freq_factor": 4.0, "original_max_position_embeddings": 16})");
  CHECK(KindOf(llama3, 0).attention().rope().original_max_positions() == 8);
  const v1::Model olmo = Read("Olmo3ForCausalLM", R"("original_max_position_embeddings": 8,
      "rope_scaling": {"rope_type": "yarn", "factor": 2.0,
      "original_max_position_embeddings": 16})");
  int scaled = 0;
  for (const v1::LayerKind& kind : olmo.kinds()) {
    const v1::Rope& rope = kind.attention().rope();
    if (rope.scaling() != v1::ROPE_SCALING_KIND_YARN) continue;
    ++scaled;
    CHECK(rope.original_max_positions() == 16);
  }
  CHECK(scaled == 1);
  const v1::Model gain = Read("Ministral3ForCausalLM", R"("num_key_value_heads": 2,
      "original_max_position_embeddings": 8,
      "rope_parameters": {"rope_type": "yarn", "factor": 2.0, "rope_theta": 1e6,
      "llama_4_scaling_beta": 0.1, "original_max_position_embeddings": 16})");
  CHECK(gain.kinds(0).attention().query_gain_period() == 8);
}

TEST_CASE("hunyuan: a fixed alpha stretches the base, whatever the lengths") {
  const v1::Model model = Read("HunYuanDenseV1ForCausalLM", R"("head_dim": 16, "rope_theta": 10000,
      "rope_scaling": {"type": "dynamic", "alpha": 1000.0, "factor": 1.0})");
  const v1::Attention& attention = model.kinds(0).attention();
  CHECK(attention.qk_norm_after_rope());
  CHECK(attention.rope().scaling() == v1::ROPE_SCALING_KIND_UNSPECIFIED);
  CHECK(attention.rope().theta() == Approx(10000 * std::pow(1000.0, 16.0 / 14)));
  CHECK(attention.rope().rotary_dim() == 16);
  CHECK(model.max_positions() == 32);
}

TEST_CASE(
    "experts of 2025 and 2026: which layers have them and windows, and which keys must hold") {
  const std::string sizes = R"("num_key_value_heads": 2, "head_dim": 16, "num_experts_per_tok": 2,
      "moe_intermediate_size": 8, )";
  const v1::Model dots = Read("Dots1ForCausalLM", sizes + R"("n_routed_experts": 4,
      "n_shared_experts": 2, "sliding_window": 8, "max_window_layers": 2,
      "first_k_dense_replace": 1)");
  CHECK_FALSE(KindOf(dots, 0).ffn().has_experts());
  CHECK(KindOf(dots, 1).ffn().width() == 16);
  CHECK(KindOf(dots, 1).attention().window() == 0);
  CHECK(KindOf(dots, 2).attention().window() == 8);
  CHECK_FALSE(KindOf(dots, 2).ffn().experts().renormalise());
  const v1::Model exaone = Read("ExaoneMoEForCausalLM", sizes + R"("num_experts": 4,
      "sliding_window": 8, "sliding_window_pattern": "LG")");
  CHECK(KindOf(exaone, 0).norm_place() == v1::NORM_PLACE_UNSPECIFIED);
  CHECK(KindOf(exaone, 2).attention().window() == 8);
  CHECK(KindOf(exaone, 2).attention().has_rope());
  CHECK(KindOf(exaone, 3).attention().window() == 0);
  CHECK_FALSE(KindOf(exaone, 3).attention().has_rope());
  CHECK(KindOf(exaone, 3).ffn().experts().factor() == 2.5);
  const auto error = [&](const std::string& architecture, const std::string& extra) {
    return ErrorOf(Config(architecture, sizes + extra));
  };
  CHECK_THAT(error("HYV3ForCausalLM", R"("num_experts": 4, "route_norm": false)"),
             Contains("route_norm false is not supported"));
  CHECK_THAT(error("SolarOpenForCausalLM", R"("first_k_dense_replace": 1)"),
             Contains("first_k_dense_replace"));
  CHECK_THAT(error("MellumForCausalLM", R"("rope_theta": 1000000)"),
             Contains("rope_theta is not read by transformers for this class"));
}

TEST_CASE("nemotron: squared ReLU, half of each head rotated, layer norms with bias") {
  const v1::Model model = Read("NemotronForCausalLM");
  CHECK(model.kinds(0).ffn().activation() == v1::ACTIVATION_KIND_RELU2);
  CHECK_FALSE(model.kinds(0).ffn().gated());
  CHECK(model.kinds(0).attention().rope().rotary_dim() == 8);
  CHECK(model.norm() == v1::NORM_KIND_LAYER);
}

// The text part of Qwen3.6-27B, as published.
constexpr const char* kQwen36 = R"({"architectures": ["Qwen3_5ForConditionalGeneration"],
    "model_type": "qwen3_5", "tie_word_embeddings": false, "vision_config": {}, "text_config": {
    "attention_bias": false, "attention_dropout": 0.0, "attn_output_gate": true,
    "dtype": "bfloat16", "eos_token_id": 248044, "full_attention_interval": 4, "head_dim": 256,
    "hidden_act": "silu", "hidden_size": 5120, "initializer_range": 0.02,
    "intermediate_size": 17408, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
    "linear_num_key_heads": 16, "linear_num_value_heads": 48, "linear_value_head_dim": 128,
    "mamba_ssm_dtype": "float32", "max_position_embeddings": 262144, "model_type": "qwen3_5_text",
    "mtp_num_hidden_layers": 1, "mtp_use_dedicated_embeddings": false, "num_attention_heads": 24,
    "num_hidden_layers": 64, "num_key_value_heads": 4, "rms_norm_eps": 1e-06, "rope_parameters": {
    "mrope_interleaved": true, "mrope_section": [11, 11, 10], "partial_rotary_factor": 0.25,
    "rope_theta": 10000000, "rope_type": "default"}, "use_cache": true, "vocab_size": 248320}})";

TEST_CASE("qwen3.5: gated delta nets between gated attention, by interval or by list") {
  const v1::Model model = ReadText(kQwen36);
  REQUIRE(model.kinds_size() == 2);
  CHECK(LayerCount(model) == 64);
  const v1::GatedDelta& delta = KindOf(model, 0).delta();
  CHECK(delta.key_heads() == 16);
  CHECK(delta.value_heads() == 48);
  CHECK(delta.conv_taps() == 4);
  CHECK_FALSE(KindOf(model, 0).has_attention());
  CHECK(KindOf(model, 2).has_delta());
  const v1::Attention& attention = KindOf(model, 3).attention();
  CHECK_FALSE(KindOf(model, 3).has_delta());
  CHECK(attention.output_gate());
  CHECK(attention.qk_norm());
  CHECK(attention.rope().rotary_dim() == 64);
  CHECK(attention.rope().theta() == 1e7);
  REQUIRE(model.has_draft_head());
  CHECK(model.draft_head().kind() == KindIndexOf(model, 3));
  CHECK_FALSE(model.draft_head().used());

  const auto with = [](const std::string& from, const std::string& to) {
    std::string text = kQwen36;
    const size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    return text.replace(at, from.size(), to);
  };
  const v1::Model every_other =
      ReadText(with(R"("full_attention_interval": 4)", R"("full_attention_interval": 2)"));
  CHECK(KindOf(every_other, 1).has_attention());
  CHECK_FALSE(ReadText(with(R"("mtp_num_hidden_layers": 1)", R"("mtp_num_hidden_layers": 2)"))
                  .has_draft_head());
  CHECK_FALSE(ReadText(with(R"("mtp_use_dedicated_embeddings": false)",
                            R"("mtp_use_dedicated_embeddings": true)"))
                  .has_draft_head());
  CHECK_THAT(ErrorOf(with(R"("mamba_ssm_dtype": "float32")", R"("mamba_ssm_dtype": "bfloat16")")),
             Contains("mamba_ssm_dtype") && Contains("float32"));
  CHECK_THAT(ErrorOf(with(R"("hidden_act": "silu")", R"("hidden_act": "gelu")")),
             Contains("hidden_act") && Contains("gated delta nets"));
  CHECK_THAT(ErrorOf(with(R"("attn_output_gate": true)", R"("attn_output_gate": false)")),
             Contains("attn_output_gate"));
  CHECK_THAT(ErrorOf(with(R"("linear_num_value_heads": 48)", R"("linear_num_value_heads": 40)")),
             Contains("linear_num_value_heads") && Contains("(16)"));
  CHECK_THAT(ErrorOf(with(R"("linear_conv_kernel_dim": 4)", R"("linear_conv_kernel_dim": 9)")),
             Contains("linear_conv_kernel_dim"));
  CHECK_THAT(ErrorOf(with(R"("full_attention_interval": 4)",
                          R"("layer_types": ["linear_attention", "full_attention"])")),
             Contains("layer_types") && Contains("2 layers of 64"));
}

TEST_CASE("qwen3-next: experts beside a shared one in most layers, each with a gate") {
  const v1::Model model =
      ReadText(Config("Qwen3NextForCausalLM",
                      R"("num_experts": 8, "num_experts_per_tok": 2, "mlp_only_layers": [1])"));
  CHECK(KindOf(model, 0).has_delta());
  CHECK(KindOf(model, 0).ffn().experts().count() == 8);
  CHECK(KindOf(model, 0).ffn().experts().renormalise());
  CHECK(KindOf(model, 0).ffn().shared_gate());
  CHECK(KindOf(model, 0).ffn().width() == 512);
  CHECK_FALSE(KindOf(model, 1).ffn().has_experts());
  CHECK(KindOf(model, 1).ffn().width() == 96);
  CHECK(KindOf(model, 3).attention().output_gate());
}

TEST_CASE("every activation that transformers names but those with weights of their own") {
  for (const char* name : {"gelu",
                           "gelu_10",
                           "gelu_fast",
                           "gelu_new",
                           "gelu_python",
                           "gelu_pytorch_tanh",
                           "gelu_python_tanh",
                           "gelu_accurate",
                           "hardswish",
                           "laplace",
                           "leaky_relu",
                           "linear",
                           "mish",
                           "quick_gelu",
                           "relu",
                           "relu2",
                           "relu6",
                           "sigmoid",
                           "silu",
                           "sqrtsoftplus",
                           "swish",
                           "tanh"}) {
    CHECK(Read("LlamaForCausalLM", R"("hidden_act": ")" + std::string(name) + "\"")
              .kinds(0)
              .ffn()
              .activation() != v1::ACTIVATION_KIND_UNSPECIFIED);
  }
  for (const char* name : {"prelu", "xielu"}) {
    CHECK_THAT(ErrorOf(Config("LlamaForCausalLM", R"("hidden_act": ")" + std::string(name) + "\"")),
               Contains("hidden_act"));
  }
}

}  // namespace tessera
