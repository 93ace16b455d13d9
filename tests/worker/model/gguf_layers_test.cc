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

}  // namespace
}  // namespace tessera::worker
