// Under which names a checkpoint of a family keeps its tensors.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <string_view>

namespace tessera {

// How q, k and v follow each other in one matrix: all of q, then k, then v; or head by head the
// rows of its q, k and v.
enum class QkvRows { kBlocks, kByHead };

// How checkpoints keep all experts of a layer in one tensor. kOutputs: gate and up [experts, 2 *
// width, hidden], gate's rows first, and down [experts, hidden, width]. kInputs: gate and up
// [experts, hidden, 2 * width], gate in the even columns, and down [experts, width, hidden]; codes
// of MXFP4 and biases are in the order of these columns. kInputHalves: the same with gate's columns
// first, then up's.
enum class StackedExperts { kOutputs, kInputs, kInputHalves };

// Names in a gated delta net. Projections have matrices of their own, of all heads, or share one in
// which the rows of a key head with its value heads follow each other: q, k, v, z, and b, a.
struct DeltaNames {
  std::string_view qkv = {}, z = {}, b = {}, a = {};
  std::string_view qkvz = {}, ba = {};  // instead of the four before
  std::string_view conv = {};
  std::string_view decay_log = {}, decay_bias = {};  // whole names
  std::string_view norm = {};
  std::string_view output = {};
  // Value heads stand by turns: the first of every key head, then the second of every one.
  bool values_by_turns = false;
  bool decay_is_rate = false;  // decay_log holds -exp(what it is called)
};

// Names in latent attention: to the latent and the rotated key, its norm, from it to the keys and
// values of heads; to the vector that queries are made from, its norm, from it to queries.
struct LatentNames {
  std::string_view down = {}, norm = {}, up = {};
  // Instead of `up`: of each head [latent, key], and [value, latent].
  std::string_view up_keys = {}, up_values = {};
  std::string_view query_down = {}, query_norm = {}, query_up = {};
};

// Names of a head that predicts further tokens (v1::DraftHead), behind `base`; empty: behind that
// of the layer that follows the last one. `layer`: before the names of a layer's tensors.
struct DraftHeadNames {
  std::string_view base = {}, layer = {};
  std::string_view fuse = {};
  std::string_view embedding_norm = {}, hidden_norm = {}, final_norm = {};
  std::string_view stacked_up = {};  // TensorNames::stacked_up of its layer (NamesIn)
};

// Names without ".weight" and ".bias"; empty: the family has no such tensor.
struct TensorNames {
  // Prefixes of everything but the head; the first one under which the embedding is found is used:
  // checkpoints saved without the head's class, or inside another one, have others.
  std::array<std::string_view, 4> roots = {};
  std::string_view embedding = {};
  std::string_view positions = {};
  std::string_view project_in = {};
  std::string_view project_out = {};
  std::string_view final_norm = {};
  std::string_view head = {};        // from no root
  std::string_view other_head = {};  // where the checkpoint has no tensor of the name before
  std::string_view layers = {};
  // Below: relative to "<root><layers>.<index>."
  std::string_view attention_norm = {};        // before the block, or after the residual
  std::string_view attention_after_norm = {};  // of the block's output
  std::string_view q = {}, k = {}, v = {}, o = {};
  std::string_view qkv = {};  // instead of q, k and v: one matrix of all
  QkvRows qkv_rows = QkvRows::kBlocks;
  // Gates of what heads read (v1::Attention::output_gate); empty: their rows are among those of q.
  std::string_view head_gate = {};
  std::string_view q_norm = {}, k_norm = {};
  bool norm_of_each_head = false;  // "<q_norm>.<head>" is the norm of one head; else of all
  LatentNames latent = {};         // instead of k and v; with a query_rank, of q
  DeltaNames delta = {};           // of layers with one, instead of those from q on
  std::string_view ffn_norm = {};
  std::string_view ffn_after_norm = {};
  std::string_view gate = {}, up = {}, down = {};
  std::string_view gate_up = {};  // instead of gate and up: one matrix, gate's rows first
  std::string_view router = {};
  std::string_view experts = {};  // "<experts>.<index>." is the prefix of the next three
  std::string_view expert_gate = {}, expert_up = {}, expert_down = {};
  // Whole names; used where the checkpoint has them.
  std::string_view stacked_up = {}, stacked_down = {};
  StackedExperts stacked = StackedExperts::kOutputs;
  // Beside them, where these have other names; the second one is a whole name.
  std::string_view stacked_router = {}, stacked_correction = {};
  // The three in checkpoints that have no stacked_up.
  std::string_view other_stacked_up = {}, other_stacked_down = {}, other_stacked_router = {};
  std::string_view stacked_up_bias = {}, stacked_down_bias = {};
  // Beside experts by number, of all of them: [experts, outputs]; whole names.
  std::string_view expert_gate_bias = {}, expert_up_bias = {}, expert_down_bias = {};
  std::string_view sinks = {};              // a whole name
  std::string_view router_correction = {};  // a whole name
  bool correction_is_row = false;           // of the shape [1, experts], else [experts]
  std::string_view shared = {};  // beside experts, "<shared>." is a prefix of the same three
  std::string_view shared_gate = {};
  // Names for v1::Ffn::normed_apart: norms of the dense ffn's output, and before and behind the
  // experts.
  std::string_view dense_after_norm = {}, experts_norm = {}, experts_after_norm = {};
  // Names for v1::Model::per_layer_width: from the root, of all layers; then of each layer.
  std::string_view per_layer_table = {}, per_layer_context = {}, per_layer_norm = {};
  std::string_view per_layer_gate = {}, per_layer_output = {}, per_layer_after_norm = {};
  // Whole names: of its router's norm, of v1::Experts::expert_scales, v1::LayerKind::output_scale.
  std::string_view router_norm = {}, expert_scales = {}, output_scale = {};
  DraftHeadNames draft_head = {};
  // Weights of norms are stored less this much (1: a norm multiplies by 1 + w), but for a delta
  // net's.
  float norm_offset = 0;
};

// The root under which the embedding is; `has` tells whether a tensor is in the checkpoint.
std::string_view RootOf(const TensorNames& names,
                        const std::function<bool(const std::string&)>& has);

// The head's name in the checkpoint.
std::string_view HeadOf(const TensorNames& names,
                        const std::function<bool(const std::string&)>& has);

// Llama's, which its descendants start from.
inline constexpr TensorNames kLlamaTensors = {.roots = {"model.", ""},
                                              .embedding = "embed_tokens",
                                              .final_norm = "norm",
                                              .head = "lm_head",
                                              .layers = "layers",
                                              .attention_norm = "input_layernorm",
                                              .q = "self_attn.q_proj",
                                              .k = "self_attn.k_proj",
                                              .v = "self_attn.v_proj",
                                              .o = "self_attn.o_proj",
                                              .ffn_norm = "post_attention_layernorm",
                                              .gate = "mlp.gate_proj",
                                              .up = "mlp.up_proj",
                                              .down = "mlp.down_proj"};

// The same with norms over the heads of q and k.
inline constexpr TensorNames kQkNormTensors = [] {
  TensorNames names = kLlamaTensors;
  names.q_norm = "self_attn.q_norm";
  names.k_norm = "self_attn.k_norm";
  return names;
}();

// A head for further tokens as DeepSeek-V3 published it: layer N, with norms and a matrix beside
// it.
inline constexpr DraftHeadNames kLayerDraftHead = {.fuse = "eh_proj",
                                                   .embedding_norm = "enorm",
                                                   .hidden_norm = "hnorm",
                                                   .final_norm = "shared_head.norm"};

// The same inside a model that takes images or sound as well: as published, and as transformers 5
// saves it.
constexpr TensorNames Wrapped(TensorNames names) {
  names.roots = {"language_model.model.", "model.language_model.", "model.", ""};
  names.head = "language_model.lm_head";
  names.other_head = "lm_head";
  return names;
}

}  // namespace tessera
