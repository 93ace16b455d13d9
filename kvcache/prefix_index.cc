#include "kvcache/prefix_index.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace tessera::kvcache {

PrefixIndex::PrefixIndex(BlockPool* pool, BlockPool* window_pool, int64_t window_tokens)
    : pool_(pool),
      window_pool_(window_pool),
      // A window includes the token itself.
      seen_blocks_((window_tokens + pool->block_tokens() - 2) / pool->block_tokens()),
      node_of_block_(pool->total_blocks(), nodes_.end()),
      node_of_window_block_(window_pool == nullptr ? 0 : window_pool->total_blocks(),
                            nodes_.end()) {
  // Never rehashed later: iterators into the table are kept per block.
  nodes_.reserve(pool->total_blocks());
  pool_->set_on_evict([this](int32_t block) { Erase(block); });
  if (window_pool_ == nullptr) return;
  window_pool_->set_on_evict([this](int32_t block) { EraseWindow(block); });
}

PrefixIndex::~PrefixIndex() {
  pool_->set_on_evict(nullptr);
  if (window_pool_ != nullptr) window_pool_->set_on_evict(nullptr);
}

uint64_t PrefixIndex::Hash(std::string_view salt, PrefixNode parent,
                           std::span<const int32_t> tokens) {
  // Multiply and fold, as in wyhash; only speed depends on its quality.
  const auto mix = [](uint64_t a, uint64_t b) {
    const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  };
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15ull;
  uint64_t hash = mix(parent ^ kOdd, std::hash<std::string_view>{}(salt) | 1);
  for (const int32_t token : tokens) {
    hash = mix(hash ^ static_cast<uint32_t>(token) ^ 0xd6e8feb86659fd93ull, kOdd);
  }
  return hash;
}

PrefixIndex::Nodes::const_iterator PrefixIndex::FindNode(std::string_view salt, PrefixNode parent,
                                                         std::span<const int32_t> tokens) const {
  const auto [begin, end] = nodes_.equal_range(Hash(salt, parent, tokens));
  const auto found = std::find_if(begin, end, [&](const auto& entry) {
    const Node& node = entry.second;
    return node.parent == parent && node.salt == salt &&
           std::equal(tokens.begin(), tokens.end(), node.tokens.begin(), node.tokens.end());
  });
  return found == end ? nodes_.end() : found;
}

PrefixIndex::Nodes::iterator PrefixIndex::FindNode(std::string_view salt, PrefixNode parent,
                                                   std::span<const int32_t> tokens) {
  // Erasing nothing makes an iterator of a const_iterator.
  const auto found = std::as_const(*this).FindNode(salt, parent, tokens);
  return nodes_.erase(found, found);
}

PrefixMatch PrefixIndex::Find(std::string_view salt, std::span<const int32_t> tokens,
                              const SnapshotIndex* states) const {
  std::vector<const Node*> path;
  int64_t depth = 0;        // blocks of the longest match
  int64_t with_window = 0;  // of the last nodes of the path, without a gap
  const size_t block_tokens = pool_->block_tokens();
  for (size_t at = 0; at + block_tokens <= tokens.size(); at += block_tokens) {
    const auto found =
        FindNode(at == 0 ? salt : std::string_view(), path.empty() ? 0 : path.back()->id,
                 tokens.subspan(at, block_tokens));
    if (found == nodes_.end()) break;
    path.push_back(&found->second);
    const auto blocks = static_cast<int64_t>(path.size());
    with_window = path.back()->window_block == BlockTable::kNoBlock ? 0 : with_window + 1;
    const bool has_window =
        window_pool_ == nullptr || with_window >= std::min(seen_blocks_, blocks);
    if (has_window && (states == nullptr || states->Has(path.back()->id))) depth = blocks;
  }
  PrefixMatch match;
  match.indexed_blocks = static_cast<int64_t>(path.size());
  const int64_t first_seen = std::max<int64_t>(0, depth - seen_blocks_);
  for (int64_t i = 0; i < depth; ++i) {
    match.blocks.push_back(path[i]->block);
    if (pool_->references(path[i]->block) == 0) ++match.idle_blocks;
    if (window_pool_ != nullptr && i >= first_seen) {
      match.window_blocks.push_back(path[i]->window_block);
    }
  }
  if (depth > 0) match.node = path[depth - 1]->id;
  return match;
}

PrefixNode PrefixIndex::Insert(std::string_view salt, PrefixNode parent,
                               std::span<const int32_t> tokens, int32_t block,
                               int32_t window_block) {
  const std::string_view first_salt = parent == 0 ? salt : std::string_view();
  auto node = FindNode(first_salt, parent, tokens);
  if (node == nodes_.end()) {
    Erase(block);
    node = nodes_.emplace(
        Hash(first_salt, parent, tokens),
        Node{next_id_++, parent, std::string(first_salt), {tokens.begin(), tokens.end()}, block});
    node_of_block_[block] = node;
    pool_->MarkCached(block);
  }
  const bool lacks = node->second.window_block == BlockTable::kNoBlock;
  if (lacks && window_block != BlockTable::kNoBlock) SetWindowBlock(node, window_block);
  return node->second.id;
}

void PrefixIndex::SetWindowBlock(Nodes::iterator node, int32_t block) {
  EraseWindow(block);
  node->second.window_block = block;
  node_of_window_block_[block] = node;
  window_pool_->MarkCached(block);
}

void PrefixIndex::Erase(int32_t block) {
  const auto it = node_of_block_[block];
  if (it == nodes_.end()) return;
  if (const int32_t window_block = it->second.window_block; window_block != BlockTable::kNoBlock) {
    EraseWindow(window_block);
    window_pool_->Forget(window_block);
  }
  if (on_erase_) on_erase_(it->second.id);
  nodes_.erase(it);
  node_of_block_[block] = nodes_.end();
}

void PrefixIndex::EraseWindow(int32_t window_block) {
  const auto it = node_of_window_block_[window_block];
  if (it == nodes_.end()) return;
  it->second.window_block = BlockTable::kNoBlock;
  node_of_window_block_[window_block] = nodes_.end();
}

}  // namespace tessera::kvcache
