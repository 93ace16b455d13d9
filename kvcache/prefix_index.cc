#include "kvcache/prefix_index.h"

#include <algorithm>
#include <functional>

namespace tessera::kvcache {

PrefixIndex::PrefixIndex(BlockPool* pool)
    : pool_(pool), node_of_block_(pool->total_blocks(), nodes_.end()) {
  // Never rehashed later: iterators into the table are kept per block.
  nodes_.reserve(pool->total_blocks());
  pool_->set_on_evict([this](int32_t block) { Erase(block); });
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

const PrefixIndex::Node* PrefixIndex::FindNode(std::string_view salt, PrefixNode parent,
                                               std::span<const int32_t> tokens) const {
  const auto [begin, end] = nodes_.equal_range(Hash(salt, parent, tokens));
  for (auto it = begin; it != end; ++it) {
    const Node& node = it->second;
    if (node.parent == parent && node.salt == salt &&
        std::equal(tokens.begin(), tokens.end(), node.tokens.begin(), node.tokens.end())) {
      return &node;
    }
  }
  return nullptr;
}

PrefixMatch PrefixIndex::Find(std::string_view salt, std::span<const int32_t> tokens) const {
  PrefixMatch match;
  const size_t block_tokens = pool_->block_tokens();
  for (size_t at = 0; at + block_tokens <= tokens.size(); at += block_tokens) {
    const Node* node =
        FindNode(at == 0 ? salt : std::string_view(), match.node, tokens.subspan(at, block_tokens));
    if (node == nullptr) break;
    match.blocks.push_back(node->block);
    match.node = node->id;
    if (pool_->references(node->block) == 0) ++match.idle_blocks;
  }
  return match;
}

PrefixNode PrefixIndex::Insert(std::string_view salt, PrefixNode parent,
                               std::span<const int32_t> tokens, int32_t block) {
  const std::string_view first_salt = parent == 0 ? salt : std::string_view();
  if (const Node* node = FindNode(first_salt, parent, tokens)) return node->id;
  Node node{next_id_++, parent, std::string(first_salt), {tokens.begin(), tokens.end()}, block};
  const PrefixNode id = node.id;
  Erase(block);
  node_of_block_[block] = nodes_.emplace(Hash(first_salt, parent, tokens), std::move(node));
  pool_->MarkCached(block);
  return id;
}

void PrefixIndex::Erase(int32_t block) {
  const auto it = node_of_block_[block];
  if (it == nodes_.end()) return;
  nodes_.erase(it);
  node_of_block_[block] = nodes_.end();
}

}  // namespace tessera::kvcache
