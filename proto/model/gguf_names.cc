#include "proto/model/gguf_names.h"

#include <array>

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
                               LayerSlot{"attn_output", &TensorNames::o},
                               LayerSlot{"attn_q_norm", &TensorNames::q_norm},
                               LayerSlot{"attn_k_norm", &TensorNames::k_norm},
                               LayerSlot{"ffn_norm", &TensorNames::ffn_norm},
                               LayerSlot{"post_ffw_norm", &TensorNames::ffn_after_norm},
                               LayerSlot{"ffn_gate", &TensorNames::gate},
                               LayerSlot{"ffn_up", &TensorNames::up},
                               LayerSlot{"ffn_down", &TensorNames::down},
                               LayerSlot{"ffn_gate_inp", &TensorNames::router}};
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
    LayerSlot{"ffn_gate_exps.bias", &TensorNames::expert_gate_bias},
    LayerSlot{"ffn_up_exps.bias", &TensorNames::expert_up_bias},
    LayerSlot{"ffn_down_exps.bias", &TensorNames::expert_down_bias}};

template <size_t kCount>
const LayerSlot* FindSlot(const std::array<LayerSlot, kCount>& slots, std::string_view name) {
  for (const LayerSlot& slot : slots) {
    if (slot.gguf == name) return &slot;
  }
  return nullptr;
}

// `name`: behind "blk.<index>.". The place's name is relative to the layer's.
GgufPlace PlaceInLayer(const GgufFacts& facts, const TensorNames& names, std::string_view name) {
  constexpr std::string_view kSharedGate = "ffn_gate_inp_shexp", kCorrection = "exp_probs_b";
  const size_t dot = name.rfind('.');
  const std::string_view base = name.substr(0, dot), suffix = name.substr(dot);
  if (const LayerSlot* slot = FindSlot(kWholeSlots, name)) {
    return {.name = std::string(names.*slot->name), .dimensions = base == kCorrection ? 1u : 0u};
  }
  const auto with_suffix = [&](std::string_view found) {
    return GgufPlace{.name = found.empty() ? "" : StrCat(found, suffix)};
  };
  if (base == facts.ffn_norm) return with_suffix(names.ffn_norm);
  if (base == "ffn_up" && !names.gate_up.empty()) return with_suffix(names.gate_up);
  if (base == kSharedGate) {
    GgufPlace place = with_suffix(names.shared_gate);
    place.dimensions = 2;
    return place;
  }
  if (const LayerSlot* slot = FindSlot(kSlots, base)) return with_suffix(names.*slot->name);
  if (const LayerSlot* slot = FindSlot(kSharedSlots, base)) {
    if (names.shared.empty()) return {};
    return with_suffix(StrCat(names.shared, ".", names.*slot->name));
  }
  const LayerSlot* slot = FindSlot(kExpertSlots, base);
  if (slot == nullptr || names.experts.empty()) return {};
  return {.name = StrCat(names.experts, ".", kGgufExpertMark, ".", names.*slot->name, suffix),
          .of_experts = true};
}

}  // namespace

TensorNames NamesInGguf(const TensorNames& names) {
  TensorNames in_gguf = names;
  in_gguf.norm_offset = 0;
  in_gguf.qkv_rows = QkvRows::kBlocks;
  in_gguf.correction_is_row = false;
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
  if (base == "output") return {.name = StrCat(names.head, suffix)};
  constexpr std::string_view kLayer = "blk.";
  const size_t end = name.find('.', kLayer.size());
  if (!name.starts_with(kLayer) || end == std::string_view::npos || end >= dot) return {};
  const std::string_view index = name.substr(kLayer.size(), end - kLayer.size());
  GgufPlace place = PlaceInLayer(family.gguf, names, name.substr(end + 1));
  if (place.name.empty()) return {};
  place.name = StrCat(names.roots[0], names.layers, ".", index, ".", place.name);
  return place;
}

}  // namespace tessera
