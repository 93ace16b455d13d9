// Families whose layers differ from each other in GGUF's keys (llama.cpp's conversion/gemma.py,
// llama.py): a golden checkpoint written so computes what its folder does.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/fakes/gguf_file.h"
#include "tests/worker/model/gguf_copies.h"
#include "tests/worker/model/tiny_model.h"

namespace tessera::worker {
namespace {

using nlohmann::json;
using tests::GgufKey;

// Gemma 4's names that are other families' or its own.
const std::map<std::string, std::string> kGemmaNames = {
    {"post_attention_layernorm", "post_attention_norm.weight"},
    {"pre_feedforward_layernorm", "ffn_norm.weight"},
    {"post_feedforward_layernorm", "post_ffw_norm.weight"},
    {"post_feedforward_layernorm_1", "post_ffw_norm_1.weight"},
    {"pre_feedforward_layernorm_2", "pre_ffw_norm_2.weight"},
    {"post_feedforward_layernorm_2", "post_ffw_norm_2.weight"},
    {"per_layer_input_gate", "inp_gate.weight"},
    {"per_layer_projection", "proj.weight"},
    {"post_per_layer_input_norm", "post_norm.weight"},
    {"layer_scalar", "layer_output_scale.weight"},
    {"router.proj", "ffn_gate_inp.weight"},
    {"router.scale", "ffn_gate_inp.scale"},
    {"router.per_expert_scale", "ffn_down_exps.scale"},
    {"experts.gate_up_proj", "ffn_gate_up_exps.weight"},
    {"experts.down_proj", "ffn_down_exps.weight"}};

std::vector<std::string> GemmaKeys(const json& config) {
  const std::string arch = "gemma4";
  const auto name = [&](const char* key) { return arch + "." + key; };
  std::vector<std::string> keys = {tests::GgufTextKey("general.architecture", arch)};
  const auto number = [&](const char* key, int64_t value) {
    keys.push_back(GgufKey(name(key), static_cast<uint32_t>(value)));
  };
  const auto list = [&](const char* key, const std::vector<int64_t>& values, uint32_t kind) {
    std::string bytes;
    for (const int64_t value : values) {
      bytes += tests::GgufNumber(static_cast<uint64_t>(value), kind == tests::kGgufBool ? 1 : 4);
    }
    keys.push_back(tests::GgufListKey(name(key), kind, values.size(), bytes));
  };
  const int64_t layers = config.at("num_hidden_layers");
  const int64_t borrowers = config.at("num_kv_shared_layers"),
                width = config.at("intermediate_size");
  const int64_t kv_heads = config.at("num_key_value_heads");
  const json& global = config.at("per_layer_config").at("1");
  std::vector<int64_t> widths, windowed, heads;
  for (int64_t i = 0; i < layers; ++i) {
    const bool window = config.at("layer_types").at(static_cast<size_t>(i)) == "sliding_attention";
    windowed.push_back(window ? 1 : 0);
    heads.push_back(window ? kv_heads : global.value("num_key_value_heads", kv_heads));
    widths.push_back(config.at("use_double_wide_mlp") && i >= layers - borrowers ? 2 * width
                                                                                 : width);
  }
  number("block_count", layers);
  number("context_length", config.at("max_position_embeddings"));
  number("embedding_length", config.at("hidden_size"));
  number("attention.head_count", config.at("num_attention_heads"));
  number("attention.key_length", global.at("head_dim"));
  number("attention.value_length", global.at("head_dim"));
  number("attention.key_length_swa", config.at("head_dim"));
  number("attention.value_length_swa", config.at("head_dim"));
  number("rope.dimension_count", global.at("head_dim"));
  number("rope.dimension_count_swa", config.at("head_dim"));
  number("attention.sliding_window", config.at("sliding_window"));
  number("attention.shared_kv_layers", borrowers);
  number("embedding_length_per_layer_input", config.at("hidden_size_per_layer_input"));
  list("attention.sliding_window_pattern", windowed, tests::kGgufBool);
  list("attention.head_count_kv", heads, tests::kGgufI32);
  list("feed_forward_length", widths, tests::kGgufI32);
  const json& ropes = config.at("rope_parameters");
  for (const auto& [key, value] :
       {std::pair("attention.layer_norm_rms_epsilon", config.at("rms_norm_eps")),
        std::pair("final_logit_softcapping", config.at("final_logit_softcapping")),
        std::pair("rope.freq_base", ropes.at("full_attention").at("rope_theta")),
        std::pair("rope.freq_base_swa", ropes.at("sliding_attention").at("rope_theta"))}) {
    keys.push_back(RealKey(name(key), value));
  }
  if (config.at("enable_moe_block")) {
    number("expert_count", config.at("num_experts"));
    number("expert_used_count", config.at("top_k_experts"));
    number("expert_feed_forward_length", config.at("moe_intermediate_size"));
  }
  return keys;
}

TEST_CASE("Gemma 4 as GGUF: heads, widths and rotations by layer, per-layer tensors, experts") {
  for (const auto& [golden, root] : {std::pair("gemma4", "model."),
                                     {"gemma4_per_layer", "model."},
                                     {"gemma4_moe", "model.language_model."}}) {
    INFO(golden);
    const json whole = ReadConfig(golden);
    const json config = whole.contains("text_config") ? whole.at("text_config") : whole;
    const Tensors tensors = ReadTensors(golden);
    const Copies copies(golden, whole, tensors);
    Tensors out = InGguf(
        tensors,
        [](const std::string& name, const std::string& block, Numbers tensor, Tensors* all) {
          const auto found = kGemmaNames.find(name);
          if (found == kGemmaNames.end())
            return PutUnderGgufName(name, block, std::move(tensor), all);
          (*all)[block + found->second] = std::move(tensor);
        },
        0, root);
    for (const auto& [name, gguf] :
         {std::pair("embed_tokens_per_layer", "per_layer_token_embd"),
          std::pair("per_layer_model_projection", "per_layer_model_proj"),
          std::pair("per_layer_projection_norm", "per_layer_proj_norm")}) {
      const auto found = tensors.find(std::string(root) + name + ".weight");
      if (found != tensors.end()) out[std::string(gguf) + ".weight"] = found->second;
    }
    // A quarter of a head's pairs turn.
    const int64_t pairs = config.at("per_layer_config").at("1").at("head_dim").get<int64_t>() / 2;
    Numbers divisors = {{pairs}, std::vector<float>(static_cast<size_t>(pairs), 1e30F)};
    std::fill_n(divisors.values.begin(), pairs / 4, 1.0F);
    out["rope_freqs.weight"] = divisors;
    copies.WriteGguf(GemmaKeys(config), out);
    copies.Check();
  }
}

TEST_CASE("Llama 4 as GGUF: experts with the inputs last, widths under other names") {
  json config = ReadConfig("llama4");
  // What files do not say is as published: chunks, growing queries, each fourth layer unrotated.
  for (const char* key :
       {"no_rope_layers", "layer_types", "attention_chunk_size", "attn_scale", "floor_scale"}) {
    config.erase(key);
  }
  const Tensors tensors = ReadTensors("llama4");
  const Copies copies("llama4", config, tensors);
  const int64_t width = config.at("intermediate_size");
  const Tensors out = InGguf(tensors, [&](const std::string& name, const std::string& block,
                                          Numbers tensor, Tensors* all) {
    const std::string ffn = "feed_forward.";
    if (!name.starts_with(ffn)) return PutUnderGgufName(name, block, std::move(tensor), all);
    const std::string part = name.substr(ffn.size());
    if (part == "router") {
      (*all)[block + "ffn_gate_inp.weight"] = std::move(tensor);
    } else if (!part.starts_with("experts.")) {
      PutUnderGgufName("mlp." + part, block, std::move(tensor), all);
    } else {
      // For each expert [inputs, outputs].
      const int64_t count = tensor.shape[0], in = tensor.shape[1], both = tensor.shape[2];
      const Numbers rows = {{count * in, both}, tensor.values};
      Numbers gate, other;
      for (int64_t i = 0; i < count; ++i) {
        const Numbers turned = Turned(RowsOf(rows, i * in, (i + 1) * in));
        const int64_t first = part == "experts.gate_up_proj" ? width : 0;
        if (first > 0) Append(RowsOf(turned, 0, first), &gate);
        Append(RowsOf(turned, first, both), &other);
      }
      gate.shape = {count, width, in};
      other.shape = {count, other.shape[0] / count, in};
      const bool up = !gate.values.empty();
      if (up) (*all)[block + "ffn_gate_exps.weight"] = gate;
      (*all)[block + (up ? "ffn_up" : "ffn_down") + "_exps.weight"] = other;
    }
  });
  json named = config;
  named["moe_intermediate_size"] = width;
  named["intermediate_size"] = config.at("intermediate_size_mlp");
  named["num_experts"] = config.at("num_local_experts");
  std::vector<std::string> keys = CommonKeys("llama4", named);
  for (const auto& [key, of_config] :
       {std::pair("attention.head_count_kv", "num_key_value_heads"),
        std::pair("attention.key_length", "head_dim"),
        std::pair("attention.value_length", "head_dim"),
        std::pair("rope.dimension_count", "head_dim"),
        std::pair("interleave_moe_layer_step", "interleave_moe_layer_step")}) {
    keys.push_back(GgufKey(std::string("llama4.") + key, config.at(of_config).get<uint32_t>()));
  }
  copies.WriteGguf(keys, out);
  copies.Check();
}

// Keys of a dense family whose layers have one size: heads, windows and the rotation's scaling.
std::vector<std::string> DenseKeys(const std::string& arch, json config) {
  json& ropes = config.at("rope_parameters");
  const bool by_type = ropes.contains("full_attention");
  if (by_type) ropes = json(ropes.at("full_attention"));
  std::vector<std::string> keys = CommonKeys(arch, config);
  if (by_type) keys.push_back(RealKey(arch + ".rope.freq_base_swa", ropes.at("rope_theta")));
  const auto number = [&](const std::string& key, const json& value) {
    keys.push_back(GgufKey(arch + "." + key, value.get<uint32_t>()));
  };
  number("attention.head_count_kv", config.at("num_key_value_heads"));
  if (config.contains("head_dim")) {
    number("attention.key_length", config.at("head_dim"));
    number("attention.value_length", config.at("head_dim"));
  }
  if (ropes.at("rope_type") == "yarn") {
    keys.push_back(tests::GgufTextKey(arch + ".rope.scaling.type", "yarn"));
    keys.push_back(RealKey(arch + ".rope.scaling.factor", ropes.at("factor")));
    number("rope.scaling.original_context_length", ropes.at("original_max_position_embeddings"));
    keys.push_back(RealKey(arch + ".rope.scaling.yarn_beta_fast", ropes.value("beta_fast", 32.0)));
  }
  if (config.value("sliding_window", json()).is_null()) return keys;
  number("attention.sliding_window", config.at("sliding_window"));
  std::string windowed;
  for (const json& type : config.at("layer_types")) {
    windowed += tests::GgufNumber(type == "sliding_attention" ? 1 : 0, 1);
  }
  keys.push_back(tests::GgufListKey(arch + ".attention.sliding_window_pattern", tests::kGgufBool,
                                    windowed.size(), windowed));
  return keys;
}

// Names of families whose norms stand behind the blocks, and of Hunyuan.
void PutOtherNames(const std::string& name, const std::string& block, Numbers tensor,
                   Tensors* all) {
  static const auto& names =
      *new std::map<std::string, std::string>{{"post_attention_layernorm", "post_attention_norm"},
                                              {"post_feedforward_layernorm", "post_ffw_norm"},
                                              {"self_attn.query_layernorm", "attn_q_norm"},
                                              {"self_attn.key_layernorm", "attn_k_norm"}};
  const auto found = names.find(name);
  if (found == names.end()) return PutUnderGgufName(name, block, std::move(tensor), all);
  (*all)[block + found->second + ".weight"] = std::move(tensor);
}

TEST_CASE(
    "OLMo 2 and 3, EXAONE 4 as GGUF: a list says which layers have a window, or there is none") {
  for (const auto& [golden, arch] : {std::pair("olmo2", "olmo2"),
                                     {"olmo3", "olmo2"},
                                     {"exaone4", "exaone4"},
                                     {"exaone4_full", "exaone4"}}) {
    INFO(golden);
    const json config = ReadConfig(golden);
    const Tensors tensors = ReadTensors(golden);
    const Copies copies(golden, config, tensors);
    copies.WriteGguf(DenseKeys(arch, config), InGguf(tensors, PutOtherNames));
    copies.Check();
  }
}

TEST_CASE("Hunyuan as GGUF: the base of its rotation is the stretched one") {
  json config = ReadConfig("hunyuan_dense");
  // 100 * 20^(8 / 6), as a number of 32 bits.
  config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 5428.83544921875}};
  const Tensors tensors = ReadTensors("hunyuan_dense");
  const Copies copies("hunyuan_dense", config, tensors);
  copies.WriteGguf(
      DenseKeys("hunyuan-dense", config),
      InGguf(tensors, [](const std::string& name, const std::string& block, Numbers tensor,
                         Tensors* all) {
        const bool usual = !name.ends_with("query_layernorm") && !name.ends_with("key_layernorm");
        (usual ? PutUnderGgufName : PutOtherNames)(name, block, std::move(tensor), all);
      }));
  copies.Check();
}

