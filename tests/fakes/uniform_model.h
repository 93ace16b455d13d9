// A made-up model whose layers are all of one kind, for tests of plans and weights.
#pragma once

#include <cstdint>

#include "proto/layers/layers.h"
#include "proto/model.pb.h"
#include "proto/plan.pb.h"

namespace tessera::tests {

struct UniformLayers {
  int layers = 1;
  int heads = 1;
  int kv_heads = 1;
  int head_dim = 1;
  int ffn_width = 1;
  bool gated = false;
};

inline void SetLayers(const UniformLayers& of, v1::Model* model) {
  v1::LayerKind kind;
  kind.mutable_attention()->set_heads(of.heads);
  kind.mutable_attention()->set_kv_heads(of.kv_heads);
  kind.mutable_attention()->set_head_dim(of.head_dim);
  kind.mutable_ffn()->set_width(of.ffn_width);
  kind.mutable_ffn()->set_gated(of.gated);
  AppendLayers(kind, of.layers, model);
}

// The only kind of such a model, and what a share of it has of that kind.
inline v1::Attention& AttentionOf(v1::Model& model) {
  return *model.mutable_kinds(0)->mutable_attention();
}
inline v1::Ffn& FfnOf(v1::Model& model) { return *model.mutable_kinds(0)->mutable_ffn(); }
inline v1::LayerShare& PartOf(v1::WorkerShare& share) { return *share.mutable_kinds(0); }

}  // namespace tessera::tests
