// Granite 4 without Mamba layers (350M, 1B, Micro): Granite under the class of the hybrid ones.
#include <string>
#include <vector>

#include "proto/layers/layers.h"
#include "proto/model/families/config_parts.h"
#include "third_party/absl/str_cat.h"

namespace tessera {
namespace {

// transformers 4 calls layers that attend "attention". Where nothing is said, none does.
void CheckLayerTypes(ConfigDraft& draft) {
  constexpr const char* kTypes = "layer_types";
  constexpr const char* kOldTypes = "layers_block_type";
  JsonReader& config = draft.config;
  const char* key = !config.Has(kTypes) && config.Has(kOldTypes) ? kOldTypes : kTypes;
  const std::vector<std::string> types = config.Strings(key);
  if (static_cast<int64_t>(types.size()) != draft.layers) {
    return config.Fail(key, StrCat("names ", types.size(), " layers, num_hidden_layers ",
                                   draft.layers, ": other layers are Mamba's"));
  }
  for (const std::string& type : types) {
    if (type == "attention" || type == "full_attention") continue;
    return config.Fail(key, StrCat("'", type,
                                   "' is not supported: layers of Mamba 2, as in the models of "
                                   "Granite 4 whose names have an H; all must be attention"));
  }
}

// Read by transformers, but used by no layer that attends.
void PassMambaKeys(JsonReader& config) {
  for (const char* key :
       {"mamba_chunk_size", "mamba_conv_bias", "mamba_d_conv", "mamba_d_head", "mamba_d_state",
        "mamba_expand", "mamba_n_groups", "mamba_n_heads", "mamba_proj_bias", "time_step_limit"}) {
    config.Pass(key);
  }
}

void Read(ConfigDraft& draft) {
  JsonReader& config = draft.config;
  CheckLayerTypes(draft);
  PassMambaKeys(config);
  v1::LayerKind layer;
  ReadHeads(draft, layer.mutable_attention());
  ReadLlamaFfn(draft, "hidden_act", "silu", &layer);
  ReadAttentionBias(draft, layer.mutable_attention());
  ReadGraniteMultipliers(draft, layer.mutable_attention());
  layer.mutable_ffn()->set_width(config.IntegerOr("shared_intermediate_size", 1024, 1, kMaxWidth));
  if (config.IntegerOr("num_local_experts", 8, 0, kMaxExperts) > 0) {
    config.Fail("num_local_experts",
                "other than 0 is not supported: experts beside a shared one whose gate and up are "
                "one matrix");
  }
  config.Pass("num_experts_per_tok");
  ReadRotation(draft, layer.mutable_attention());
  if (config.StringOr("position_embedding_type", "") != "rope") {
    layer.mutable_attention()->clear_rope();
  }
  AppendLayers(layer, draft.layers, draft.model);
}

constexpr TensorNames kTensors = [] {
  TensorNames names = kLlamaTensors;
  names.gate_up = "shared_mlp.input_linear";
  names.down = "shared_mlp.output_linear";
  return names;
}();

}  // namespace

// GGUF files of these models are Granite 3's (granite.cc).
extern const Family kGraniteMoeHybrid = {.architecture = "GraniteMoeHybridForCausalLM",
                                         .name = "Granite 4 without Mamba layers",
                                         .read = Read,
                                         .tensors = kTensors,
                                         .max_positions = 2048};

}  // namespace tessera