// The setting of most families, whose tensors may be biases.
void PutBiases(const std::string& name, const std::string& block, Numbers tensor, Tensors* all) {
  if (!name.ends_with(".bias")) return PutUnderGgufName(name, block, std::move(tensor), all);
  Tensors one;
  PutUnderGgufName(name.substr(0, name.size() - 5), block, {}, &one);
  std::string place = one.begin()->first;
  place.replace(place.rfind(".weight"), 7, ".bias");
  (*all)[place] = std::move(tensor);
}

// The tensors under other names, where a part of a name is in the list.
Tensors Renamed(const Tensors& tensors,
                const std::vector<std::pair<std::string, std::string>>& parts) {
  Tensors renamed;
  for (const auto& [name, tensor] : tensors) {
    std::string now = name;
    for (const auto& [from, to] : parts) {
      const size_t at = now.find(from);
      if (at != std::string::npos) now.replace(at, from.size(), to);
    }
    renamed[now] = tensor;
  }
  return renamed;
}

TEST_CASE("Phi-3.5-MoE as GGUF: layer norms, biases, longrope's published factor") {
  json config = ReadConfig("phimoe");
  json& rope = config.at("rope_parameters");
  rope["short_mscale"] = rope["long_mscale"] = 1.243163121016122;
  config.erase("router_jitter_noise");
  for (const char* list : {"short_factor", "long_factor"}) {
    rope[list] = rope.at(list).get<std::vector<float>>();  // as the file has them
  }
  const Tensors tensors = ReadTensors("phimoe");
  const Copies copies("phimoe", config, tensors);
  Tensors out = InGguf(Renamed(tensors, {{".block_sparse_moe.gate.", ".mlp.gate."},
                                         {".block_sparse_moe.experts.", ".mlp.experts."},
                                         {".w1.", ".gate_proj."},
                                         {".w2.", ".down_proj."},
                                         {".w3.", ".up_proj."}}),
                       PutBiases);
  out["output_norm.bias"] = tensors.at("model.norm.bias");
  out["output.bias"] = tensors.at("lm_head.bias");
  for (const char* list : {"short", "long"}) {
    const std::vector<float> factors = rope.at(std::string(list) + "_factor");
    out["rope_factors_" + std::string(list) + ".weight"] = {{static_cast<int64_t>(factors.size())},
                                                            factors};
  }
  std::vector<std::string> keys = CommonKeys("phimoe", config);
  for (const auto& [key, value] :
       {std::pair("attention.head_count_kv", config.at("num_key_value_heads")),
        std::pair("expert_count", config.at("num_local_experts")),
        std::pair("expert_used_count", config.at("num_experts_per_tok")),
        std::pair("rope.scaling.original_context_length",
                  rope.at("original_max_position_embeddings"))}) {
    keys.push_back(GgufKey(std::string("phimoe.") + key, value.get<uint32_t>()));
  }
  keys.push_back(RealKey("phimoe.rope.scaling.attn_factor", 1.19));  // of another rule
  copies.WriteGguf(keys, out);
  copies.Check();
}

