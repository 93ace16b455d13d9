#include "proto/model/families/delta_config.h"

#include <string>
#include <vector>

#include "proto/layers/layers.h"
#include "proto/model/families/config_parts.h"
#include "third_party/absl/str_cat.h"

namespace tessera {
namespace {

// Keys of published files that transformers does not read: other values would change results, so
// they are not passed over.
void CheckFixedKeys(JsonReader& config) {
  const std::string state = config.StringOr("mamba_ssm_dtype", "float32");
  if (config.ok() && state != "float32") {
    config.Fail("mamba_ssm_dtype", StrCat("is '", state, "': states are kept in float32"));
  }
  if (config.ok() && !config.BoolOr("attn_output_gate", true)) {
    config.Fail("attn_output_gate", "is false: attention without a gate is not supported");
  }
}

// A head of another form is left out.
void ReadDraftHead(ConfigDraft& draft, const v1::LayerKind& kind, int64_t usual_layers) {
  const bool own_embeddings = draft.config.BoolOr("mtp_use_dedicated_embeddings", false);
  const int64_t layers =
      draft.config.IntegerOr("mtp_num_hidden_layers", usual_layers, 0, kMaxLayers);
  if (layers == 1 && !own_embeddings) SetDraftHead(kind, draft.model);
}

}  // namespace

void ReadGatedAttention(ConfigDraft& draft, v1::LayerKind* layer) {
  v1::Attention& attention = *layer->mutable_attention();
  ReadHeads(draft, &attention);
  ReadAttentionBias(draft, &attention);
  ReadRotation(draft, &attention);
  attention.set_qk_norm(true);
  attention.set_output_gate(true);
  draft.model->set_norm(v1::NORM_KIND_RMS);
  draft.model->set_norm_epsilon(
      draft.config.NumberOr("rms_norm_eps", draft.family.norm_epsilon, 0.0, 1.0));
  CheckFixedKeys(draft.config);
}

v1::LayerKind ReadDeltaLayer(ConfigDraft& draft, const v1::LayerKind& attending) {
  JsonReader& config = draft.config;
  v1::LayerKind layer = attending;
  layer.clear_attention();
  v1::GatedDelta& delta = *layer.mutable_delta();
  delta.set_key_heads(config.IntegerOr("linear_num_key_heads", 16, 1, kMaxHeads));
  delta.set_value_heads(config.IntegerOr("linear_num_value_heads", 32, 1, kMaxHeads));
  delta.set_key_dim(config.IntegerOr("linear_key_head_dim", 128, 1, kMaxHeads));
  delta.set_value_dim(config.IntegerOr("linear_value_head_dim", 128, 1, kMaxHeads));
  delta.set_conv_taps(config.IntegerOr("linear_conv_kernel_dim", 4, 2, kMaxConvTaps));
  // The oracle takes it for the convolution, too, which here is always followed by SiLU.
  if (ReadActivation(config, "hidden_act", "silu") != v1::ACTIVATION_KIND_SILU) {
    config.Fail("hidden_act", "is not silu: not supported beside gated delta nets");
  }
  if (config.ok() && delta.value_heads() % delta.key_heads() != 0) {
    config.Fail("linear_num_value_heads",
                StrCat("(", delta.value_heads(), ") is not a multiple of linear_num_key_heads (",
                       delta.key_heads(), ")"));
  }
  return layer;
}

void ReadGatedExperts(ConfigDraft& draft, const ExpertDefaults& defaults, v1::LayerKind* layer) {
  JsonReader& config = draft.config;
  v1::Experts experts;
  ReadExperts(draft, defaults, &experts);
  experts.set_renormalise(true);
  const int64_t shared = config.IntegerOr("shared_expert_intermediate_size", 512, 1, kMaxWidth);
  v1::Ffn& ffn = *layer->mutable_ffn();
  ffn.set_gated(true);
  ffn.set_activation(ReadActivation(config, "hidden_act", "silu"));
  ffn.set_width(static_cast<int32_t>(shared));
  ffn.set_shared_gate(true);
  *ffn.mutable_experts() = experts;
}

void AppendDeltaLayers(ConfigDraft& draft, const v1::LayerKind& attending,
                       const std::function<v1::LayerKind(v1::LayerKind, int64_t)>& ffn_of,
                       int64_t head_layers) {
  JsonReader& config = draft.config;
  const int64_t interval = config.IntegerOr("full_attention_interval", 4, 1, kMaxLayers);
  const std::vector<std::string> types = config.Strings("layer_types");
  const v1::LayerKind delta = ReadDeltaLayer(draft, attending);
  if (!types.empty() && static_cast<int64_t>(types.size()) != draft.layers) {
    config.Fail("layer_types", StrCat("names ", types.size(), " layers of ", draft.layers));
  }
  for (const std::string& type : types) {
    if (type == "full_attention" || type == "linear_attention") continue;
    config.Fail("layer_types", StrCat("'", type,
                                      "' is not supported; known are full_attention "
                                      "and linear_attention"));
  }
  if (!config.ok()) return;
  for (int64_t i = 0; i < draft.layers; ++i) {
    const bool attends =
        types.empty() ? (i + 1) % interval == 0 : types[static_cast<size_t>(i)] == "full_attention";
    AppendLayers(ffn_of(attends ? attending : delta, i), 1, draft.model);
  }
  ReadDraftHead(draft, ffn_of(attending, draft.layers - 1), head_layers);
}

}  // namespace tessera
