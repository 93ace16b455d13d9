#include "proto/model_config.h"

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "third_party/absl/str_cat.h"

namespace tessera {
namespace {

// Far above any published model, and low enough that the bytes of one layer's KV or of one matrix
// do not overflow.
constexpr int64_t kMaxWidth = int64_t{1} << 22;
constexpr int64_t kMaxHeads = int64_t{1} << 12;
constexpr int64_t kMaxLayers = int64_t{1} << 12;
constexpr int64_t kMaxExperts = int64_t{1} << 12;
constexpr int64_t kMaxPositions = int64_t{1} << 30;
constexpr int64_t kMaxTokenId = INT32_MAX;

// What the family's configuration class in transformers assumes for absent keys, and what is fixed
// in its code. Adding a family: an entry here, one in proto/architectures.cc, and a reader
// for what is really new.
struct Family {
  std::string_view architecture;
  void (*read)(JsonReader&, const Family&, v1::Model*);
  double rope_theta = 10000.0;
  double norm_epsilon = 1e-6;
  int64_t kv_heads = 0;        // 0: as many as query heads
  int64_t head_dim = 0;        // 0: hidden_size / num_attention_heads
  int64_t max_positions = 0;   // 0: must be given
  int64_t sliding_window = 0;  // 0: none
  bool tied_embeddings = false;
};

v1::ActivationKind ReadActivation(JsonReader& config, const char* key, std::string_view fallback) {
  const std::string name = config.StringOr(key, fallback);
  if (name == "silu" || name == "swish") return v1::ACTIVATION_KIND_SILU;
  if (name == "relu") return v1::ACTIVATION_KIND_RELU;
  if (name == "gelu") return v1::ACTIVATION_KIND_GELU_ERF;
  if (name == "gelu_new" || name == "gelu_fast" || name == "gelu_pytorch_tanh") {
    return v1::ACTIVATION_KIND_GELU_TANH;
  }
  config.Fail(key, StrCat("'", name,
                          "' is not supported; known are silu, relu, gelu, gelu_new, "
                          "gelu_fast and gelu_pytorch_tanh"));
  return v1::ACTIVATION_KIND_UNSPECIFIED;
}

// What every family has, under the same keys.
void ReadShape(JsonReader& config, const Family& family, v1::Model* model) {
  model->set_layers(config.Integer("num_hidden_layers", 1, kMaxLayers));
  model->set_hidden(config.Integer("hidden_size", 1, kMaxWidth));
  model->set_heads(config.Integer("num_attention_heads", 1, kMaxHeads));
  model->set_vocabulary(config.Integer("vocab_size", 1, kMaxWidth));
  model->set_max_positions(
      family.max_positions == 0
          ? config.Integer("max_position_embeddings", 1, kMaxPositions)
          : config.IntegerOr("max_position_embeddings", family.max_positions, 1, kMaxPositions));
  model->set_tied_embeddings(config.BoolOr("tie_word_embeddings", family.tied_embeddings));
  model->set_embedding_width(model->hidden());
  model->set_dtype(ReadDataType(config, config.Has("dtype") ? "dtype" : "torch_dtype"));
  model->set_bos_token_id(config.IntegerOr("bos_token_id", -1, -1, kMaxTokenId));
  for (int64_t id : config.Integers("eos_token_id", 0, kMaxTokenId)) model->add_eos_token_ids(id);
  config.Adopt(CheckEosIds(*model, config.file()));
  ReadQuantization(config, model);
}

void ReadHeads(JsonReader& config, const Family& family, v1::Model* model) {
  const int64_t heads = model->heads();
  const int64_t kv_default = family.kv_heads == 0 ? heads : family.kv_heads;
  model->set_kv_heads(config.IntegerOr("num_key_value_heads", kv_default, 1, kMaxHeads));
  if (!config.ok()) return;
  if (heads % model->kv_heads() != 0) {
    config.Fail(
        "num_attention_heads",
        StrCat("(", heads, ") is not a multiple of num_key_value_heads (", model->kv_heads(), ")"));
  }
  if (config.Has("head_dim") || family.head_dim != 0) {
    model->set_head_dim(config.IntegerOr("head_dim", family.head_dim, 1, kMaxHeads));
  } else if (model->hidden() % heads != 0) {
    config.Fail("hidden_size",
                StrCat("(", model->hidden(), ") is not a multiple of num_attention_heads (", heads,
                       "), and head_dim is not given"));
  } else {
    model->set_head_dim(model->hidden() / heads);
  }
}

// Llama and its descendants: RMSNorm before each block, rotary positions, gated ffn.
void ReadLlama(JsonReader& config, const Family& family, v1::Model* model) {
  ReadHeads(config, family, model);
  model->set_ffn_width(config.Integer("intermediate_size", 1, kMaxWidth));
  model->set_gated_ffn(true);
  model->set_norm(v1::NORM_KIND_RMS);
  model->set_norm_epsilon(config.NumberOr("rms_norm_eps", family.norm_epsilon, 0.0, 1.0));
  model->set_activation(ReadActivation(config, "hidden_act", "silu"));
  const bool attention_bias = config.BoolOr("attention_bias", false);
  model->set_qkv_bias(attention_bias);
  model->set_output_bias(attention_bias);
  model->set_ffn_bias(config.BoolOr("mlp_bias", false));
  if (config.ok()) ReadRope(config, family.rope_theta, model);
}

void ReadMistral(JsonReader& config, const Family& family, v1::Model* model) {
  ReadLlama(config, family, model);
  // null is "none"; absent is the family's default.
  const bool given = config.HasKey("sliding_window");
  model->set_sliding_window(
      config.IntegerOr("sliding_window", given ? 0 : family.sliding_window, 1, kMaxPositions));
}

// layer_types names each layer's attention (transformers 5); before, layers from max_window_layers
// on had the window.
void ReadWindowLayers(JsonReader& config, v1::Model* model) {
  const std::vector<std::string> types = config.Strings("layer_types");
  if (types.empty()) {
    const int64_t first = config.IntegerOr("max_window_layers", 28, 0, kMaxLayers);
    for (int64_t i = first; i < model->layers(); ++i) model->add_sliding_window_layers(i);
    return;
  }
  if (static_cast<int64_t>(types.size()) != model->layers()) {
    config.Fail("layer_types",
                StrCat("names ", types.size(), " layers, num_hidden_layers ", model->layers()));
    return;
  }
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i] == "sliding_attention") {
      model->add_sliding_window_layers(static_cast<int32_t>(i));
    } else if (types[i] != "full_attention") {
      config.Fail("layer_types", StrCat("'", types[i],
                                        "' is not supported; known are "
                                        "full_attention and sliding_attention"));
    }
  }
}

