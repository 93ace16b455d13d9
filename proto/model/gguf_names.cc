#include "proto/model/gguf_names.h"

#include <array>
#include <utility>

#include "third_party/absl/str_cat.h"

namespace tessera {
namespace {

// A tensor of a layer in GGUF, and where its name stands in a family.
struct LayerSlot {
  std::string_view gguf;  // behind "blk.<index>."
  std::string_view TensorNames::*name;
};

constexpr std::array kSlots = {LayerSlot{"attn_norm", &TensorNames::attention_norm},
                               LayerSlot{"post_attention_norm", &TensorNames::attention_after_norm},
                               LayerSlot{"attn_q", &TensorNames::q},
                               LayerSlot{"attn_k", &TensorNames::k},
                               LayerSlot{"attn_v", &TensorNames::v},
                               LayerSlot{"attn_qkv", &TensorNames::qkv},
                               LayerSlot{"attn_gate", &TensorNames::head_gate},
                               LayerSlot{"attn_output", &TensorNames::o},
                               LayerSlot{"attn_q_norm", &TensorNames::q_norm},
                               LayerSlot{"attn_k_norm", &TensorNames::k_norm},
                               LayerSlot{"ffn_norm", &TensorNames::ffn_norm},
                               LayerSlot{"post_ffw_norm", &TensorNames::ffn_after_norm},
                               LayerSlot{"ffn_gate", &TensorNames::gate},
                               LayerSlot{"ffn_up", &TensorNames::up},
                               LayerSlot{"ffn_down", &TensorNames::down},
                               LayerSlot{"ffn_gate_inp", &TensorNames::router},
                               LayerSlot{"post_ffw_norm_1", &TensorNames::dense_after_norm},
                               LayerSlot{"pre_ffw_norm_2", &TensorNames::experts_norm},
                               LayerSlot{"post_ffw_norm_2", &TensorNames::experts_after_norm},
                               LayerSlot{"inp_gate", &TensorNames::per_layer_gate},
                               LayerSlot{"proj", &TensorNames::per_layer_output},
                               LayerSlot{"post_norm", &TensorNames::per_layer_after_norm}};
// All experts of a layer in one tensor.
constexpr std::array kExpertSlots = {LayerSlot{"ffn_gate_exps", &TensorNames::expert_gate},
                                     LayerSlot{"ffn_up_exps", &TensorNames::expert_up},
                                     LayerSlot{"ffn_down_exps", &TensorNames::expert_down}};
// The shared expert.
constexpr std::array kSharedSlots = {LayerSlot{"ffn_gate_shexp", &TensorNames::expert_gate},
                                     LayerSlot{"ffn_up_shexp", &TensorNames::expert_up},
                                     LayerSlot{"ffn_down_shexp", &TensorNames::expert_down}};
// With what stands behind the name in GGUF; the family's are whole names.
constexpr std::array kWholeSlots = {
    LayerSlot{"attn_sinks.weight", &TensorNames::sinks},
    LayerSlot{"exp_probs_b.bias", &TensorNames::router_correction},
    LayerSlot{"layer_output_scale.weight", &TensorNames::output_scale},
    LayerSlot{"ffn_gate_inp.scale", &TensorNames::router_norm},
    LayerSlot{"ffn_down_exps.scale", &TensorNames::expert_scales},
    LayerSlot{"ffn_gate_exps.bias", &TensorNames::expert_gate_bias},
    LayerSlot{"ffn_up_exps.bias", &TensorNames::expert_up_bias},
    LayerSlot{"ffn_down_exps.bias", &TensorNames::expert_down_bias}};

// Tensors of a layer with a gated delta net; with what stands behind the name where the family's is
// whole.
struct DeltaSlot {
  std::string_view gguf;
  std::string_view DeltaNames::*name;
  size_t dimensions = 0;  // of GgufPlace
};
constexpr std::array kDeltaSlots = {
    DeltaSlot{"attn_qkv", &DeltaNames::qkv},  DeltaSlot{"attn_gate", &DeltaNames::z},
    DeltaSlot{"ssm_beta", &DeltaNames::b},    DeltaSlot{"ssm_alpha", &DeltaNames::a},
    DeltaSlot{"ssm_ba", &DeltaNames::ba},     DeltaSlot{"ssm_conv1d", &DeltaNames::conv, 3},
    DeltaSlot{"ssm_norm", &DeltaNames::norm}, DeltaSlot{"ssm_out", &DeltaNames::output}};
constexpr std::array kWholeDeltaSlots = {DeltaSlot{"ssm_a", &DeltaNames::decay_log},
                                         DeltaSlot{"ssm_dt.bias", &DeltaNames::decay_bias}};

// Tensors of latent attention.
struct LatentSlot {
  std::string_view gguf;
  std::string_view LatentNames::*name;
  size_t dimensions = 0;
};
constexpr std::array kLatentSlots = {LatentSlot{"attn_kv_a_mqa", &LatentNames::down},
                                     LatentSlot{"attn_kv_a_norm", &LatentNames::norm},
                                     LatentSlot{"attn_kv_b", &LatentNames::up},
                                     LatentSlot{"attn_k_b", &LatentNames::up_keys, 2},
                                     LatentSlot{"attn_v_b", &LatentNames::up_values, 2},
                                     LatentSlot{"attn_q_a", &LatentNames::query_down},
                                     LatentSlot{"attn_q_a_norm", &LatentNames::query_norm},
                                     LatentSlot{"attn_q_b", &LatentNames::query_up}};

template <typename Slot, size_t kCount>
const Slot* FindSlot(const std::array<Slot, kCount>& slots, std::string_view name) {
  for (const Slot& slot : slots) {
    if (slot.gguf == name) return &slot;
  }
  return nullptr;
}

// `name`: behind "blk.<index>.". The place's name is relative to the layer's.
GgufPlace PlaceInLayer(const GgufFacts& facts, const TensorNames& names, std::string_view name) {
  constexpr std::string_view kSharedGate = "ffn_gate_inp_shexp", kCorrection = "exp_probs_b";
  if (const DeltaSlot* slot = FindSlot(kWholeDeltaSlots, name)) {
    return {.name = std::string(names.delta.*slot->name)};
  }
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return {};
  const std::string_view base = name.substr(0, dot), suffix = name.substr(dot);
  if (const LayerSlot* slot = FindSlot(kWholeSlots, name)) {
    return {.name = std::string(names.*slot->name), .dimensions = base == kCorrection ? 1u : 0u};
  }
  const auto with_suffix = [&](std::string_view found) {
    return GgufPlace{.name = found.empty() ? "" : StrCat(found, suffix)};
  };
  const auto placed = [&](std::string_view found, size_t dimensions) {
    GgufPlace place = with_suffix(found);
    place.dimensions = dimensions;
    return place;
  };
  const DeltaSlot* delta = FindSlot(kDeltaSlots, base);
  if (delta != nullptr && !(names.delta.*delta->name).empty()) {
    return placed(names.delta.*delta->name, delta->dimensions);
  }
  const LatentSlot* latent = FindSlot(kLatentSlots, base);
  if (latent != nullptr && !(names.latent.*latent->name).empty()) {
    return placed(names.latent.*latent->name, latent->dimensions);
  }
  if (base == facts.ffn_norm) return with_suffix(names.ffn_norm);
  if (base == "ffn_up" && !names.gate_up.empty()) return with_suffix(names.gate_up);
  if (base == kSharedGate) return placed(names.shared_gate, 2);
  if (const LayerSlot* slot = FindSlot(kSlots, base)) return with_suffix(names.*slot->name);
  if (const LayerSlot* slot = FindSlot(kSharedSlots, base)) {
    if (names.shared.empty()) return {};
    return with_suffix(StrCat(names.shared, ".", names.*slot->name));
  }
  if (names.experts.empty()) return {};
  if (base == "ffn_gate_up_exps") {
    const std::string expert = StrCat(names.experts, ".", kGgufExpertMark, ".");
    return {.name = StrCat(expert, names.expert_gate, suffix),
            .of_experts = true,
            .dimensions = 0,
            .second = StrCat(expert, names.expert_up, suffix)};
  }
  const LayerSlot* slot = FindSlot(kExpertSlots, base);
  if (slot == nullptr) return {};
  return {.name = StrCat(names.experts, ".", kGgufExpertMark, ".", names.*slot->name, suffix),
          .of_experts = true};
}

}  // namespace

TensorNames NamesInGguf(const TensorNames& names) {
  TensorNames in_gguf = names;
  in_gguf.norm_offset = 0;
  in_gguf.draft_head = {};
  in_gguf.qkv_rows = QkvRows::kBlocks;
  in_gguf.correction_is_row = false;
  in_gguf.norm_of_each_head = false;
  if (!names.latent.up.empty()) {
    in_gguf.latent.up_keys = "self_attn.k_b_proj";
    in_gguf.latent.up_values = "self_attn.v_b_proj";
  }
  if (!names.delta.conv.empty()) {
    DeltaNames& delta = in_gguf.delta;
    delta.decay_is_rate = true;
    delta.values_by_turns = delta.qkvz.empty();  // where z has a matrix of its own in the family
    delta.qkvz = {};
    delta.qkv = "linear_attn.in_proj_qkv";
    delta.z = "linear_attn.in_proj_z";
  }
  if (names.experts.empty() && !names.stacked_up.empty()) {
    in_gguf.stacked_up = {};
    in_gguf.experts = "mlp.experts";
    in_gguf.expert_gate = "gate_proj";
    in_gguf.expert_up = "up_proj";
    in_gguf.expert_down = "down_proj";
    in_gguf.expert_gate_bias = "mlp.experts.gate_proj_bias";
    in_gguf.expert_up_bias = "mlp.experts.up_proj_bias";
    in_gguf.expert_down_bias = "mlp.experts.down_proj_bias";
  }
  return in_gguf;
}

GgufPlace PlaceInFamily(const Family& family, std::string_view name) {
  const TensorNames names = NamesInGguf(family.tensors);
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return {};
  const std::string_view base = name.substr(0, dot), suffix = name.substr(dot);
  if (base == "token_embd") return {.name = StrCat(names.roots[0], names.embedding, suffix)};
  if (base == "output_norm") return {.name = StrCat(names.roots[0], names.final_norm, suffix)};
  for (const auto& [gguf, of_family] : {std::pair("per_layer_token_embd", names.per_layer_table),
                                        {"per_layer_model_proj", names.per_layer_context},
                                        {"per_layer_proj_norm", names.per_layer_norm}}) {
    if (base == gguf && !of_family.empty()) return {StrCat(names.roots[0], of_family, suffix)};
  }
  if (base == "output") return {.name = StrCat(names.head, suffix)};
  constexpr std::string_view kLayer = "blk.";
  const size_t end = name.find('.', kLayer.size());
  if (!name.starts_with(kLayer) || end == std::string_view::npos) return {};
  const std::string_view index = name.substr(kLayer.size(), end - kLayer.size());
  GgufPlace place = PlaceInLayer(family.gguf, names, name.substr(end + 1));
  if (place.name.empty()) return {};
  for (std::string* one : {&place.name, &place.second}) {
    if (!one->empty()) *one = StrCat(names.roots[0], names.layers, ".", index, ".", *one);
  }
  return place;
}

}  // namespace tessera
