// The KV blocks of a replica, and which of them hold prefixes of prompts: what a sequence finds
// there, takes, gives back behind its window, and leaves for others.
//
// Thread rule: one thread (the engine's). Ownership: outlives the sequences whose blocks it has.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

#include "kvcache/block_pool.h"
#include "kvcache/prefix_index.h"
#include "kvcache/seat_pool.h"
#include "kvcache/snapshot_index.h"
#include "scheduler/batcher.h"
#include "worker/engine/engine_admission.h"
#include "worker/engine/sequence.h"

namespace tessera::worker {

class KvMemory {
 public:
  // Blocks of limits.block_tokens tokens, limits.total_blocks of them; and, where windows are kept
  // apart, those of `window`. `seats`: 0: layers keep no states. `snapshots`: states that are kept
  // for later prompts.
  explicit KvMemory(const scheduler::BatchLimits& limits, const WindowLimits& window = {},
                    int64_t seats = 0, int64_t snapshots = 0, int64_t exchanges = 0);

  KvPools pools() {
    return {&pool_, has_windows() ? &window_pool_ : nullptr, has_seats_ ? &seat_pool_ : nullptr};
  }
  bool has_windows() const { return window_tokens_ > 0; }
  bool has_seats() const { return has_seats_; }
  kvcache::SnapshotIndex& snapshots() { return snapshots_; }
  // Places for states on their way between replicas, each held as a seat is.
  kvcache::SeatPool& exchanges() { return exchanges_; }
  int64_t block_tokens() const { return pool_.block_tokens(); }
  int64_t total_blocks() const { return pool_.total_blocks(); }
  int64_t free_blocks() const { return pool_.free_blocks(); }
  int64_t free_window_blocks() const { return window_pool_.free_blocks(); }
  // How many sequences more may have seats; without seats, any number.
  int64_t free_seats() const {
    return has_seats_ ? seat_pool_.free_seats() : std::numeric_limits<int64_t>::max();
  }
  // Window blocks that a sequence of `tokens` tokens holds at most, beside those of rows in flight.
  int64_t WindowBlocksOf(int64_t tokens) const;

  // The full blocks of `tokens` that stand in the index under `salt`; where layers keep states, as
  // far as there is a snapshot of them. They are the caller's to take before anything is allocated.
  kvcache::PrefixMatch Match(std::string_view salt, std::span<const int32_t> tokens) const;
  // Those that are there whatever is kept of states, for a prompt whose states come from elsewhere.
  kvcache::PrefixMatch MatchBlocks(std::string_view salt, std::span<const int32_t> tokens) const;
  // As many of a waiting sequence as it may start from: the last known token is always computed,
  // because its logits are wanted.
  kvcache::PrefixMatch Match(const Sequence& sequence) const;
  // Takes what Match found into an empty table.
  void Adopt(const kvcache::PrefixMatch& match, kvcache::BlockTable* blocks);
  // The same, with the window blocks.
  void Adopt(const kvcache::PrefixMatch& match, Sequence* sequence);
  // Whether a waiting sequence's states will go to another replica.
  bool HandsStatesOver(const Sequence& sequence) const {
    return has_seats_ && sequence.submission->request.has_kv_target();
  }
  // Makes the window table of `sequence` as long as its other one. False, with nothing taken: the
  // window pool has too few blocks.
  bool GrowWindow(Sequence* sequence) const;
  // In a sequence whose first `tokens` tokens are computed, the first one, as blocks begin, whose
  // keys and values layers with a window are still asked for; 0 where windows are not kept apart.
  int64_t FirstInWindow(int64_t tokens) const;
  // Whether there are window blocks for a sequence whose first `tokens` tokens another replica
  // computes, and a token more, beside one for each of `running` others.
  bool HasRoomForWindow(int64_t tokens, int64_t running) const;
  // Takes these into an empty table: what was matched, and new ones.
  void TakeWindow(int64_t tokens, const kvcache::PrefixMatch& match,
                  kvcache::BlockTable* window_blocks);
  // Gives back the window blocks that no token behind the computed ones sees. Rows of steps in
  // flight are behind them, too. What is seen where prompts are likely to part stays cached as long
  // as what sequences leave when they end: at the prompt's end, where another answer begins, or the
  // next turn, where thinking is dropped; at both ends of its last message; and where it left
  // the prompts before it.
  void FreeBehindWindow(Sequence* sequence) const;
  // Gives back what lies behind the known tokens, and what their window has left. No step is in
  // flight that has rows of `sequence`.
  void GiveBackDrafts(Sequence* sequence) const;
  // Puts the full blocks that `sequence` computed, as far as they may be shared, into the index.
  void Index(Sequence* sequence);

 private:
  void AdoptWindow(const kvcache::PrefixMatch& match, kvcache::BlockTable* window_blocks);

  const int64_t window_tokens_;  // 0: windows are not kept apart
  kvcache::BlockPool pool_;
  kvcache::BlockPool window_pool_;
  const bool has_seats_;
  kvcache::SeatPool seat_pool_;
  kvcache::SnapshotIndex snapshots_;
  kvcache::SeatPool exchanges_;
  kvcache::PrefixIndex index_;
};

}  // namespace tessera::worker
