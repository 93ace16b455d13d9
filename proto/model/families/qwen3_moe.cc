// Qwen3-MoE, alone and as the text part of Qwen3-VL: Qwen3's attention; routed experts, in some
// layers perhaps a dense ffn. Rotations for images (mrope) are plain ones for text.
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

void ReadText(ConfigDraft& draft) {
  v1::LayerKind dense;
  ReadLlamaLayer(draft, &dense);
  dense.mutable_attention()->set_qk_norm(true);
  RefuseSharedExperts(draft.config);
  v1::Experts experts;
  ReadExperts(draft, {.count = 60, .per_token = 4, .width = 1408}, &experts);
  experts.set_renormalise(true);
  if (!draft.config.BoolOr("norm_topk_prob", true)) {
    draft.config.Fail("norm_topk_prob", "false is not supported: transformers takes it for true");
  }
  AppendMixedLayers(draft, dense, RoutedLayer(dense, experts, 0), ReadQwenRoutedLayers(draft));
}

// Experts in one tensor have their inputs first.
constexpr TensorNames kTextTensors = [] {
  TensorNames names = Wrapped(WithExperts(kQkNormTensors));
  names.stacked = StackedExperts::kInputHalves;
  return names;
}();

}  // namespace

extern const Family kQwen3Moe = {.architecture = "Qwen3MoeForCausalLM",
                                 .name = "Qwen3-MoE",
                                 .read = Read,
                                 .tensors = WithExperts(kQkNormTensors),
                                 .kv_heads = 4,
                                 .max_positions = 32768,
                                 .gguf = {.architecture = "qwen3moe",
                                          .with_images = "qwen3vlmoe",
                                          .with_experts = true,
                                          .config = R"({"norm_topk_prob": true})",
                                          .keys = {{{"n_deepstack_layers", ""}}}}};  // of images

extern const Family kQwen3VlMoeWrapped = {.architecture = "Qwen3VLMoeForConditionalGeneration",
                                          .name = "Qwen3-VL with experts (its text part)",
                                          .read = ReadText,
                                          .tensors = kTextTensors,
                                          .wrapped = true,
                                          .rope_theta = 500000,
                                          .vocabulary = 151936,
                                          .heads = 16,
                                          .kv_heads = 16,
                                          .max_positions = 128000,
                                          .tied_embeddings = true};

}  // namespace tessera
