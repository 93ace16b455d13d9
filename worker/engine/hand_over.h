// Hand-over of KV between replicas: room for prompts that other replicas compute, sequences that
// go on from it, and sequences whose KV is sent away.
//
// A room: waits for blocks (in fair turns) -> expects its KV -> KV and submission arrive, in any
// order -> gone: its sequence has the blocks and joins. Its sequence is arriving until then. It is
// dropped when its submission is cancelled, its KV will not come, or is not for these tokens.
// A prompt that is sent: its steps push KV from the first on; its sequence is sent when its first
// token is drawn, and ends when the receivers have everything.
//
// Thread rule: one thread (the engine's). Borrows table, memory and mover. Ownership: outlives the
// sequences, whose sending ends at its mover.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvcache/block_pool.h"
#include "kvcache/prefix_index.h"
#include "proto/worker.pb.h"
#include "worker/engine/engine_admission.h"
#include "worker/engine/engine_step.h"
#include "worker/engine/fair_turns.h"
#include "worker/engine/kv_memory.h"
#include "worker/engine/kv_mover.h"
#include "worker/engine/sequence_table.h"
#include "worker/engine/token_events.h"

namespace tessera::worker {

class HandOver {
 public:
  HandOver(const EngineOptions& options, SequenceTable* table, KvMemory* memory)
      : options_(options), table_(*table), memory_(*memory) {}
  HandOver(const HandOver&) = delete;
  HandOver& operator=(const HandOver&) = delete;

  // Null, as at first: nobody moves KV.
  void SetMover(KvMover* mover) { mover_ = mover; }
  bool has_mover() const { return mover_ != nullptr; }

  // Keeps room for KV to come; answered in TakeReserved when there is room.
  void Reserve(v1::Reserve reserve);
  bool has_reserved() const { return !reserved_.empty(); }
  std::vector<v1::Reserved> TakeReserved() { return std::exchange(reserved_, {}); }
  bool has_waiting_rooms() const { return !waiting_.empty(); }
  // Gives blocks to the rooms whose turn it is, as far as there are any.
  void GiveRooms();

  // What KvMoverListener heard.
  void OnKvExpected(const KvKey& key, const absl::StatusOr<v1::KvTarget>& target);
  void OnKvArrived(const KvKey& key, const absl::Status& status);
  void OnKvSent(const KvKey& key, const absl::Status& status, const v1::KvTransfer& transfer,
                double now_seconds, TokenEvents* events);

  // Whether there is room for the KV of this held sequence, which arrives or joins then. False: its
  // prompt is computed here.
  bool Await(Sequence* sequence);
  // Gives `lane` its part of the sequences that join.
  void TakeJoining(int lane);
  // What `step` completes of prompts that are handed over.
  void CollectPushes(EngineStep* step);
  // The first token of a running sequence is drawn: it goes on at another replica.
  void Send(Sequence* sequence, double now_seconds, TokenEvents* events);
  // The submission ends, or its coordinator wants no room: what is kept of it here goes.
  void Drop(const KvKey& key);
  void DropAll();

 private:
  // Room for the KV of a prompt that another replica computes.
  struct Room {
    Room(const KvPools& pools, kvcache::SeatPool* exchanges)
        : blocks(pools.blocks), window_blocks(pools.window_blocks), exchange(exchanges) {}

    v1::Reserve request;
    std::pair<uint64_t, uint64_t> turn;  // its turn, and what counts arrivals
    std::vector<int32_t> tokens;         // the prompt
    kvcache::BlockTable blocks;
    kvcache::BlockTable window_blocks;  // as Sequence::window_blocks
    kvcache::Seat exchange;             // of its states
    int64_t cached_blocks = 0;          // of these, found in the prefix index
    kvcache::PrefixNode node = 0;
    bool has_blocks = false;       // else it waits for them
    std::string ticket;            // empty: nobody was sent there yet
    bool arrived = false;          // all of it
    Sequence* sequence = nullptr;  // submitted; waits for the KV
  };
  // A sequence in state sent.
  struct Sent {
    Sequence* sequence = nullptr;
    double since_seconds = 0;
  };

  void StopWaiting(const Room& room, bool given);
  void DropRoom(const KvKey& key);
  void Join(const KvKey& key);
  void EndSending(const Sent& sent, double now_seconds, TokenEvents* events);

  const EngineOptions options_;
  SequenceTable& table_;
  KvMemory& memory_;
  KvMover* mover_ = nullptr;
  std::map<KvKey, Room> rooms_;
  std::map<std::pair<uint64_t, uint64_t>, KvKey> waiting_;  // rooms without blocks, by turn
  FairTurns turns_;                                         // of these
  uint64_t arrivals_ = 0;                                   // of rooms
  std::vector<v1::Reserved> reserved_;
  std::map<KvKey, Sent> sent_;
};

}  // namespace tessera::worker
