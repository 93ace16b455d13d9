// States of layers (gated delta nets) on their way between replicas: whatever ranks and stages hold
// them, a key group of a layer has one place and one order there.
//
// A rank keeps, of a sequence and a layer, the last `conv_rows` inputs of its convolution,
// [conv_rows, columns]: values of all its key groups, then their queries, then their keys; and a
// matrix of each value head, [heads, key_dim, value_dim]. On its way a key group has its columns of
// the first, row by row (values, queries, keys), then its matrices. These elements are spread over
// the two planes of a "token" of a KvPool (kvcache/kv_layout.h) whose layers are those that keep
// states, counted from the model's first one, whose heads are key groups and whose blocks are
// places, so that they travel as keys and values do.
//
// Thread rule: pure functions of plain values.
#pragma once

#include <cstdint>

#include "kvcache/kv_layout.h"

namespace tessera::kvcache {

// The state of one key group of one layer.
struct StateShape {
  int64_t conv_rows = 0;
  int64_t key_dim = 0;
  int64_t value_dim = 0;
  int64_t value_heads = 0;

  int64_t ConvColumns() const { return 2 * key_dim + value_heads * value_dim; }
  int64_t Elements() const { return conv_rows * ConvColumns() + value_heads * key_dim * value_dim; }
  bool operator==(const StateShape&) const = default;
};

// A pool of `places` states of what `share` names: layers that keep states, and key groups as its
// kv heads. Its memory is the host's, and not given yet.
KvPool StatePool(const StateShape& shape, const KvShare& share, int64_t places);

// What a rank keeps of one layer.
struct LayerState {
  float* conv = nullptr;   // [conv_rows, all its key groups' columns]
  float* delta = nullptr;  // [all its value heads, key_dim, value_dim]
};

// Copies all key groups of a layer of the pool's share into `place`, or out of it.
void PackState(const StateShape& shape, const LayerState& from, int32_t layer, int32_t place,
               const KvPool& to);
void UnpackState(const StateShape& shape, const KvPool& from, int32_t layer, int32_t place,
                 const LayerState& to);

}  // namespace tessera::kvcache
