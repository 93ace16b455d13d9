// Where keys and values stand: in the ranks of a replica, and in a rank's pool. What is needed to
// move the KV of a sequence between two replicas that share nothing but the model.
//
// A rank holds the KV of some layers and of some kv heads. Several ranks hold the same heads where
// a stage is wider than the model has kv heads. Its pool has, for each of its layers, a plane of
// keys and a plane of values, [kv_heads, blocks, block_tokens, row] (kernels/ops.h,
// KvCacheView), or one plane, of keys that are the values as well. A slot is a token's place in
// each of these planes: block id * block_tokens + index in the block.
//
// Thread rule: pure functions. Layers and heads are those of the model; ranges are half-open.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/dtype.h"
#include "kernels/index_range.h"
#include "kernels/kv_rows.h"

namespace tessera::kvcache {

// What one rank holds.
struct KvShare {
  IndexRange layers;
  IndexRange kv_heads;
  IndexRange key_groups = {};  // of layers that keep states; empty: no layer does
};

// A rectangle of KV that one rank sends to another, for each token.
struct KvRoute {
  int32_t sender = 0;    // index into senders
  int32_t receiver = 0;  // index into receivers
  IndexRange layers;
  IndexRange kv_heads;

  bool operator==(const KvRoute&) const = default;
};

// Routes that bring each receiver everything that it holds, each layer and head exactly once. Where
// several senders hold it, the one that has the least to send so far takes it. Ordered by receiver,
// layer and head. InvalidArgument, with both values: a layer and head that a receiver holds and no
// sender does, or an empty range.
absl::StatusOr<std::vector<KvRoute>> RouteKv(std::span<const KvShare> senders,
                                             std::span<const KvShare> receivers);

// Tokens that follow each other in the slots of a pool.
struct SlotRun {
  int64_t slot = 0;
  int64_t tokens = 0;

  bool operator==(const SlotRun&) const = default;
};

// The slots of tokens [first, end) of a sequence whose blocks are `table`, as few runs as there
// can be. The table must reach to `end`.
std::vector<SlotRun> SlotRuns(std::span<const int32_t> table, int64_t block_tokens, int64_t first,
                              int64_t end);

inline constexpr int kKvPlanes = 2;

// One rank's pool. Layers with a window may have blocks of their own, of another number.
struct KvPool {
  std::byte* memory = nullptr;
  KvShare share;
  // kF32, kBF16 or kF16; or kI8 or kF8, whose rows have scales (kernels/kv_rows.h).
  kernels::DType type = kernels::DType::kF32;
  int64_t blocks = 0;
  int64_t block_tokens = 0;
  int64_t head_dim = 0;
  int planes = kKvPlanes;           // of a layer: keys and values, or 1
  std::vector<bool> windowed = {};  // by layer of the share: has those blocks; empty: none has
  int64_t window_blocks = 0;
  bool in_host_memory = false;  // though the worker's device may have memory of its own

  bool IsWindowed(int32_t layer) const {
    return !windowed.empty() && windowed[static_cast<size_t>(layer - share.layers.begin)];
  }
  int64_t SlotsOf(int32_t layer) const {
    return (IsWindowed(layer) ? window_blocks : blocks) * block_tokens;
  }
  int64_t bytes() const;
  // The row of a layer's keys (plane 0) or values (plane 1) of one head, at one slot. Layer and
  // head are in `share`.
  std::byte* At(int32_t layer, int plane, int32_t kv_head, int64_t slot) const;
  int64_t row_bytes() const { return kernels::KvRowBytes(type, head_dim); }

 private:
  // In all planes of the layers before it.
  int64_t SlotsBefore(int32_t layer) const;
};

}  // namespace tessera::kvcache
