#include "worker/engine/kv_port_pools.h"

#include <algorithm>
#include <vector>

#include "proto/layers/kv_shares.h"
#include "proto/layers/layers.h"
#include "worker/engine/kv_messages.h"

namespace tessera::worker {
namespace {

// Layers that keep states, or the others, of which the head for further tokens is the last.
std::vector<int32_t> LayersOf(const v1::Model& model, bool states) {
  std::vector<int32_t> layers;
  for (int64_t layer = 0; layer < LayerCount(model); ++layer) {
    if (KindOf(model, layer).has_delta() == states) layers.push_back(static_cast<int32_t>(layer));
  }
  if (!states && model.draft_head().used())
    layers.push_back(static_cast<int32_t>(LayerCount(model)));
  return layers;
}

kvcache::StateShape ShapeOf(const v1::GatedDelta& delta) {
  return {.conv_rows = delta.conv_taps() - 1,
          .key_dim = delta.key_dim(),
          .value_dim = delta.value_dim(),
          .value_heads = delta.value_heads() / delta.key_heads()};
}

}  // namespace

absl::StatusOr<std::shared_ptr<StateExchange>> MakeExchange(const v1::Model& model,
                                                            const v1::WorkerShare& share,
                                                            int64_t places, const Model* loaded,
                                                            kernels::Device* device) {
  std::shared_ptr<StateExchange> none;
  if (loaded->seats() == 0 || places == 0) return none;
  const v1::KvShare held = KvShareOf(model, share);
  const std::vector<int32_t> layers = LayersOf(model, /*states=*/true);
  const kvcache::StateShape shape = ShapeOf(KindOf(model, layers[0]).delta());
  return StateExchange::Create(
      shape,
      kvcache::StatePool(shape,
                         {KvPortPools::Count(layers, ToIndexRange(held.layers())),
                          ToIndexRange(held.key_groups())},
                         places),
      loaded, device);
}

KvPortPools PortPoolsOf(const v1::Model& model, kvcache::KvPool kv, int64_t seat_bytes,
                        const StateExchange* exchange) {
  KvPortPools pools(kv);
  if (!KeepsStates(model)) return pools;
  pools.kv_layers = LayersOf(model, /*states=*/false);
  pools.state_layers = LayersOf(model, /*states=*/true);
  pools.kv.share.layers = KvPortPools::Count(pools.kv_layers, kv.share.layers);
  pools.kv.memory += seat_bytes;
  if (exchange != nullptr) pools.states = exchange->pool();
  return pools;
}

}  // namespace tessera::worker
