// Mixers whose tensors llama.cpp's converter changes (conversion/qwen.py, deepseek.py): a golden
// checkpoint written so computes what its folder does.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
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

// Heads of `width` rows, of each of `groups` one after the other, by turns.
Numbers ByTurns(const Numbers& grouped, int64_t groups, int64_t width) {
  const int64_t heads = grouped.shape[0] / width, of_group = heads / groups;
  Numbers turned;
  for (int64_t t = 0; t < of_group; ++t) {
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t head = g * of_group + t;
      Append(RowsOf(grouped, head * width, (head + 1) * width), &turned);
    }
  }
  return turned;
}

// Qwen3-Next and its descendants. `by_turns`: value heads.
Transform DeltaTransform(const json& config, bool by_turns) {
  const int64_t groups = config.at("linear_num_key_heads"),
                heads = config.at("linear_num_value_heads");
  const int64_t k = config.at("linear_key_head_dim"), v = config.at("linear_value_head_dim");
  const auto turned = [=](const Numbers& values, int64_t width) {
    return by_turns ? ByTurns(values, groups, width) : values;
  };
  return [=](const std::string& name, const std::string& block, Numbers tensor, Tensors* out) {
    if (name.ends_with("norm") && name != "linear_attn.norm") {
      for (float& value : tensor.values) value += 1;
    }
    const int64_t plain = 2 * groups * k;
    if (name == "post_attention_layernorm") {
      (*out)[block + "post_attention_norm.weight"] = tensor;
      return;
    }
    if (name == "linear_attn.A_log") {
      for (float& value : tensor.values) value = -std::exp(value);
      tensor = turned(tensor, 1);
    } else if (name == "linear_attn.dt_bias" || name == "linear_attn.in_proj_a" ||
               name == "linear_attn.in_proj_b") {
      tensor = turned(tensor, 1);
    } else if (name == "linear_attn.in_proj_z") {
      tensor = turned(tensor, v);
    } else if (name == "linear_attn.in_proj_qkv" || name == "linear_attn.conv1d") {
      if (name.ends_with("conv1d")) tensor.shape = {tensor.shape[0], tensor.shape[2]};
      Numbers rows = RowsOf(tensor, 0, plain);
      Append(turned(RowsOf(tensor, plain, tensor.shape[0]), v), &rows);
      tensor = std::move(rows);
    } else if (name == "linear_attn.out_proj") {
      tensor = Turned(turned(Turned(tensor), v));
    } else if (name == "linear_attn.in_proj_qkvz") {
      // By key head: q, k, v, z.
      const int64_t of_value = heads / groups * v, all = 2 * (k + of_value);
      const auto part = [&](int64_t first, int64_t size, Numbers* rows) {
        for (int64_t g = 0; g < groups; ++g) {
          Append(RowsOf(tensor, g * all + first, g * all + first + size), rows);
        }
      };
      Numbers qkv, z;
      part(0, k, &qkv);
      part(k, k, &qkv);
      part(2 * k, of_value, &qkv);
      part(2 * k + of_value, of_value, &z);
      (*out)[block + "attn_qkv.weight"] = qkv;
      (*out)[block + "attn_gate.weight"] = z;
      return;
    }
    PutUnderGgufName(name, block, std::move(tensor), out);
  };
}

std::vector<std::string> DeltaKeys(const std::string& arch, const json& config) {
  std::vector<std::string> keys = CommonKeys(arch, config);
  const auto number = [&](const char* name, int64_t value) {
    keys.push_back(GgufKey(arch + "." + name, static_cast<uint32_t>(value)));
  };
  const int64_t heads = config.at("linear_num_value_heads");
  const int64_t head_dim = config.at("head_dim");
  number("attention.head_count_kv", config.at("num_key_value_heads"));
  number("attention.key_length", head_dim);
  number("attention.value_length", head_dim);
  const double part = config.at("rope_parameters").at("partial_rotary_factor");
  number("rope.dimension_count", static_cast<int64_t>(part * static_cast<double>(head_dim)));
  number("ssm.conv_kernel", config.at("linear_conv_kernel_dim"));
  number("ssm.state_size", config.at("linear_key_head_dim"));
  number("ssm.group_count", config.at("linear_num_key_heads"));
  number("ssm.time_step_rank", heads);
  number("ssm.inner_size", heads * config.at("linear_value_head_dim").get<int64_t>());
  number("full_attention_interval", 4);
  if (config.contains("shared_expert_intermediate_size")) {
    number("expert_shared_feed_forward_length", config.at("shared_expert_intermediate_size"));
  }
  std::string recurrent;
  for (const json& type : config.at("layer_types")) {
    recurrent += static_cast<char>(type == "linear_attention" ? 1 : 0);
  }
  keys.push_back(tests::GgufListKey(arch + ".attention.recurrent_layers", tests::kGgufBool,
                                    recurrent.size(), recurrent));
  std::string sections;
  for (const uint32_t size : {11, 11, 10, 0}) sections += tests::GgufNumber(size, 4);
  keys.push_back(
      tests::GgufListKey(arch + ".rope.dimension_sections", tests::kGgufI32, 4, sections));
  return keys;
}

TEST_CASE("Qwen3.5 as GGUF: value heads by turns, rates of decay, norms of 1 + w") {
  for (const auto& [golden, arch] :
       {std::pair("qwen3_5", "qwen35"), std::pair("qwen3_5_moe", "qwen35moe")}) {
    INFO(golden);
    const json config = ReadConfig(golden);
    const Tensors tensors = ReadTensors(golden);
    const Copies copies(golden, config, tensors);
    const Tensors out = InGguf(tensors, DeltaTransform(config, true), 1);
    copies.WriteGguf(DeltaKeys(arch, config), out);
    copies.Check();
  }
}

