// Sums over the layers of a stage. Models have few kinds of layers: each kind is looked at once.
// Thread rule: pure functions.
#pragma once

#include "absl/container/inlined_vector.h"
#include "scheduler/cost/model_shape.h"

namespace tessera::scheduler {

// `of_layer(layer)` depends on nothing but the kind of the layer.
template <typename Fn>
double SumOverLayers(const ModelShape& model, int first_layer, int layers, const Fn& of_layer) {
  if (model.uniform()) return layers * of_layer(first_layer);
  struct Kind {
    int layers = 0, last = 0;
  };
  absl::InlinedVector<Kind, 4> kinds(model.kinds.size());
  for (int layer = first_layer; layer < first_layer + layers; ++layer) {
    Kind& kind = kinds[static_cast<size_t>(model.kind_index(layer))];
    ++kind.layers;
    kind.last = layer;
  }
  double sum = 0;
  for (const Kind& kind : kinds) {
    if (kind.layers > 0) sum += kind.layers * of_layer(kind.last);
  }
  return sum;
}

}  // namespace tessera::scheduler
