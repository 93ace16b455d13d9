// Qwen3-Next: three gated delta nets for each layer that attends; routed experts and a shared one
// with a gate of its own, in some layers perhaps a dense ffn. In projections the rows of a key head
// and its value heads stand together.
#include "proto/model/families/config_parts.h"
#include "proto/model/families/delta_config.h"

namespace tessera {
namespace {

void Read(ConfigDraft& draft) {
  JsonReader& config = draft.config;
  v1::LayerKind attending;
  ReadGatedAttention(draft, &attending);
  v1::LayerKind dense = attending, routed = attending;
  ReadGatedExperts(draft, {.count = 512, .per_token = 10, .width = 512}, &routed);
  routed.mutable_ffn()->mutable_experts()->set_renormalise(config.BoolOr("norm_topk_prob", true));
  dense.mutable_ffn()->set_gated(true);
  dense.mutable_ffn()->set_activation(routed.ffn().activation());
  dense.mutable_ffn()->set_width(config.IntegerOr("intermediate_size", 5632, 1, kMaxWidth));
  const auto is_routed = ReadQwenRoutedLayers(draft);
  // The published files have a head of which config.json says nothing.
  AppendDeltaLayers(
      draft, attending,
      [&](v1::LayerKind layer, int64_t i) {
        *layer.mutable_ffn() = (is_routed(i) ? routed : dense).ffn();
        return layer;
      },
      /*head_layers=*/1);
}

constexpr TensorNames kTensors = [] {
  TensorNames names = kDeltaExpertTensors;
  names.delta.qkv = names.delta.z = names.delta.b = names.delta.a = {};
  names.delta.qkvz = "linear_attn.in_proj_qkvz";
  names.delta.ba = "linear_attn.in_proj_ba";
  return names;
}();

}  // namespace

extern const Family kQwen3Next = {
    .architecture = "Qwen3NextForCausalLM",
    .name = "Qwen3-Next",
    .read = Read,
    .tensors = kTensors,
    .vocabulary = 151936,
    .heads = 16,
    .kv_heads = 2,
    .head_dim = 256,
    .max_positions = 32768,
    .partial_rotary = 0.25,
    .gguf = {.architecture = "qwen3next",
             .with_experts = true,
             .ffn_norm = "post_attention_norm",
             .keys = {{{"expert_shared_feed_forward_length", "shared_expert_intermediate_size"},
                       {"nextn_predict_layers", ""}}},  // heads are left out
             .delta = true}};

}  // namespace tessera