void ReadQwenWindow(JsonReader& config, bool by_layer, v1::Model* model) {
  const int64_t window = config.IntegerOr("sliding_window", 0, 0, kMaxPositions);
  if (!config.BoolOr("use_sliding_window", false) || window == 0) return;
  model->set_sliding_window(window);
  if (!by_layer) return;
  ReadWindowLayers(config, model);
  if (model->sliding_window_layers().empty()) model->set_sliding_window(0);
  if (model->sliding_window_layers_size() == model->layers()) {
    model->clear_sliding_window_layers();  // empty means all
  }
}

void ReadQwen2(JsonReader& config, const Family& family, v1::Model* model) {
  ReadLlama(config, family, model);
  model->set_qkv_bias(true);
  model->set_output_bias(false);
  ReadQwenWindow(config, /*by_layer=*/true, model);
}

void ReadQwen3(JsonReader& config, const Family& family, v1::Model* model) {
  ReadLlama(config, family, model);
  model->set_qk_norm(true);
  ReadQwenWindow(config, /*by_layer=*/true, model);
}

// Experts that every token uses, which these architectures do not have: a shape that leaves them
// out would be too small.
void RefuseSharedExperts(JsonReader& config) {
  for (const char* key :
       {"n_shared_experts", "num_shared_experts", "shared_expert_intermediate_size",
        "moe_shared_expert_intermediate_size"}) {
    if (config.IntegerOr(key, 0, 0, kMaxWidth) > 0) {
      config.Fail(key, "shared experts are not supported: their weights would be left out");
    }
  }
}

void CheckExperts(JsonReader& config, const v1::Model& model) {
  RefuseSharedExperts(config);
  const v1::Experts& experts = model.experts();
  if (experts.per_token() > experts.count()) {
    config.Fail("num_experts_per_tok",
                StrCat("(", experts.per_token(), ") is above the number of experts (",
                       experts.count(), ")"));
  }
}

void ReadMixtral(JsonReader& config, const Family& family, v1::Model* model) {
  ReadMistral(config, family, model);
  v1::Experts& experts = *model->mutable_experts();
  experts.set_count(config.IntegerOr("num_local_experts", 8, 1, kMaxExperts));
  experts.set_per_token(config.IntegerOr("num_experts_per_tok", 2, 1, kMaxExperts));
  experts.set_ffn_width(model->ffn_width());
  experts.set_renormalise(true);
  CheckExperts(config, *model);
}

void ReadQwen3Moe(JsonReader& config, const Family& family, v1::Model* model) {
  ReadLlama(config, family, model);
  model->set_qk_norm(true);
  ReadQwenWindow(config, /*by_layer=*/false, model);
  v1::Experts& experts = *model->mutable_experts();
  // transformers 5 writes the second.
  const char* count = config.Has("num_experts") ? "num_experts" : "num_local_experts";
  experts.set_count(config.IntegerOr(count, 128, 1, kMaxExperts));
  experts.set_per_token(config.IntegerOr("num_experts_per_tok", 8, 1, kMaxExperts));
  experts.set_ffn_width(config.IntegerOr("moe_intermediate_size", 768, 1, kMaxWidth));
  experts.set_renormalise(config.BoolOr("norm_topk_prob", false));
  CheckExperts(config, *model);

  const int64_t step = config.IntegerOr("decoder_sparse_step", 1, 1, kMaxLayers);
  std::vector<bool> dense(model->layers());
  for (int64_t i = 0; i < model->layers(); ++i) dense[i] = (i + 1) % step != 0;
  for (int64_t layer : config.Integers("mlp_only_layers", 0, kMaxLayers)) {
    if (layer < model->layers()) dense[layer] = true;
  }
  for (int64_t i = 0; i < model->layers(); ++i) {
    if (dense[i]) experts.add_dense_layers(i);
  }
}

