// Command R7B and A: Command R whose layers have a window and rotation, but every fourth, which has
// neither.
#include "proto/layers/layers.h"
#include "proto/model/families/config_parts.h"

namespace tessera {
namespace {

void Read(ConfigDraft& draft) {
  v1::LayerKind windowed;
  ReadCohereLayer(draft, &windowed);
  const int64_t window = ReadWindowSize(draft);
  v1::LayerKind full = windowed;
  // transformers rotates where there is a window.
  full.mutable_attention()->clear_rope();
  windowed.mutable_attention()->set_window(window);
  for (const bool has_window : ReadPatternLayers(draft, 4)) {
    AppendLayers(has_window && window > 0 ? windowed : full, 1, draft.model);
  }
}

}  // namespace

extern const Family kCohere2 = {
    .architecture = "Cohere2ForCausalLM",
    .name = "Command R7B, A",
    .read = Read,
    .tensors = kLlamaTensors,
    .rope_theta = 10000,
    .norm_epsilon = 1e-5,
    .vocabulary = 256000,
    .heads = 64,
    .max_positions = 8192,
    .sliding_window = 4096,
    .neighbour_pairs = true,
    .tied_embeddings = true,
    .gguf = {.architecture = "cohere2",
             .keys = {{{"logit_scale", "logit_scale"},
                       {"attention.sliding_window_pattern", "sliding_window_pattern"}}}}};

}  // namespace tessera
