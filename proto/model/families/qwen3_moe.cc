// Qwen3-MoE: Qwen3's attention; routed experts, in some layers perhaps a dense ffn.
#include "proto/model/families/config_parts.h"
#include "proto/model/families/expert_config.h"

namespace tessera {
namespace {

void Read(ConfigDraft& draft) {
  v1::LayerKind dense;
  ReadLlamaLayer(draft, &dense);
  dense.mutable_attention()->set_qk_norm(true);
  dense.mutable_attention()->set_window(ReadQwenWindow(draft));
  RefuseSharedExperts(draft.config);
  v1::Experts experts;
  ReadExperts(draft, {.count = 128, .per_token = 8, .width = 768}, &experts);
  experts.set_renormalise(draft.config.BoolOr("norm_topk_prob", false));
  AppendMixedLayers(draft, dense, RoutedLayer(dense, experts, 0), ReadQwenRoutedLayers(draft));
}

}  // namespace

extern const Family kQwen3Moe = {
    .architecture = "Qwen3MoeForCausalLM",
    .name = "Qwen3-MoE",
    .read = Read,
    .tensors = WithExperts(kQkNormTensors),
    .kv_heads = 4,
    .max_positions = 32768,
    .gguf = {
        .architecture = "qwen3moe", .with_experts = true, .config = R"({"norm_topk_prob": true})"}};

}  // namespace tessera
