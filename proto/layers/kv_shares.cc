#include "proto/layers/kv_shares.h"

#include "proto/layers/layers.h"

namespace tessera {

v1::KvShare KvShareOf(const v1::Model& model, const v1::WorkerShare& share) {
  v1::KvShare held;
  *held.mutable_layers() = share.layers();
  if (HoldsDraftHead(model, share)) held.mutable_layers()->set_end(share.layers().end() + 1);
  *held.mutable_kv_heads() = KvHeads(share);
  for (const v1::LayerShare& part : share.kinds()) {
    if (part.key_groups().end() > 0) *held.mutable_key_groups() = part.key_groups();
  }
  return held;
}

}  // namespace tessera
