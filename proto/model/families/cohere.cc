// Command R: attention and ffn parallel behind one norm without bias, neighbouring pairs rotated,
// logits scaled, perhaps norms with weights for each head of q and k.
#include "proto/layers/layers.h"
#include "proto/model/families/config_parts.h"

namespace tessera {
namespace {

void Read(ConfigDraft& draft) {
  v1::LayerKind layer;
  ReadCohereLayer(draft, &layer);
  const bool qk_norm = draft.config.BoolOr("use_qk_norm", false);
  layer.mutable_attention()->set_qk_norm(qk_norm);
  layer.mutable_attention()->set_qk_norm_by_head(qk_norm);
  AppendLayers(layer, draft.layers, draft.model);
}

}  // namespace

extern const Family kCohere = {.architecture = "CohereForCausalLM",
                               .name = "Command R, R+",
                               .read = Read,
                               .tensors = kQkNormTensors,
                               .rope_theta = 500000,
                               .norm_epsilon = 1e-5,
                               .vocabulary = 256000,
                               .heads = 64,
                               .max_positions = 8192,
                               .neighbour_pairs = true,
                               .tied_embeddings = true,
                               .gguf = {.architecture = "command-r",
                                        .flags = {{{"use_qk_norm", "attn_q_norm.weight"}}},
                                        .keys = {{{"logit_scale", "logit_scale"}}}}};

}  // namespace tessera
