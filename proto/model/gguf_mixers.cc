#include "proto/model/gguf_mixers.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace tessera {
namespace {

using nlohmann::json;

// Sizes of heads: `head_dim` of layers with a window, `global_head_dim` of the others.
void WriteHeads(GgufKeys& keys) {
  keys.CopyInteger("attention.head_count", "num_attention_heads", true);
  keys.CopyInteger("attention.key_length_swa", "head_dim", true);
  keys.CopyInteger("attention.key_length", "global_head_dim", true);
  if (!keys.ok()) return;
  for (const auto& [key, name] : {std::pair("attention.value_length_swa", "head_dim"),
                                  std::pair("attention.value_length", "global_head_dim"),
                                  std::pair("rope.dimension_count_swa", "head_dim"),
                                  std::pair("rope.dimension_count", "global_head_dim")}) {
    const int64_t* size = keys.FindSame(key);
    if (size == nullptr || *size == keys.config()[name].get<int64_t>()) continue;
    keys.Fail(keys.Whole(key), StrCat("is ", *size, ", not the size of heads: not supported"));
  }
}

// Which layers have a window, and how many heads of keys either kind has. Values that have no
// matrix are the keys.
void WriteKvHeads(GgufKeys& keys, int64_t layers) {
  constexpr std::string_view kHeads = "attention.head_count_kv";
  const std::vector<int64_t> windowed = keys.ListOf("attention.sliding_window_pattern", layers);
  const std::vector<int64_t> kv_heads = keys.ListOf(kHeads, layers);
  if (!keys.ok()) return;
  json types = json::array();
  int64_t of_windows = 0, of_others = 0;
  bool values_are_keys = false;
  for (int64_t i = 0; i < layers; ++i) {
    const auto index = static_cast<size_t>(i);
    const bool window = windowed[index] != 0;
    types.push_back(window ? "sliding_attention" : "full_attention");
    int64_t& heads = window ? of_windows : of_others;
    if (heads != 0 && heads != kv_heads[index]) {
      keys.Fail(keys.Whole(kHeads), "differs between layers of one kind: not supported");
    }
    heads = kv_heads[index];
    const std::string layer = StrCat("blk.", i, ".attn_");
    const bool has_keys = keys.header().FindTensor(layer + "k.weight") != nullptr;
    const bool has_values = keys.header().FindTensor(layer + "v.weight") != nullptr;
    values_are_keys = values_are_keys || (!window && has_keys && !has_values);
  }
  json& config = keys.config();
  config["layer_types"] = std::move(types);
  config["attention_k_eq_v"] = values_are_keys;
  config["num_key_value_heads"] = of_windows != 0 ? of_windows : of_others;
  config["num_global_key_value_heads"] = of_others != 0 ? of_others : of_windows;
  if (of_windows != 0 && of_others != 0 && of_windows != of_others && !values_are_keys) {
    keys.Fail(keys.Whole(kHeads),
              "differs between kinds of layers that have values of their own: not supported");
  }
}

// Ffns are as wide as each other, or twice as wide in layers that borrow keys and values.
void WriteWidths(GgufKeys& keys, int64_t layers) {
  constexpr std::string_view kWidths = "feed_forward_length";
  const std::vector<int64_t> widths = keys.ListOf(kWidths, layers);
  if (!keys.ok()) return;
  json& config = keys.config();
  const int64_t first_borrower = layers - config.value("num_kv_shared_layers", int64_t{0});
  const int64_t width = widths[0], last = widths[static_cast<size_t>(layers - 1)];
  const bool doubled = last != width && last / 2 == width && last % 2 == 0;
  config["intermediate_size"] = width;
  config["use_double_wide_mlp"] = doubled;
  for (int64_t i = 0; i < layers; ++i) {
    const int64_t expected = doubled && i >= first_borrower ? last : width;
    if (widths[static_cast<size_t>(i)] == expected) continue;
    keys.Fail(keys.Whole(kWidths), "differs between layers: not supported");
  }
}

// Layers without a window rotate the first pairs of a head alone, those whose frequency is divided
// by 1; other frequencies are divided by a number beyond all positions.
void WriteRotations(GgufKeys& keys, absl::Span<const double> divisors) {
  constexpr double kStands = 1e20;
  const double* full = keys.FindReal("rope.freq_base");
  const double* window = keys.FindReal("rope.freq_base_swa");
  if (!keys.ok()) return;
  const auto pairs = keys.config()["global_head_dim"].get<int64_t>() / 2;
  const auto turning = std::count(divisors.begin(), divisors.end(), 1.0);
  const bool rest_stands = std::all_of(divisors.begin() + turning, divisors.end(),
                                       [](double divisor) { return divisor >= kStands; });
  const auto count = static_cast<int64_t>(divisors.size());
  if (count != 0 && (count != pairs || !rest_stands)) {
    return keys.Fail("rope_freqs.weight", "divides frequencies as no rotation known here does");
  }
  const double part = count == 0 ? 1.0 : static_cast<double>(turning) / static_cast<double>(count);
  keys.config()["rope_parameters"] = {
      {"full_attention",
       {{"rope_type", "proportional"},
        {"partial_rotary_factor", part},
        {"rope_theta", full == nullptr ? 1e6 : *full}}},
      {"sliding_attention",
       {{"rope_type", "default"}, {"rope_theta", window == nullptr ? 1e4 : *window}}}};
}

}  // namespace