TEST_CASE("Hunyuan with experts as GGUF: a shared expert beside them") {
  const json config = ReadConfig("hunyuan_moe");
  const Tensors tensors = ReadTensors("hunyuan_moe");
  const Copies copies("hunyuan_moe", config, tensors);
  std::vector<std::string> keys = DenseKeys("hunyuan-moe", config);
  for (const auto& [key, value] :
       {std::pair("expert_count", config.at("num_experts")),
        std::pair("expert_used_count", config.at("moe_topk")),
        std::pair("expert_feed_forward_length", config.at("intermediate_size")),
        std::pair("expert_shared_feed_forward_length", config.at("intermediate_size")),
        std::pair("expert_shared_count", json(1))}) {
    keys.push_back(GgufKey(std::string("hunyuan-moe.") + key, value.get<uint32_t>()));
  }
  copies.WriteGguf(keys, InGguf(Renamed(tensors, {{".mlp.gate.wg.", ".mlp.gate."},
                                                  {".mlp.shared_mlp.", ".mlp.shared_expert."},
                                                  {".query_layernorm.", ".q_norm."},
                                                  {".key_layernorm.", ".k_norm."}}),
                                PutUnderGgufName));
  copies.Check();
}

// Rows of heads, of which the first `turning` change places: `to_pairs`, those of halves become
// neighbours, or the other way round.
Numbers Moved(const Numbers& rows, int64_t head_dim, int64_t turning, bool to_pairs) {
  const int64_t half = turning / 2;
  Numbers moved;
  for (int64_t row = 0; row < rows.shape[0]; ++row) {
    const int64_t within = row % head_dim, head = row - within;
    int64_t from = within;
    if (within < turning && to_pairs) from = within / 2 + within % 2 * half;
    if (within < turning && !to_pairs) from = 2 * (within % half) + within / half;
    Append(RowsOf(rows, head + from, head + from + 1), &moved);
  }
  return moved;
}

