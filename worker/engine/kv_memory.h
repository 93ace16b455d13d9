// The KV blocks of a replica, and which of them hold prefixes of prompts: what a sequence finds
// there, takes, and leaves for others.
//
// Thread rule: one thread (the engine's). Ownership: outlives the sequences whose blocks it has.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "kvcache/block_pool.h"
#include "kvcache/prefix_index.h"
#include "scheduler/batcher.h"
#include "worker/engine/sequence.h"

namespace tessera::worker {

class KvMemory {
 public:
  // Blocks of limits.block_tokens tokens, limits.total_blocks of them.
  explicit KvMemory(const scheduler::BatchLimits& limits);

  kvcache::BlockPool* pool() { return &pool_; }
  int64_t block_tokens() const { return pool_.block_tokens(); }
  int64_t total_blocks() const { return pool_.total_blocks(); }
  int64_t free_blocks() const { return pool_.free_blocks(); }

  // The full blocks of `tokens` that stand in the index under `salt`. They are the caller's to take
  // before anything is allocated.
  kvcache::PrefixMatch Match(std::string_view salt, std::span<const int32_t> tokens) const;
  // As many of a waiting sequence as it may start from: the last known token is always computed,
  // because its logits are wanted.
  kvcache::PrefixMatch Match(const Sequence& sequence) const;
  // Takes what Match found into an empty table.
  void Adopt(const kvcache::PrefixMatch& match, kvcache::BlockTable* blocks);
  // Puts the full blocks that `sequence` computed, as far as they may be shared, into the index.
  void Index(Sequence* sequence);

 private:
  kvcache::BlockPool pool_;
  kvcache::PrefixIndex index_;
};

}  // namespace tessera::worker
