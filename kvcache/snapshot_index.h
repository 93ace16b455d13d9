// Which states of prompts are kept in the workers' host memory, and where: a snapshot is what
// layers keep of a sequence (kvcache/seat_pool.h) behind the tokens of one node of the prefix tree
// (kvcache/prefix_index.h), so that a prompt which begins with these tokens can go on from there.
//
// A fixed number of places, each empty, held while its state is being saved, or a snapshot's. A
// snapshot goes when its node goes, or when its place is wanted: first the one whose neighbours
// before and behind it on the way through the tree are closest to each other, because the least has
// to be computed again without it; so the first and the last of a way stay. Where each is a first
// or a last one, the one that was not used for longest goes.
//
// Only numbers live here; the memory belongs to the workers, whose steps save and restore in the
// order in which the leader begins them. Thread rule: one thread (the engine's). Cost: O(places)
// where one is evicted, else O(snapshots of a way).
#pragma once

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tessera::kvcache {

// Place of a block in the tree of prefixes; 0: before the first block.
using PrefixNode = uint64_t;

class SnapshotIndex;

// Keeps a place from being given to another state: while it is saved, or is to be restored from.
// Move-only; must not outlive its index.
class SnapshotHold {
 public:
  static constexpr int32_t kNone = -1;

  SnapshotHold() = default;
  SnapshotHold(SnapshotHold&& other) noexcept
      : index_(other.index_), place_(std::exchange(other.place_, kNone)) {}
  SnapshotHold& operator=(SnapshotHold&& other) noexcept {
    if (this == &other) return *this;
    Clear();
    index_ = other.index_;
    place_ = std::exchange(other.place_, kNone);
    return *this;
  }
  ~SnapshotHold() { Clear(); }

  void Clear();
  explicit operator bool() const { return place_ != kNone; }
  int32_t place() const { return place_; }
  // The name of the state in the place: another number for each one that is saved.
  uint64_t name() const;

 private:
  friend class SnapshotIndex;
  SnapshotHold(SnapshotIndex* index, int32_t place) : index_(index), place_(place) {}

  SnapshotIndex* index_ = nullptr;
  int32_t place_ = kNone;
};

class SnapshotIndex {
 public:
  explicit SnapshotIndex(int32_t places);
  SnapshotIndex(const SnapshotIndex&) = delete;
  SnapshotIndex& operator=(const SnapshotIndex&) = delete;

  int32_t places() const { return static_cast<int32_t>(places_.size()); }
  bool Has(PrefixNode node) const { return by_node_.contains(node); }
  int64_t size() const { return static_cast<int64_t>(by_node_.size()); }

  // The snapshot of a node that has one; it counts as used now, and so do those before it.
  SnapshotHold Use(PrefixNode node);
  // A place for a state, under a name of its own; evicts. None: all places are held.
  SnapshotHold Reserve();
  // The state in a reserved place is that behind `node`, `position` tokens from the start;
  // `before`: the last node on the way there that had a snapshot, or 0. Where `node` has one, that
  // one stays, and the place is free once nobody holds it.
  void Commit(const SnapshotHold& hold, PrefixNode node, int64_t position, PrefixNode before);
  // Nobody will find the node again, or its snapshot is of no use any more.
  void Erase(PrefixNode node);

 private:
  friend class SnapshotHold;

  struct Place {
    PrefixNode node = 0;  // 0: no snapshot is here
    PrefixNode before = 0;
    int64_t position = 0;
    uint64_t name = 0;
    uint64_t used = 0;
    int32_t holds = 0;
  };

  void Release(int32_t place);
  void Forget(int32_t place);
  // The snapshot to give up; kNone: all are held.
  int32_t Victim() const;

  std::vector<Place> places_;
  std::vector<int32_t> empty_;  // stack
  std::unordered_map<PrefixNode, int32_t> by_node_;
  uint64_t names_ = 0;
  uint64_t uses_ = 0;
};

}  // namespace tessera::kvcache