bool IsOfQOrK(const std::string& name) {
  return name.find("q_proj") != std::string::npos || name.find("k_proj") != std::string::npos;
}

TEST_CASE("Ministral 3 as GGUF: queries that grow, and rows in pairs") {
  const json config = ReadConfig("ministral3");
  const int64_t head_dim = config.at("head_dim");
  const Tensors tensors = ReadTensors("ministral3");
  const Copies copies("ministral3", config, tensors);
  std::vector<std::string> keys = DenseKeys("mistral3", config);
  keys.push_back(RealKey("mistral3.rope.scaling.yarn_log_multiplier", 1));
  keys.push_back(RealKey("mistral3.attention.temperature_scale", 0.5));
  copies.WriteGguf(keys, InGguf(tensors, [&](const std::string& name, const std::string& block,
                                             Numbers tensor, Tensors* all) {
                     if (IsOfQOrK(name)) tensor = Moved(tensor, head_dim, head_dim, true);
                     PutUnderGgufName(name, block, std::move(tensor), all);
                   }));
  copies.Check(/*paired=*/true);
}

TEST_CASE("AFM-4.5B as GGUF: rows and biases in pairs, no gate") {
  const json config = ReadConfig("arcee");
  const int64_t head_dim = config.at("head_dim");
  const Tensors tensors = ReadTensors("arcee");
  const Copies copies("arcee", config, tensors);
  copies.WriteGguf(DenseKeys("arcee", config),
                   InGguf(tensors, [&](const std::string& name, const std::string& block,
                                       Numbers tensor, Tensors* all) {
                     if (IsOfQOrK(name)) tensor = Moved(tensor, head_dim, head_dim, true);
                     PutBiases(name, block, std::move(tensor), all);
                   }));
  copies.Check(/*paired=*/true);
}

