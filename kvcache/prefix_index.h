// Which full blocks of a prompt are already in the pool.
//
// Idea: a tree of blocks. A node is one full block of tokens behind its parent node (the tokens
// before it); behind no parent stands the cache salt. Lookup walks from the start of a prompt for
// as long as nodes match. The hash only finds candidates: salt, parent and all tokens are compared,
// so two different prefixes are never taken for each other, whatever a client sends. Node numbers
// are never reused, so that a node whose parent was evicted cannot be reached through the parent's
// successor.
//
// Blocks stay in the index while sequences hold them and after, until the pool evicts them: the
// least recently released first, and within one sequence its last block first.
//
// Window blocks: where some layers see only the last `window` tokens, their keys and values stand
// in blocks of a pool of their own, one beside each block of the other layers. A node may have lost
// its window block; a match ends where the next token finds all of the window that it sees.
//
// States: where layers keep a state of a sequence, a match ends at a node that has a snapshot of it
// (kvcache/snapshot_index.h).
//
// Thread rule: one thread (the engine's). Cost: O(tokens) per call. Ownership: borrows the pools,
// and is their on_evict listener; must not outlive them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kvcache/block_pool.h"
#include "kvcache/snapshot_index.h"

namespace tessera::kvcache {

struct PrefixMatch {
  std::vector<int32_t> blocks;  // in order
  PrefixNode node = 0;          // of the last one
  int64_t idle_blocks = 0;      // of these, those that nobody holds
  // As many as `blocks`, and more where those behind them lack a window or a state.
  int64_t indexed_blocks = 0;
  // With window blocks: those of the last so many blocks, which the next token sees.
  std::vector<int32_t> window_blocks;
};

class PrefixIndex {
 public:
  explicit PrefixIndex(BlockPool* pool) : PrefixIndex(pool, nullptr, 0) {}
  // `window_pool`: of the layers that see the last window_tokens tokens; null: there are none.
  PrefixIndex(BlockPool* pool, BlockPool* window_pool, int64_t window_tokens);
  ~PrefixIndex();
  PrefixIndex(const PrefixIndex&) = delete;
  PrefixIndex& operator=(const PrefixIndex&) = delete;

  // The longest run of indexed blocks at the start of `tokens`. Takes no references: they are the
  // caller's to take (BlockPool::AddReference) before the next Allocate. `states`: a match ends
  // where there is one; null: layers keep none.
  PrefixMatch Find(std::string_view salt, std::span<const int32_t> tokens,
                   const SnapshotIndex* states = nullptr) const;

  // Adds the held `block`, which contains the keys and values of `tokens` (exactly one block's)
  // behind `parent`, and the held `window_block` beside it, if there is one. Where an equal node
  // exists, that one stays and `block` is not indexed, but a window block that it lacks is. Returns
  // the node either way.
  PrefixNode Insert(std::string_view salt, PrefixNode parent, std::span<const int32_t> tokens,
                    int32_t block, int32_t window_block = BlockTable::kNoBlock);

  int64_t size() const { return static_cast<int64_t>(nodes_.size()); }

  // Called with a node that goes.
  void set_on_erase(std::function<void(PrefixNode)> on_erase) { on_erase_ = std::move(on_erase); }

 private:
  struct Node {
    PrefixNode id = 0;
    PrefixNode parent = 0;
    std::string salt;  // of first blocks; later ones have it through their parent
    std::vector<int32_t> tokens;
    int32_t block = -1;
    int32_t window_block = BlockTable::kNoBlock;
  };
  using Nodes = std::unordered_multimap<uint64_t, Node>;

  static uint64_t Hash(std::string_view salt, PrefixNode parent, std::span<const int32_t> tokens);
  // end(): there is none.
  Nodes::iterator FindNode(std::string_view salt, PrefixNode parent,
                           std::span<const int32_t> tokens);
  Nodes::const_iterator FindNode(std::string_view salt, PrefixNode parent,
                                 std::span<const int32_t> tokens) const;
  void SetWindowBlock(Nodes::iterator node, int32_t block);
  void Erase(int32_t block);
  void EraseWindow(int32_t window_block);

  BlockPool* pool_;
  BlockPool* window_pool_;     // may be null
  const int64_t seen_blocks_;  // window blocks before a block that its first token sees
  Nodes nodes_;
  std::vector<Nodes::iterator> node_of_block_;         // end(): not indexed
  std::vector<Nodes::iterator> node_of_window_block_;  // the same
  std::function<void(PrefixNode)> on_erase_;           // may be null
  PrefixNode next_id_ = 1;
};

}  // namespace tessera::kvcache
