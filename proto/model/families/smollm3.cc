// SmolLM3: Llama, without rotation in every fourth layer.
#include <vector>

#include "proto/layers/layers.h"
#include "proto/model/families/config_parts.h"

namespace tessera {
namespace {

// By layer: 1 where queries and keys are rotated (the key's name says the contrary).
std::vector<int64_t> ReadRotatedLayers(ConfigDraft& draft) {
  JsonReader& config = draft.config;
  std::vector<int64_t> rotated = config.Integers("no_rope_layers", 0, 1);
  config.Pass("no_rope_layer_interval");
  if (rotated.empty()) {
    const int64_t interval = config.IntegerOr("no_rope_layer_interval", 4, 1, kMaxLayers);
    for (int64_t i = 0; i < draft.layers; ++i) rotated.push_back((i + 1) % interval != 0 ? 1 : 0);
  }
  if (static_cast<int64_t>(rotated.size()) < draft.layers) {
    config.Fail("no_rope_layers", "names fewer layers than num_hidden_layers");
    rotated.resize(static_cast<size_t>(draft.layers));
  }
  return rotated;
}

void Read(ConfigDraft& draft) {
  v1::LayerKind layer;
  ReadLlamaLayer(draft, &layer);
  const int64_t window = draft.config.BoolOr("use_sliding_window", false)
                             ? draft.config.IntegerOr("sliding_window", 0, 1, kMaxPositions)
                             : 0;
  draft.config.Pass("sliding_window");
  v1::LayerKind unrotated = layer;
  unrotated.mutable_attention()->clear_rope();
  const std::vector<int64_t> rotated = ReadRotatedLayers(draft);
  // Without layer_types the layers without rotation have the window.
  const std::vector<bool> windowed = ReadLayerTypes(
      draft, [&](int64_t layer) { return rotated[static_cast<size_t>(layer)] == 0; });
  for (int64_t i = 0; i < draft.layers; ++i) {
    v1::LayerKind kind = rotated[static_cast<size_t>(i)] != 0 ? layer : unrotated;
    if (windowed[static_cast<size_t>(i)]) kind.mutable_attention()->set_window(window);
    AppendLayers(kind, 1, draft.model);
  }
}

}  // namespace

extern const Family kSmolLm3 = {.architecture = "SmolLM3ForCausalLM",
                                .name = "SmolLM3",
                                .read = Read,
                                .tensors = kLlamaTensors,
                                .rope_theta = 2e6,
                                .kv_heads = 4,
                                .max_positions = 32768,
                                .tied_embeddings = true,
                                .gguf = {.architecture = "smollm3",
                                         .pairs_rows = true,
                                         .config = R"({"no_rope_layer_interval": 4})"}};

}  // namespace tessera