TEST_CASE("Granite 4 without Mamba as GGUF: Granite 3, with keys of the hybrid class") {
  const json config = ReadConfig("granite_moe_hybrid");
  const int64_t head_dim = config.at("head_dim");
  const int64_t width = config.at("shared_intermediate_size");
  const Tensors tensors = ReadTensors("granite_moe_hybrid");
  const Copies copies("granite_moe_hybrid", config, tensors);
  json sizes = config;
  sizes["intermediate_size"] = width;
  sizes.erase("layer_types");
  std::vector<std::string> keys = CommonKeys("granite", sizes);
  std::string kv_heads;
  for (int64_t i = 0; i < config.at("num_hidden_layers"); ++i) {
    kv_heads += tests::GgufNumber(config.at("num_key_value_heads").get<uint64_t>(), 4);
  }
  keys.push_back(tests::GgufListKey("granite.attention.head_count_kv", tests::kGgufI32,
                                    config.at("num_hidden_layers").get<uint64_t>(), kv_heads));
  for (const char* key : {"attention.key_length", "attention.value_length"}) {
    keys.push_back(GgufKey(std::string("granite.") + key, static_cast<uint32_t>(head_dim)));
  }
  for (const char* key : {"ssm.conv_kernel", "ssm.state_size", "ssm.group_count", "ssm.inner_size",
                          "ssm.time_step_rank", "expert_shared_feed_forward_length"}) {
    keys.push_back(GgufKey(std::string("granite.") + key, static_cast<uint32_t>(width)));
  }
  for (const auto& [key, of_config] : {std::pair("embedding_scale", "embedding_multiplier"),
                                       std::pair("residual_scale", "residual_multiplier"),
                                       std::pair("attention.scale", "attention_multiplier"),
                                       std::pair("logit_scale", "logits_scaling")}) {
    keys.push_back(RealKey(std::string("granite.") + key, config.at(of_config)));
  }
  copies.WriteGguf(keys, InGguf(tensors, [&](const std::string& name, const std::string& block,
                                             Numbers tensor, Tensors* all) {
                     if (IsOfQOrK(name)) tensor = Moved(tensor, head_dim, head_dim, true);
                     if (name == "shared_mlp.input_linear") {
                       (*all)[block + "ffn_gate.weight"] = RowsOf(tensor, 0, width);
                       (*all)[block + "ffn_up.weight"] = RowsOf(tensor, width, 2 * width);
                     } else if (name == "shared_mlp.output_linear") {
                       (*all)[block + "ffn_down.weight"] = std::move(tensor);
                     } else {
                       PutUnderGgufName(name, block, std::move(tensor), all);
                     }
                   }));
  copies.Check(/*paired=*/true);
}