// OPT: LayerNorm, learned positions two rows in, biases everywhere, plain ffn.
void ReadOpt(JsonReader& config, const Family& family, v1::Model* model) {
  ReadHeads(config, family, model);
  model->set_ffn_width(config.Integer("ffn_dim", 1, kMaxWidth));
  model->set_norm(v1::NORM_KIND_LAYER);
  model->set_norm_epsilon(family.norm_epsilon);
  model->set_activation(ReadActivation(config, "activation_function", "relu"));
  const bool biases = config.BoolOr("enable_bias", true);
  model->set_qkv_bias(biases);
  model->set_output_bias(biases);
  model->set_ffn_bias(biases);
  model->set_learned_positions(true);
  model->set_learned_position_offset(2);
  model->set_embedding_width(
      config.IntegerOr("word_embed_proj_dim", model->hidden(), 1, kMaxWidth));
  model->set_post_norm(!config.BoolOr("do_layer_norm_before", true));
  model->set_final_norm_absent(model->post_norm() ||
                               config.BoolOr("_remove_final_layer_norm", false));
  if (!config.BoolOr("layer_norm_elementwise_affine", true)) {
    config.Fail("layer_norm_elementwise_affine", "false is not supported");
  }
}

constexpr std::array<Family, 7> kFamilies = {{
    {.architecture = "LlamaForCausalLM", .read = ReadLlama, .max_positions = 2048},
    {.architecture = "MistralForCausalLM",
     .read = ReadMistral,
     .kv_heads = 8,
     .max_positions = 4096 * 32,
     .sliding_window = 4096},
    {.architecture = "Qwen2ForCausalLM", .read = ReadQwen2, .max_positions = 32768},
    {.architecture = "Qwen3ForCausalLM",
     .read = ReadQwen3,
     .head_dim = 128,
     .max_positions = 32768},
    {.architecture = "OPTForCausalLM",
     .read = ReadOpt,
     .norm_epsilon = 1e-5,
     .max_positions = 2048,
     .tied_embeddings = true},
    {.architecture = "MixtralForCausalLM",
     .read = ReadMixtral,
     .rope_theta = 1e6,
     .norm_epsilon = 1e-5,
     .kv_heads = 8,
     .max_positions = 4096 * 32},
    {.architecture = "Qwen3MoeForCausalLM",
     .read = ReadQwen3Moe,
     .kv_heads = 4,
     .max_positions = 32768},
}};

}  // namespace

v1::DataType ReadDataType(JsonReader& config, const char* key) {
  std::string name = config.StringOr(key, "");
  if (name.starts_with("torch.")) name = name.substr(6);
  if (name.empty()) return v1::DATA_TYPE_UNSPECIFIED;
  if (name == "float32") return v1::DATA_TYPE_FLOAT32;
  if (name == "float16") return v1::DATA_TYPE_FLOAT16;
  if (name == "bfloat16") return v1::DATA_TYPE_BFLOAT16;
  config.Fail(key, StrCat("'", name, "' is not supported; known are float32, float16, bfloat16"));
  return v1::DATA_TYPE_UNSPECIFIED;
}

absl::Status CheckEosIds(const v1::Model& model, std::string_view file) {
  for (const int64_t id : model.eos_token_ids()) {
    if (id >= 0 && id < model.vocabulary()) continue;
    return absl::InvalidArgumentError(StrCat(file, ": eos_token_id names the token ", id,
                                             ", but the vocabulary (vocab_size) has ",
                                             "the ids 0 to ", model.vocabulary() - 1));
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::Model> ParseModelConfig(std::string_view text, std::string_view file) {
  absl::StatusOr<nlohmann::json> document = ParseJsonObject(text, file);
  if (!document.ok()) return document.status();
  JsonReader config(*document, file);

  std::vector<std::string> names = config.Strings("architectures");
  if (names.size() != 1) config.Fail("architectures", "must name one architecture");
  if (!config.ok()) return config.status();
  for (const Family& family : kFamilies) {
    if (family.architecture != names[0]) continue;
    v1::Model model;
    model.set_architecture(names[0]);
    ReadShape(config, family, &model);
    if (config.ok()) family.read(config, family, &model);
    if (!config.ok()) return config.status();
    return model;
  }
  std::vector<std::string_view> known;
  for (const Family& family : kFamilies) known.push_back(family.architecture);
  RefuseClass(config, names[0], known);
  return config.status();
}

}  // namespace tessera
