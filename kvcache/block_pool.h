// The KV blocks of one replica, by id: a fixed number of them, each held by any number of sequences
// (reference counts), each in one of three states:
//   held    (references > 0)
//   cached  (no references, but its contents may be asked for again: the prefix index named it)
//   empty   (no references, contents worthless)
// legal transitions: empty -> held -> empty | cached; cached -> held | empty.
// Allocate takes an empty block, else evicts the cached block that was released longest ago.
//
// Only ids live here; the memory belongs to the worker. Thread rule: one thread (the engine's).
// Nothing here fails except by being full. Memory is allocated by the constructor only.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace tessera::kvcache {

class BlockPool {
 public:
  // `blocks` ids from 0; `block_tokens` tokens each.
  BlockPool(int32_t blocks, int32_t block_tokens);
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // A block with one reference, or -1 when all are held.
  int32_t Allocate();
  void AddReference(int32_t block);
  // The last release leaves the block cached when it is marked so, else empty. kFirst: as if it had
  // been released before all others.
  enum class Evicted { kLast, kFirst };
  void Release(int32_t block, Evicted evicted = Evicted::kLast);

  // Marks a held block as worth keeping after its last release; `on_evict` hears of its end.
  void MarkCached(int32_t block) { states_[block].cached = true; }
  // Its contents will not be asked for again: undoes MarkCached; a cached block becomes empty.
  void Forget(int32_t block);
  // Called with a cached block that is about to be reused for something else.
  void set_on_evict(std::function<void(int32_t)> on_evict) { on_evict_ = std::move(on_evict); }

  int32_t block_tokens() const { return block_tokens_; }
  int32_t total_blocks() const { return static_cast<int32_t>(states_.size()); }
  int32_t free_blocks() const { return free_blocks_; }  // empty and cached
  int32_t references(int32_t block) const { return states_[block].references; }

 private:
  struct State {
    int32_t references = 0;
    bool cached = false;
    int32_t previous = -1;  // neighbours in the list of cached blocks without references
    int32_t next = -1;
  };

  void Unlink(int32_t block);

  int32_t block_tokens_;
  std::vector<State> states_;
  std::vector<int32_t> empty_;  // stack
  int32_t oldest_ = -1;         // cached blocks, in order of release
  int32_t newest_ = -1;
  int32_t free_blocks_ = 0;
  std::function<void(int32_t)> on_evict_;
};

// The blocks of one sequence in order: token t stands in block t / block_tokens. Where old tokens
// are not read any more, the first ones may be given back before the others (kNoBlock then stands
// for them). Move-only owner of one reference to each; must not outlive its pool.
class BlockTable {
 public:
  static constexpr int32_t kNoBlock = -1;

  explicit BlockTable(BlockPool* pool) : pool_(pool) {}
  BlockTable(BlockTable&& other) noexcept;
  BlockTable& operator=(BlockTable&& other) noexcept;
  ~BlockTable() { Clear(); }

  // Takes blocks until `tokens` tokens have room. False, with nothing taken, when the pool is
  // exhausted.
  bool Grow(int64_t tokens);
  // Gives back the blocks behind those of the first `tokens` tokens, last first.
  void ShrinkTo(int64_t tokens);
  // Gives back the blocks whose tokens all come before token `first`; of the cached ones in the
  // pool, those are evicted before others, or as they were released.
  void FreeBefore(int64_t first, BlockPool::Evicted evicted = BlockPool::Evicted::kFirst);
  // Marks the first `blocks` blocks of an empty table as not read.
  void Skip(int64_t blocks);
  // Appends a block of which the caller already holds one reference, which passes to the table.
  void Adopt(int32_t block) { blocks_.push_back(block); }
  // Releases all that it still has, last first, so that the start of a prompt is evicted after its
  // end.
  void Clear();

  const std::vector<int32_t>& blocks() const { return blocks_; }
  // How many at the start were given back or skipped.
  int64_t freed() const { return freed_; }
  // Slot of token `position` in the KV memory: block * block_tokens + offset.
  int32_t Slot(int64_t position) const {
    const int32_t tokens = pool_->block_tokens();
    return blocks_[position / tokens] * tokens + static_cast<int32_t>(position % tokens);
  }
  // Blocks that nobody else holds. Cost: O(blocks).
  int64_t ExclusiveBlocks() const;

 private:
  BlockPool* pool_;
  std::vector<int32_t> blocks_;
  int64_t freed_ = 0;
};

}  // namespace tessera::kvcache