TEST_CASE("Trinity as GGUF: gates of heads, windows, experts behind a dense layer") {
  json config = ReadConfig("afmoe");
  const Tensors tensors = ReadTensors("afmoe");
  const Copies copies("afmoe", config, tensors);
  const std::map<std::string, std::string> names = {
      {"post_attention_layernorm", "post_attention_norm.weight"},
      {"pre_mlp_layernorm", "ffn_norm.weight"},
      {"post_mlp_layernorm", "post_ffw_norm.weight"},
      {"mlp.router.gate", "ffn_gate_inp.weight"},
      {"mlp.expert_bias", "exp_probs_b.bias"}};
  std::vector<std::string> keys = DenseKeys("afmoe", config);
  for (const auto& [key, of_config] :
       {std::pair("expert_shared_count", "num_shared_experts"),
        std::pair("leading_dense_block_count", "num_dense_layers")}) {
    keys.push_back(GgufKey(std::string("afmoe.") + key, config.at(of_config).get<uint32_t>()));
  }
  keys.push_back(RealKey("afmoe.expert_weights_scale", config.at("route_scale")));
  copies.WriteGguf(keys, InGguf(tensors, [&](const std::string& name, const std::string& block,
                                             Numbers tensor, Tensors* all) {
                     const auto found = names.find(name);
                     if (found == names.end())
                       return PutUnderGgufName(name, block, std::move(tensor), all);
                     (*all)[block + found->second] = std::move(tensor);
                   }));
  copies.Check();
}

