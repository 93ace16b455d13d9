// Gemma 4, alone, as the text part of what takes images and sound, and the unified one (12B): heads
// of one size in layers with a window and of another in the others, whose values may be their keys;
// norms over the heads of q, k and v; perhaps experts beside a dense ffn, each between norms of its
// own; perhaps keys and values that later layers borrow, and embeddings of each layer; a number
// that multiplies a layer's output.
#include <nlohmann/json.hpp>
#include <vector>

#include "proto/layers/layers.h"
#include "proto/model/families/config_parts.h"
#include "proto/model/families/expert_config.h"
#include "proto/model/families/rope_config.h"
#include "third_party/absl/str_cat.h"

namespace tessera {
namespace {

// The entry of a layer, whose number transformers pads with zeros to the width of the last one's
// ("05"); null: there is none.
const nlohmann::json* EntryOf(const nlohmann::json& layers, int64_t layer) {
  constexpr size_t kMaxDigits = 8;
  for (std::string name = StrCat(layer); name.size() <= kMaxDigits; name.insert(0, "0")) {
    if (const auto found = layers.find(name); found != layers.end()) return &*found;
  }
  return nullptr;
}

// Heads of layers without a window, as transformers 5 writes them, by layer; null: not so.
const nlohmann::json* PerLayerConfig(ConfigDraft& draft, const std::vector<bool>& windowed) {
  constexpr const char* kKey = "per_layer_config";
  JsonReader& config = draft.config;
  if (!config.Has(kKey)) return nullptr;
  const nlohmann::json& layers = config.At(kKey);
  const nlohmann::json* one = nullptr;
  for (int64_t i = 0; layers.is_object() && i < draft.layers; ++i) {
    const nlohmann::json* found = EntryOf(layers, i);
    const bool full = !windowed[static_cast<size_t>(i)];
    if (full != (found != nullptr) || (one != nullptr && full && *one != *found)) {
      config.Fail(kKey, "must say the same of all layers without a window, and nothing of others");
      return nullptr;
    }
    if (full) one = found;
  }
  if (one == nullptr || !one->is_object()) config.Fail(kKey, "must be an object of objects");
  return one != nullptr && one->is_object() ? one : nullptr;
}

// Heads of layers without a window.
void ReadGlobalHeads(ConfigDraft& draft, const std::vector<bool>& windowed,
                     v1::Attention* attention) {
  JsonReader& config = draft.config;
  const bool values_are_keys = config.BoolOr("attention_k_eq_v", false);
  attention->set_values_are_keys(values_are_keys);
  constexpr const char *kSize = "global_head_dim", *kHeads = "num_global_key_value_heads";
  // Passed over by transformers where values are not keys.
  config.Pass(kHeads);
  int64_t kv_heads = attention->kv_heads();
  const nlohmann::json* by_layer = PerLayerConfig(draft, windowed);
  if (!config.ok()) return;
  if (by_layer != nullptr) {
    JsonReader layer(*by_layer, StrCat(config.file(), ": per_layer_config"));
    attention->set_head_dim(layer.IntegerOr("head_dim", attention->head_dim(), 1, kMaxHeads));
    kv_heads = layer.IntegerOr("num_key_value_heads", kv_heads, 1, kMaxHeads);
    config.Adopt(layer.status());
  } else {
    attention->set_head_dim(config.IntegerOr(kSize, 512, 1, kMaxHeads));
    if (values_are_keys) kv_heads = config.IntegerOr(kHeads, kv_heads, 1, kMaxHeads);
  }
  if (attention->heads() % kv_heads != 0) {
    config.Fail(kHeads, StrCat("(", kv_heads, ") does not divide num_attention_heads (",
                               attention->heads(), ")"));
  }
  attention->set_kv_heads(static_cast<int32_t>(kv_heads));
}

// Both kinds of layers have the same ffn.
void ReadFfn(ConfigDraft& draft, v1::LayerKind* layer) {
  JsonReader& config = draft.config;
  ReadLlamaFfn(draft, "hidden_activation", "gelu_pytorch_tanh", layer);
  if (!config.BoolOr("enable_moe_block", false)) {
    for (const char* key : {"num_experts", "top_k_experts", "moe_intermediate_size"}) {
      config.Pass(key);
    }
    return;
  }
  v1::Experts experts;
  ReadExperts(draft, {.count = 0, .per_token = 0}, &experts);
  experts.set_renormalise(true);
  experts.set_expert_scales(true);
  *layer = RoutedLayer(*layer, experts, layer->ffn().width());
  layer->mutable_ffn()->set_normed_apart(true);
}

// Behind layers that lend keys and values their borrowers; ffns of these may be twice as wide.
void AppendWithBorrowers(ConfigDraft& draft, const v1::LayerKind& full, const v1::LayerKind& window,
                         const std::vector<bool>& windowed) {
  JsonReader& config = draft.config;
  const int64_t borrowers = config.IntegerOr("num_kv_shared_layers", 0, 0, draft.layers - 1);
  const int64_t widening = config.BoolOr("use_double_wide_mlp", false) ? 2 : 1;
  if (!config.ok()) return;
  for (int64_t i = 0; i < draft.layers; ++i) {
    v1::LayerKind kind = windowed[static_cast<size_t>(i)] ? window : full;
    if (i >= draft.layers - borrowers) {
      kind.mutable_attention()->set_borrows_kv(true);
      kind.mutable_attention()->set_value_norm(false);
      kind.mutable_attention()->set_values_are_keys(false);
      kind.mutable_ffn()->set_width(static_cast<int32_t>(kind.ffn().width() * widening));
    }
    AppendLayers(kind, 1, draft.model);
  }
}

// E2B and E4B: each layer has embeddings of its own, in one table of all.
void ReadPerLayerEmbeddings(ConfigDraft& draft) {
  JsonReader& config = draft.config;
  constexpr const char* kRows = "vocab_size_per_layer_input";
  const int64_t width =
      config.IntegerOr("hidden_size_per_layer_input", draft.family.per_layer_width, 0, kMaxHeads);
  const int64_t rows = config.IntegerOr(kRows, draft.family.vocabulary, 1, kMaxWidth);
  if (width == 0 || !config.ok()) return;
  if (rows != draft.model->vocabulary()) {
    config.Fail(kRows,
                StrCat("(", rows, ") must equal vocab_size (", draft.model->vocabulary(), ")"));
  }
  draft.model->set_per_layer_width(static_cast<int32_t>(width));
  draft.model->set_per_layer_scale(GemmaScale(*draft.model, width));
}

void Read(ConfigDraft& draft) {
  JsonReader& config = draft.config;
  v1::LayerKind window;
  ReadFfn(draft, &window);
  v1::Attention& attention = *window.mutable_attention();
  ReadHeads(draft, &attention);
  ReadAttentionBias(draft, &attention);
  window.set_norm_place(v1::NORM_PLACE_BOTH);
  window.set_output_scale(true);
  attention.set_qk_norm(true);
  attention.set_value_norm(true);
  attention.set_scale(1);
  draft.model->set_logits_soft_cap(config.NumberOr("final_logit_softcapping", 0, 1e-6, 1e6));
  RefuseBidirectional(draft);
  ScaleGemmaEmbedding(draft);
  ReadPerLayerEmbeddings(draft);
  std::vector<bool> windowed =
      ReadLayerTypes(draft, [](int64_t layer) { return (layer + 1) % 6 != 0; });
  if (!config.ok()) return;
  windowed.back() = false;  // whatever the file says

  v1::LayerKind full = window;
  v1::Attention& global = *full.mutable_attention();
  ReadGlobalHeads(draft, windowed, &global);
  if (!config.ok()) return;
  const int64_t positions = draft.model->max_positions();
  const LayerTypeRope of_full = {.layer_type = "full_attention",
                                 .theta_key = "rope_theta",
                                 .theta = 1e6,
                                 .scaled = true,
                                 .turning_part = 0.25};
  const LayerTypeRope of_window = {.layer_type = "sliding_attention",
                                   .theta_key = "rope_local_base_freq",
                                   .theta = 1e4,
                                   .scaled = false};
  *global.mutable_rope() = ReadRopeOfType(config, of_full, global.head_dim(), positions).rope;
  *attention.mutable_rope() =
      ReadRopeOfType(config, of_window, attention.head_dim(), positions).rope;
  attention.set_window(ReadWindowSize(draft));
  AppendWithBorrowers(draft, full, window, windowed);
}

constexpr TensorNames kTensors = [] {
  TensorNames names = WithExperts(kQkNormTensors);
  names.attention_after_norm = "post_attention_layernorm";
  names.ffn_norm = "pre_feedforward_layernorm";
  names.ffn_after_norm = "post_feedforward_layernorm";
  names.output_scale = "layer_scalar";
  names.per_layer_table = "embed_tokens_per_layer";
  names.per_layer_context = "per_layer_model_projection";
  names.per_layer_norm = "per_layer_projection_norm";
  names.per_layer_gate = "per_layer_input_gate";
  names.per_layer_output = "per_layer_projection";
  names.per_layer_after_norm = "post_per_layer_input_norm";
  names.shared = "mlp";
  names.router = "router.proj";
  names.router_norm = "router.scale";
  names.expert_scales = "router.per_expert_scale";
  names.experts = "experts";
  names.stacked_up = "experts.gate_up_proj";
  names.stacked_down = "experts.down_proj";
  names.dense_after_norm = "post_feedforward_layernorm_1";
  names.experts_norm = "pre_feedforward_layernorm_2";
  names.experts_after_norm = "post_feedforward_layernorm_2";
  return names;
}();

}  // namespace

extern const Family kGemma4 = {
    .architecture = "Gemma4ForCausalLM",
    .name = "Gemma 4 (text)",
    .read = Read,
    .tensors = kTensors,
    .vocabulary = 262144,
    .heads = 8,
    .kv_heads = 4,
    .head_dim = 256,
    .max_positions = 131072,
    .sliding_window = 512,
    .per_layer_width = 256,
    .tied_embeddings = true,
    .gguf = {.architecture = "gemma4",
             .with_experts = true,
             .without_experts_too = true,
             .keys = {{{.gguf = "final_logit_softcapping", .config = "final_logit_softcapping"},
                       {.gguf = "attention.shared_kv_layers", .config = "num_kv_shared_layers"},
                       {.gguf = "embedding_length_per_layer_input",
                        .config = "hidden_size_per_layer_input"}}},
             .heads_by_kind = true}};

extern const Family kGemma4Wrapped = {.architecture = "Gemma4ForConditionalGeneration",
                                      .name = "Gemma 4 E2B, E4B, 26B-A4B, 31B (their text parts)",
                                      .read = Read,
                                      .tensors = Wrapped(kTensors),
                                      .wrapped = true,
                                      .vocabulary = 262144,
                                      .heads = 8,
                                      .kv_heads = 4,
                                      .head_dim = 256,
                                      .max_positions = 131072,
                                      .sliding_window = 512,
                                      .per_layer_width = 256,
                                      .tied_embeddings = true};

extern const Family kGemma4Unified = {.architecture = "Gemma4UnifiedForConditionalGeneration",
                                      .name = "Gemma 4 12B (its text part)",
                                      .read = Read,
                                      .tensors = Wrapped(kTensors),
                                      .wrapped = true,
                                      .vocabulary = 262144,
                                      .heads = 8,
                                      .kv_heads = 4,
                                      .head_dim = 256,
                                      .max_positions = 262144,
                                      .sliding_window = 1024,
                                      .tied_embeddings = true};

}  // namespace tessera