void WriteGgufLatent(GgufKeys& keys) {
  if (!keys.ok()) return;
  keys.CopyInteger("attention.head_count", "num_attention_heads", true);
  keys.CopyInteger("attention.kv_lora_rank", "kv_lora_rank", true);
  keys.CopyInteger("attention.q_lora_rank", "q_lora_rank");
  keys.CopyInteger("rope.dimension_count", "qk_rope_head_dim", true);
  keys.FindSame("attention.head_count_kv");
  const int64_t* as_one = keys.FindSame("attention.key_length_mla");
  const int64_t* values_as_one = keys.FindSame("attention.value_length_mla");
  const int64_t* key = keys.FindSame("attention.key_length");
  const int64_t* value = keys.FindSame("attention.value_length");
  if (as_one != nullptr) key = as_one, value = values_as_one;
  if (!keys.ok()) return;
  if (key == nullptr || value == nullptr) {
    return keys.Fail(keys.Whole("attention.key_length_mla"), "is missing, or its value_length_mla");
  }
  json& config = keys.config();
  config["qk_nope_head_dim"] = *key - config["qk_rope_head_dim"].get<int64_t>();
  config["v_head_dim"] = *value;
  if (!config.contains("q_lora_rank")) config["q_lora_rank"] = nullptr;
  if (!config.contains("norm_topk_prob")) config["norm_topk_prob"] = false;
}

void WriteGgufDelta(GgufKeys& keys, int64_t layers) {
  if (!keys.ok()) return;
  for (const auto& [key, name] : {std::pair("ssm.conv_kernel", "linear_conv_kernel_dim"),
                                  std::pair("ssm.state_size", "linear_key_head_dim"),
                                  std::pair("ssm.group_count", "linear_num_key_heads"),
                                  std::pair("ssm.time_step_rank", "linear_num_value_heads")}) {
    keys.CopyInteger(key, name, true);
  }
  keys.CopyInteger("full_attention_interval", "full_attention_interval");
  const int64_t* width = keys.FindSame("ssm.inner_size");
  if (!keys.ok()) return;
  json& config = keys.config();
  const auto heads = config["linear_num_value_heads"].get<int64_t>();
  if (width == nullptr || heads < 1 || *width % heads != 0) {
    return keys.Fail(keys.Whole("ssm.inner_size"),
                     "must be a multiple of ssm.time_step_rank, the number of value heads");
  }
  config["linear_value_head_dim"] = *width / heads;
  constexpr std::string_view kRecurrent = "attention.recurrent_layers";
  if (!keys.header().keys.contains(keys.Whole(kRecurrent))) return;
  const std::vector<int64_t> recurrent = keys.ListOf(kRecurrent, layers);
  json types = json::array();
  for (int64_t i = 0; i < layers && keys.ok(); ++i) {
    types.push_back(recurrent[static_cast<size_t>(i)] != 0 ? "linear_attention" : "full_attention");
  }
  config["layer_types"] = std::move(types);
}

void WriteGgufKinds(GgufKeys& keys, int64_t layers, absl::Span<const double> divisors) {
  if (!keys.ok()) return;
  WriteHeads(keys);
  WriteKvHeads(keys, layers);
  WriteWidths(keys, layers);
  WriteRotations(keys, divisors);
  keys.CopyInteger("attention.sliding_window", "sliding_window");
  json& config = keys.config();
  config["vocab_size_per_layer_input"] = config["vocab_size"];
  config["enable_moe_block"] = config.contains("num_experts");
}

}  // namespace tessera
