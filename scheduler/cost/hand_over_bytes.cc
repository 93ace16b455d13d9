#include "scheduler/cost/hand_over_bytes.h"

#include "proto/layers/layer_sizes.h"

namespace tessera::scheduler {

double StateBytesHandedOver(const ModelShape& model) {
  int64_t elements = 0;
  for (int layer = 0; layer < model.layers; ++layer) {
    elements += StateElements(model.layer(layer), WholeLayer(model.layer(layer)));
  }
  return static_cast<double>(elements * kStateElementBytes);
}

RawKv HandedOver(const ModelShape& model, double prompt_tokens) {
  return {prompt_tokens * KvBytesPerToken(model), KvElementBytes(model),
          StateBytesHandedOver(model)};
}

}  // namespace tessera::scheduler
