// Rotary embeddings of a config.json, in the two forms that transformers has written them.
#pragma once

#include <cstdint>

#include "proto/json_reader.h"
#include "proto/model.pb.h"

namespace tessera {

struct RopeConfig {
  v1::Rope rope;
  int64_t max_positions = 0;  // in tokens; where the scaling stretches the context, more than given
  // Yarn's mscale_all_dim, by which latent attention multiplies queries and keys beside
  // attention_factor.
  double latent_factor = 1;
};

// From rope_parameters, or rope_theta and rope_scaling, for heads of `head_dim`. Failures go to
// `config`; two of these keys that disagree are one. Of a head the part `partial_rotary` is rotated
// where partial_rotary_factor says nothing else; 0: all of it, and the key may not say else.
RopeConfig ReadRope(JsonReader& config, double default_theta, double partial_rotary,
                    int64_t head_dim, int64_t max_positions);

// Fails where neither key says anything, in families whose class then has a scaling of its own
// (yarn): files that leave it out mean something else. GGUF files leave out what is plain.
void RequireRope(JsonReader& config);

// How the layers of one type are rotated, in families where that depends on it.
struct LayerTypeRope {
  const char* layer_type;  // as in layer_types, and in rope_parameters
  const char* theta_key;   // of the base, where rope_parameters does not name it
  double theta;            // where nothing does
  bool scaled;             // rope_scaling is theirs
  // Where rope_parameters are absent, the part of pairs that turn, proportionally; 0: all, plainly.
  double turning_part = 0;
};

// The same of one type of layers: whole heads are rotated, and max_position_embeddings names the
// stretched length already.
RopeConfig ReadRopeOfType(JsonReader& config, const LayerTypeRope& type, int64_t head_dim,
                          int64_t max_positions);

}  // namespace tessera
