// Mixtral: Mistral with routed experts in every layer.
#include "proto/layers/layers.h"
#include "proto/model/families/config_parts.h"

namespace tessera {
namespace {

void Read(ConfigDraft& draft) {
  v1::LayerKind layer;
  ReadLlamaLayer(draft, &layer);
  ReadWindow(draft, layer.mutable_attention());
  v1::Ffn& ffn = *layer.mutable_ffn();
  v1::Experts& experts = *ffn.mutable_experts();
  experts.set_count(draft.config.IntegerOr("num_local_experts", 8, 1, kMaxExperts));
  experts.set_per_token(draft.config.IntegerOr("num_experts_per_tok", 2, 1, kMaxExperts));
  experts.set_width(ffn.width());
  experts.set_renormalise(true);
  ffn.set_width(0);
  CheckExperts(draft, experts);
  AppendLayers(layer, draft.layers, draft.model);
}

constexpr TensorNames kTensors = [] {
  TensorNames names = kLlamaTensors;
  names.router = "block_sparse_moe.gate";
  names.experts = "block_sparse_moe.experts";
  names.expert_gate = "w1";
  names.expert_up = "w3";
  names.expert_down = "w2";
  return names;
}();

}  // namespace

extern const Family kMixtral = {.architecture = "MixtralForCausalLM",
                                .name = "Mixtral",
                                .read = Read,
                                .tensors = kTensors,
                                .rope_theta = 1e6,
                                .norm_epsilon = 1e-5,
                                .kv_heads = 8,
                                .max_positions = 4096 * 32};

}  // namespace tessera
