// OPT: LayerNorm, learned positions two rows in, biases everywhere, plain ffn.
#include "proto/layers/layers.h"
#include "proto/model/families/config_parts.h"

namespace tessera {
namespace {

void Read(ConfigDraft& draft) {
  JsonReader& config = draft.config;
  v1::Model& model = *draft.model;
  v1::LayerKind layer;
  v1::Attention& attention = *layer.mutable_attention();
  v1::Ffn& ffn = *layer.mutable_ffn();
  ReadHeads(draft, &attention);
  ffn.set_width(config.Integer("ffn_dim", 1, kMaxWidth));
  model.set_norm(v1::NORM_KIND_LAYER);
  model.set_norm_epsilon(draft.family.norm_epsilon);
  ffn.set_activation(ReadActivation(config, "activation_function", "relu"));
  const bool biases = config.BoolOr("enable_bias", true);
  attention.set_qkv_bias(biases);
  attention.set_output_bias(biases);
  ffn.set_bias(biases);
  model.set_learned_positions(true);
  model.set_learned_position_offset(2);
  model.set_embedding_width(config.IntegerOr("word_embed_proj_dim", model.hidden(), 1, kMaxWidth));
  const bool norm_after = !config.BoolOr("do_layer_norm_before", true);
  if (norm_after) layer.set_norm_place(v1::NORM_PLACE_AFTER_RESIDUAL);
  model.set_final_norm_absent(norm_after || config.BoolOr("_remove_final_layer_norm", false));
  if (!config.BoolOr("layer_norm_elementwise_affine", true)) {
    config.Fail("layer_norm_elementwise_affine", "false is not supported");
  }
  AppendLayers(layer, draft.layers, &model);
}

constexpr TensorNames kTensors = {.roots = {"model.decoder.", "decoder."},
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

}  // namespace

extern const Family kOpt = {.architecture = "OPTForCausalLM",
                            .name = "OPT",
                            .read = Read,
                            .tensors = kTensors,
                            .norm_epsilon = 1e-5,
                            .max_positions = 2048,
                            .tied_embeddings = true};

}  // namespace tessera
