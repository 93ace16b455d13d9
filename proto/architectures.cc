#include "proto/architectures.h"

#include <string>

#include "third_party/absl/str_cat.h"

namespace tessera {
namespace {

constexpr TensorNames kLlama = {.roots = {"model.", ""},
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

constexpr TensorNames kQwen3 = [] {
  TensorNames names = kLlama;
  names.q_norm = "self_attn.q_norm";
  names.k_norm = "self_attn.k_norm";
  return names;
}();

constexpr TensorNames kQwen3Moe = [] {
  TensorNames names = kQwen3;
  names.router = "mlp.gate";
  names.experts = "mlp.experts";
  names.expert_gate = "gate_proj";
  names.expert_up = "up_proj";
  names.expert_down = "down_proj";
  return names;
}();

constexpr TensorNames kMixtral = [] {
  TensorNames names = kLlama;
  names.router = "block_sparse_moe.gate";
  names.experts = "block_sparse_moe.experts";
  names.expert_gate = "w1";
  names.expert_up = "w3";
  names.expert_down = "w2";
  return names;
}();

constexpr TensorNames kOpt = {.roots = {"model.decoder.", "decoder."},
                              .embedding = "embed_tokens",
                              .positions = "embed_positions",
                              .project_in = "project_in",
                              .project_out = "project_out",
                              .final_norm = "final_layer_norm",
                              .head = "lm_head",
                              .layers = "layers",
                              .attention_norm = "self_attn_layer_norm",
                              .q = "self_attn.q_proj",
                              .k = "self_attn.k_proj",
                              .v = "self_attn.v_proj",
                              .o = "self_attn.out_proj",
                              .ffn_norm = "final_layer_norm",
                              .up = "fc1",
                              .down = "fc2"};

constexpr std::array<Architecture, 7> kArchitectures = {{{"LlamaForCausalLM", kLlama},
                                                         {"MistralForCausalLM", kLlama},
                                                         {"Qwen2ForCausalLM", kLlama},
                                                         {"Qwen3ForCausalLM", kQwen3},
                                                         {"OPTForCausalLM", kOpt},
                                                         {"MixtralForCausalLM", kMixtral},
                                                         {"Qwen3MoeForCausalLM", kQwen3Moe}}};

}  // namespace

std::string_view RootOf(const TensorNames& names,
                        const std::function<bool(const std::string&)>& has) {
  const bool second = !has(StrCat(names.roots[0], names.embedding, ".weight")) &&
                      has(StrCat(names.roots[1], names.embedding, ".weight"));
  return names.roots[second ? 1 : 0];
}

absl::StatusOr<const Architecture*> FindArchitecture(std::string_view name) {
  std::string known;
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.name == name) return &architecture;
    known = StrCat(known, known.empty() ? "" : ", ", architecture.name);
  }
  return absl::InvalidArgumentError(
      StrCat("architecture '", name, "' is not supported; known are ", known));
}

}  // namespace tessera