TEST_CASE("Qwen3-Next as GGUF: one matrix of q, k, v and z is two, by heads") {
  json config = ReadConfig("qwen3_next");
  // The layer whose ffn has no experts is of no published file.
  config["num_hidden_layers"] = 1;
  config["layer_types"] = {"linear_attention"};
  config["mlp_only_layers"] = json::array();
  Tensors tensors = ReadTensors("qwen3_next");
  std::erase_if(tensors, [](const auto& tensor) {
    return tensor.first.starts_with("model.layers.") &&
           !tensor.first.starts_with("model.layers.0.");
  });
  config["norm_topk_prob"] = true;
  const Copies copies("qwen3_next", config, tensors);
  const Tensors out = InGguf(tensors, DeltaTransform(config, false), 1);
  copies.WriteGguf(DeltaKeys("qwen3next", config), out);
  copies.Check();
}

TEST_CASE("DeepSeek's latent attention as GGUF: keys turned, values apart, and older files") {
  for (const auto& [golden, apart] : {std::pair("deepseek_v3", true),
                                      {"deepseek_v3", false},
                                      {"deepseek_v2", true},
                                      {"mistral4", true}}) {
    INFO(golden << (apart ? "" : ", keys and values in one"));
    json config = ReadConfig(golden);
    if (!config.contains("rope_parameters")) {
      config["rope_parameters"] = config["rope_scaling"];
      config["rope_parameters"]["rope_type"] = "yarn";
      config["rope_parameters"]["rope_theta"] = config["rope_theta"];
      config["rope_parameters"].erase("type");
      config.erase("rope_scaling");
      config.erase("rope_theta");
    }
    json& rope = config["rope_parameters"];
    rope["mscale"] = rope["mscale_all_dim"] = 0.7;  // files have one of both
    const Tensors tensors = ReadTensors(golden);
    const Copies copies(golden, config, tensors);
    const int64_t plain = config.at("qk_nope_head_dim"), value = config.at("v_head_dim");
    const int64_t heads = config.at("num_attention_heads"), rank = config.at("kv_lora_rank");
    const int64_t turning = config.at("qk_rope_head_dim");
    const Tensors out = InGguf(tensors, [&](const std::string& name, const std::string& block,
                                            Numbers tensor, Tensors* all) {
      if (name != "self_attn.kv_b_proj")
        return PutUnderGgufName(name, block, std::move(tensor), all);
      if (!apart) {
        (*all)[block + "attn_kv_b.weight"] = std::move(tensor);
        return;
      }
      Numbers keys, values;
      for (int64_t head = 0; head < heads; ++head) {
        const int64_t first = head * (plain + value);
        Append(Turned(RowsOf(tensor, first, first + plain)), &keys);
        Append(RowsOf(tensor, first + plain, first + plain + value), &values);
      }
      keys.shape = {heads, rank, plain};
      values.shape = {heads, value, rank};
      (*all)[block + "attn_k_b.weight"] = std::move(keys);
      (*all)[block + "attn_v_b.weight"] = std::move(values);
    });
    const bool grows = rope.contains("llama_4_scaling_beta");
    const std::string arch = grows ? "mistral4" : "deepseek2";
    std::vector<std::string> keys = CommonKeys(arch, config);
    const auto number = [&](const char* name, int64_t size) {
      keys.push_back(GgufKey(arch + "." + name, static_cast<uint32_t>(size)));
    };
    number("attention.head_count_kv", apart ? 1 : heads);
    number("attention.key_length", apart ? rank + turning : plain + turning);
    number("attention.value_length", apart ? rank : value);
    if (apart) number("attention.key_length_mla", plain + turning);
    if (apart) number("attention.value_length_mla", value);
    number("attention.kv_lora_rank", rank);
    if (config.at("q_lora_rank").is_number()) {
      number("attention.q_lora_rank", config.at("q_lora_rank"));
    }
    number("rope.dimension_count", turning);
    number("leading_dense_block_count", config.at("first_k_dense_replace"));
    number("expert_shared_count", config.at("n_shared_experts"));
    number("expert_group_count", config.at("n_group"));
    number("expert_group_used_count", config.at("topk_group"));
    const bool sigmoid = std::string_view(golden) == "deepseek_v3";
    if (apart) number("expert_gating_func", sigmoid ? 2 : 1);  // older files have a bias alone
    if (config.at("norm_topk_prob"))
      keys.push_back(GgufKey(arch + ".expert_weights_norm", tests::kGgufBool, "\1"));
    keys.push_back(RealKey(arch + ".expert_weights_scale", config.at("routed_scaling_factor")));
    keys.push_back(tests::GgufTextKey(arch + ".rope.scaling.type", "yarn"));
    keys.push_back(RealKey(arch + ".rope.scaling.factor", rope.at("factor")));
    number("rope.scaling.original_context_length", rope.at("original_max_position_embeddings"));
    keys.push_back(RealKey(arch + ".rope.scaling.yarn_beta_fast", rope.at("beta_fast")));
    keys.push_back(RealKey(arch + ".rope.scaling.yarn_log_multiplier", 0.1 * 0.7));
    if (grows) {
      keys.push_back(
          RealKey(arch + ".attention.temperature_scale", rope.at("llama_4_scaling_beta")));
      number("attention.temperature_length", rope.at("original_max_position_embeddings"));
    }
    copies.WriteGguf(keys, out);
    copies.Check();
  }
}

}  // namespace
}  // namespace tessera::worker
