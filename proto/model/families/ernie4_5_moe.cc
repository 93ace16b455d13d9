// ERNIE 4.5 with experts: ERNIE's attention; in some layers routed experts, chosen by their
// probability with a correction, and shared ones.

#include "proto/layers/layers.h"
#include "proto/model/families/config_parts.h"
#include "proto/model/families/expert_config.h"

namespace tessera {
namespace {

void Read(ConfigDraft& draft) {
  JsonReader& config = draft.config;
  v1::LayerKind dense;
  ReadLlamaLayer(draft, &dense);
  // Routed experts have none.
  const bool biases = config.BoolOr("use_bias", false);
  dense.mutable_attention()->set_qkv_bias(biases);
  dense.mutable_attention()->set_output_bias(biases);
  dense.mutable_ffn()->set_bias(biases);
  draft.model->set_head_bias(biases);
  v1::Experts experts;
  ReadExperts(draft, {.count = 64, .per_token = 6, .width = 1536}, &experts);
  experts.set_renormalise(true);
  experts.set_correction_bias(true);
  const int64_t shared = config.IntegerOr("moe_num_shared_experts", 2, 0, kMaxExperts);
  const int64_t interval = config.IntegerOr("moe_layer_interval", 1, 1, kMaxLayers);
  const int64_t first = config.IntegerOr("moe_layer_start_index", 1, 0, kMaxLayers);
  const int64_t last = config.IntegerOr("moe_layer_end_index", -1, -1, kMaxLayers);
  AppendMixedLayers(
      draft, dense, RoutedLayer(dense, experts, shared * experts.width()), [&](int64_t layer) {
        return (layer + 1) % interval == 0 && layer >= first && (last == -1 || layer <= last);
      });
}

constexpr TensorNames kTensors = [] {
  TensorNames names = WithExperts(kLlamaTensors);
  names.router_correction = "mlp.moe_statics.e_score_correction_bias";
  names.correction_is_row = true;
  names.stacked_correction = "mlp.gate.moe_statics.e_score_correction_bias";
  names.shared = "mlp.shared_experts";
  return names;
}();

// The width of the shared expert is written wrong by llama.cpp's converter, and nobody reads it.
constexpr GgufFacts::Keys kGgufKeys = {{{"expert_shared_count", "moe_num_shared_experts"},
                                        {"expert_shared_feed_forward_length", ""},
                                        {"leading_dense_block_count", "moe_layer_start_index"},
                                        {"interleave_moe_layer_step", "moe_layer_interval"}}};

}  // namespace

extern const Family kErnie45Moe = {.architecture = "Ernie4_5_MoeForCausalLM",
                                   .name = "ERNIE 4.5 with experts",
                                   .read = Read,
                                   .tensors = kTensors,
                                   .rope_theta = 5e5,
                                   .norm_epsilon = 1e-5,
                                   .kv_heads = 4,
                                   .max_positions = 131072,
                                   .neighbour_pairs = true,
                                   .tied_embeddings = true,
                                   .gguf = {.architecture = "ernie4_5-moe",
                                            .with_experts = true,
                                            .flags = {{{"use_bias", "attn_q.bias"}}},
                                            .keys = kGgufKeys}};

}  // namespace tessera