// A list of how many pairs turn by each position of an image.
std::string SectionsKey(const std::string& arch) {
  std::string sections;
  for (const uint32_t pairs : {2, 1, 1, 0}) sections += tests::GgufNumber(pairs, 4);
  return tests::GgufListKey(arch + ".rope.dimension_sections", tests::kGgufI32, 4, sections);
}

TEST_CASE("Qwen3-VL as GGUF: its text part is Qwen3") {
  const json config = ReadConfig("qwen3");
  const Tensors tensors = ReadTensors("qwen3");
  const Copies copies("qwen3", config, tensors);
  std::vector<std::string> keys = DenseKeys("qwen3vl", config);
  keys.push_back(GgufKey("qwen3vl.n_deepstack_layers", uint32_t{3}));
  keys.push_back(SectionsKey("qwen3vl"));
  copies.WriteGguf(keys, InGguf(tensors, PutUnderGgufName));
  copies.Check();
}

TEST_CASE("GLM-4.1V as GGUF: with rotations of images halves turn, else neighbouring pairs") {
  const json config = ReadConfig("glm4");
  const int64_t head_dim = config.at("head_dim"), turning = head_dim / 2;
  const Tensors tensors = ReadTensors("glm4");
  const std::map<std::string, std::string> names = {
      {"post_self_attn_layernorm", "post_attention_norm.weight"},
      {"post_mlp_layernorm", "post_ffw_norm.weight"},
      {"mlp.gate_up_proj", "ffn_up.weight"}};
  for (const bool of_images : {false, true}) {
    const Copies copies("glm4", config, tensors);
    std::vector<std::string> keys = DenseKeys("glm4", config);
    keys.push_back(GgufKey("glm4.rope.dimension_count", static_cast<uint32_t>(turning)));
    if (of_images) keys.push_back(SectionsKey("glm4"));
    copies.WriteGguf(keys, InGguf(tensors, [&](const std::string& name, const std::string& block,
                                               Numbers tensor, Tensors* all) {
                       if (IsOfQOrK(name) && of_images) {
                         tensor = Moved(tensor, head_dim, turning, false);
                       }
                       const auto found = names.find(name);
                       if (found == names.end())
                         return PutBiases(name, block, std::move(tensor), all);
                       (*all)[block + found->second] = std::move(tensor);
                     }));
    copies.Check(/*paired=*/!of_images);
  }
}

TEST_CASE("a tensor that nobody reads is refused by name, and one of a layer that no key counts") {
  const json config = ReadConfig("olmo2");
  const Tensors tensors = ReadTensors("olmo2");
  const Copies copies("olmo2", config, tensors);
  Tensors out = InGguf(tensors, PutOtherNames);
  const auto error = [&](const std::string& name) {
    out[name] = tensors.at("model.norm.weight");
    copies.WriteGguf(DenseKeys("olmo2", config), out);
    out.erase(name);
    return std::string(copies.ReadFile().status().message());
  };
  CHECK_THAT(error("blk.1.attn_output.bias"),
             Catch::Contains("'model.layers.1.self_attn.o_proj.bias' is not understood"));
  CHECK_THAT(error("rope_other.weight"), Catch::Contains("'rope_other.weight' is not understood"));
  CHECK_THAT(error("blk.2.attn_norm.weight"),
             Catch::Contains("key 'olmo2.block_count' is 2, but there is a tensor "
                             "'blk.2.attn_norm.weight'"));
}

TEST_CASE("layers behind the model's, which predict further tokens, are left out with a warning") {
  const auto read = ReadCheckedModel((GoldenFolder("glm4_moe") / "model.gguf").string());
  INFO(read.status().ToString());
  REQUIRE(read.ok());
  REQUIRE(read->warnings.size() == 1);
  CHECK_THAT(read->warnings[0], Catch::Contains("1 tensor is left out"));
}

}  // namespace
}  // namespace tessera::worker
