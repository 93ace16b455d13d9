// A family of models: how its config.json is read into layers, and what its tensors are called.
//
// One file a family (FAMILY.cc beside this one), which defines its Family; families.cc lists them.
// A family of parts that others have is such a file, two lines of that list, and a golden
// checkpoint. Immutable, thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "proto/json_reader.h"
#include "proto/model.pb.h"
#include "proto/model/families/tensor_names.h"

namespace tessera {

struct Family;

// A config.json that is being read. The model has what all families share (ReadCommon in
// model_config.cc); the family adds its layers and what is special to it. Failures go to `config`.
struct ConfigDraft {
  JsonReader& config;  // of a wrapped family text_config, where there is one
  JsonReader& outer;   // the whole file; else the same
  const Family& family;
  int64_t layers = 0;  // num_hidden_layers
  v1::Model* model = nullptr;
};

// What a GGUF file of the family does not say: llama.cpp has it in its code (src/models).
struct GgufFacts {
  std::string_view architecture = {};  // general.architecture; empty: the family is not read so
  // Another name of it: models that take images as well, whose text part is the same.
  std::string_view with_images = {};
  bool with_experts = false;         // models of that architecture that have routed experts
  bool without_experts_too = false;  // then: others of it as well
  // Rows of q and k are neighbouring pairs there, and halves in the family's own checkpoints.
  bool pairs_rows = false;
  // Key of config.json for attention.layer_norm_epsilon.
  std::string_view layer_norm_key = "layer_norm_eps";
  std::string_view ffn_norm = "ffn_norm";  // the tensor that others call so
  // JSON objects, merged into config.json: always; of models with so many layers; with so many
  // experts.
  std::string_view config = "{}";
  int64_t layers = 0;
  std::string_view config_of_layers = "{}";
  int64_t experts = 0;
  std::string_view config_of_experts = "{}";
  // Key of config.json for the width of ffns without experts, where intermediate_size is that of
  // experts.
  std::string_view dense_width = {};
  // Keys of config.json that say whether the first layer has a tensor ("attn_q.bias").
  struct Flag {
    std::string_view key = {};
    std::string_view tensor = {};
  };
  std::array<Flag, 2> flags = {};
  // Keys of the file that not all families have, and what config.json calls them; "" where the
  // tensors say the same. Others are refused unless they say nothing.
  struct Key {
    std::string_view gguf = {};
    std::string_view config = {};
  };
  static constexpr size_t kMaxKeys = 12;
  using Keys = std::array<Key, kMaxKeys>;
  Keys keys = {};
  int64_t gating = 1;  // expert_gating_func: softmax, sigmoid, or softmax of the chosen
  // Another family that has this architecture where expert_gating_func is its own.
  const Family* other_gating = nullptr;
  // Another family that has this architecture where the file says how long a window is.
  const Family* with_windows = nullptr;
  bool latent = false;  // keys of latent attention
  // attention.temperature_scale; yarn's multiplier is mscale_all_dim, but of latents.
  bool gains = false;
  double gain_unsaid = 0;      // the scale of a file that names none
  bool heads_by_kind = false;  // heads of layers with a window have keys of their own
  bool delta = false;  // keys of gated delta nets, one for each of ssm.group_count key heads
  bool scaled_by_head = false;  // query_pre_attn_scalar is the size of a head
  // A file that does not say how long a window is has none; else it is what the class assumes.
  bool names_windows = false;
  // Linear scaling of positions lengthens max_position_embeddings.
  bool linear_lengthens = true;
};

struct Family {
  std::string_view architecture;       // as transformers writes it to config.json
  std::string_view published_as = {};  // and published files, where they have another name
  std::string_view name;               // as its publisher calls it, shown to users
  void (*read)(ConfigDraft&);
  TensorNames tensors;
  // The configuration is text_config of a model that takes images or sound as well, whose towers
  // are left out.
  bool wrapped = false;
  // Published files have the text part's keys beside vision_config, without text_config.
  bool text_beside_towers = false;

  // What the family's configuration class in transformers assumes for absent keys.
  double rope_theta = 10000.0;
  double norm_epsilon = 1e-6;
  int64_t vocabulary = 0;  // 0: must be given, as the next one
  int64_t heads = 0;
  int64_t kv_heads = 0;          // 0: as many as query heads
  int64_t head_dim = 0;          // 0: hidden_size / num_attention_heads
  int64_t max_positions = 0;     // 0: must be given
  int64_t sliding_window = 0;    // 0: none
  int64_t per_layer_width = 0;   // of embeddings of each layer
  double partial_rotary = 0;     // part of a head that is rotated; 0: all, and no key changes that
  bool neighbour_pairs = false;  // v1::Rope's; fixed in the family's code
  bool tied_embeddings = false;
  GgufFacts gguf = {};
};

}  // namespace tessera
