#include "kvcache/block_pool.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace tessera::kvcache {

BlockPool::BlockPool(int32_t blocks, int32_t block_tokens)
    : block_tokens_(block_tokens), states_(blocks), free_blocks_(blocks) {
  empty_.reserve(blocks);
  for (int32_t block = blocks - 1; block >= 0; --block) empty_.push_back(block);
}

int32_t BlockPool::Allocate() {
  int32_t block = -1;
  if (!empty_.empty()) {
    block = empty_.back();
    empty_.pop_back();
  } else if (oldest_ >= 0) {
    block = oldest_;
    Unlink(block);
    states_[block].cached = false;
    if (on_evict_) on_evict_(block);
  } else {
    return -1;
  }
  states_[block].references = 1;
  --free_blocks_;
  return block;
}

void BlockPool::AddReference(int32_t block) {
  State& state = states_[block];
  if (state.references == 0) {
    assert(state.cached);
    Unlink(block);
    --free_blocks_;
  }
  ++state.references;
}

void BlockPool::Release(int32_t block, Evicted evicted) {
  State& state = states_[block];
  assert(state.references > 0);
  if (--state.references > 0) return;
  ++free_blocks_;
  if (!state.cached) {
    empty_.push_back(block);
    return;
  }
  const bool first = evicted == Evicted::kFirst;
  state.previous = first ? -1 : newest_;
  state.next = first ? oldest_ : -1;
  (state.previous >= 0 ? states_[state.previous].next : oldest_) = block;
  (state.next >= 0 ? states_[state.next].previous : newest_) = block;
}

void BlockPool::Forget(int32_t block) {
  State& state = states_[block];
  if (state.cached && state.references == 0) {
    Unlink(block);
    empty_.push_back(block);
  }
  state.cached = false;
}

void BlockPool::Unlink(int32_t block) {
  State& state = states_[block];
  (state.previous >= 0 ? states_[state.previous].next : oldest_) = state.next;
  (state.next >= 0 ? states_[state.next].previous : newest_) = state.previous;
  state.previous = state.next = -1;
}

BlockTable::BlockTable(BlockTable&& other) noexcept
    : pool_(other.pool_),
      blocks_(std::exchange(other.blocks_, {})),
      freed_(std::exchange(other.freed_, 0)) {}

BlockTable& BlockTable::operator=(BlockTable&& other) noexcept {
  if (this != &other) {
    Clear();
    pool_ = other.pool_;
    blocks_ = std::exchange(other.blocks_, {});
    freed_ = std::exchange(other.freed_, 0);
  }
  return *this;
}

bool BlockTable::Grow(int64_t tokens) {
  const int64_t wanted = (tokens + pool_->block_tokens() - 1) / pool_->block_tokens();
  const int64_t missing = wanted - static_cast<int64_t>(blocks_.size());
  if (missing > pool_->free_blocks()) return false;
  for (int64_t i = 0; i < missing; ++i) blocks_.push_back(pool_->Allocate());
  return true;
}

void BlockTable::ShrinkTo(int64_t tokens) {
  const int64_t kept =
      std::max(freed_, (tokens + pool_->block_tokens() - 1) / pool_->block_tokens());
  while (std::ssize(blocks_) > kept) {
    pool_->Release(blocks_.back());
    blocks_.pop_back();
  }
}

void BlockTable::FreeBefore(int64_t first, BlockPool::Evicted evicted) {
  const int64_t end = std::min(first / pool_->block_tokens(), static_cast<int64_t>(blocks_.size()));
  for (; freed_ < end; ++freed_) {
    pool_->Release(std::exchange(blocks_[freed_], kNoBlock), evicted);
  }
}

void BlockTable::Skip(int64_t blocks) {
  assert(blocks_.empty());
  blocks_.assign(blocks, kNoBlock);
  freed_ = blocks;
}

void BlockTable::Clear() {
  for (size_t i = blocks_.size(); i > static_cast<size_t>(freed_); --i) {
    pool_->Release(blocks_[i - 1]);
  }
  blocks_.clear();
  freed_ = 0;
}

int64_t BlockTable::ExclusiveBlocks() const {
  int64_t count = 0;
  for (size_t i = freed_; i < blocks_.size(); ++i) {
    count += pool_->references(blocks_[i]) == 1 ? 1 : 0;
  }
  return count;
}

}  // namespace tessera::kvcache
