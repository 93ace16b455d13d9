#include "worker/engine/kv_memory.h"

#include <algorithm>
#include <array>

#include "proto/layers/kv_sizes.h"

namespace tessera::worker {

KvMemory::KvMemory(const scheduler::BatchLimits& limits, const WindowLimits& window, int64_t seats,
                   int64_t snapshots, int64_t exchanges)
    : window_tokens_(window.tokens),
      pool_(static_cast<int32_t>(limits.total_blocks), static_cast<int32_t>(limits.block_tokens)),
      window_pool_(static_cast<int32_t>(window.total_blocks),
                   static_cast<int32_t>(limits.block_tokens)),
      has_seats_(seats > 0),
      seat_pool_(static_cast<int32_t>(seats)),
      snapshots_(static_cast<int32_t>(snapshots)),
      exchanges_(static_cast<int32_t>(exchanges)),
      index_(&pool_, has_windows() ? &window_pool_ : nullptr, window_tokens_) {
  index_.set_on_erase([this](kvcache::PrefixNode node) { snapshots_.Erase(node); });
}

kvcache::PrefixMatch KvMemory::Match(std::string_view salt, std::span<const int32_t> tokens) const {
  if (static_cast<int64_t>(tokens.size()) < block_tokens()) return {};
  return index_.Find(salt, tokens, has_seats_ ? &snapshots_ : nullptr);
}

kvcache::PrefixMatch KvMemory::MatchBlocks(std::string_view salt,
                                           std::span<const int32_t> tokens) const {
  if (static_cast<int64_t>(tokens.size()) < block_tokens()) return {};
  return index_.Find(salt, tokens);
}

kvcache::PrefixMatch KvMemory::Match(const Sequence& sequence) const {
  const Submission& submission = *sequence.submission;
  int64_t tokens = std::min(sequence.known_tokens() - 1, submission.indexed_tokens);
  if (submission.NeedsScores()) {  // rows that are not computed have no logits to score
    tokens = std::min(tokens, static_cast<int64_t>(submission.prompt_logprobs.size()) - 1);
  }
  return Match(submission.salt, std::span(sequence.tokens).first(std::max<int64_t>(0, tokens)));
}

void KvMemory::Adopt(const kvcache::PrefixMatch& match, kvcache::BlockTable* blocks) {
  for (const int32_t block : match.blocks) {
    pool_.AddReference(block);
    blocks->Adopt(block);
  }
}

void KvMemory::Adopt(const kvcache::PrefixMatch& match, Sequence* sequence) {
  Adopt(match, &sequence->blocks);
  sequence->shared_tokens = match.indexed_blocks * block_tokens();
  if (has_windows()) AdoptWindow(match, &sequence->window_blocks);
}

void KvMemory::AdoptWindow(const kvcache::PrefixMatch& match, kvcache::BlockTable* window_blocks) {
  window_blocks->Skip(static_cast<int64_t>(match.blocks.size() - match.window_blocks.size()));
  for (const int32_t block : match.window_blocks) {
    window_pool_.AddReference(block);
    window_blocks->Adopt(block);
  }
}

int64_t KvMemory::FirstInWindow(int64_t tokens) const {
  if (!has_windows()) return 0;
  // At least one token is.
  const int64_t first = std::min(tokens - 1, tokens + 1 - window_tokens_);
  return std::max<int64_t>(0, first) / block_tokens() * block_tokens();
}

bool KvMemory::HasRoomForWindow(int64_t tokens, int64_t running) const {
  if (!has_windows()) return true;
  const int64_t blocks =
      scheduler::BlocksFor(tokens + 1, block_tokens()) - FirstInWindow(tokens) / block_tokens();
  return free_window_blocks() >= blocks + running;
}

void KvMemory::TakeWindow(int64_t tokens, const kvcache::PrefixMatch& match,
                          kvcache::BlockTable* window_blocks) {
  if (!has_windows()) return;
  const int64_t first = FirstInWindow(tokens);
  if (const auto matched = static_cast<int64_t>(match.blocks.size()) * block_tokens();
      matched > first) {
    AdoptWindow(match, window_blocks);
    window_blocks->FreeBefore(first);
  } else {
    window_blocks->Skip(first / block_tokens());
  }
  window_blocks->Grow(tokens + 1);
}

bool KvMemory::GrowWindow(Sequence* sequence) const {
  if (!has_windows()) return true;
  const auto blocks = static_cast<int64_t>(sequence->blocks.blocks().size());
  return sequence->window_blocks.Grow(blocks * block_tokens());
}

int64_t KvMemory::WindowBlocksOf(int64_t tokens) const {
  return std::min(tessera::WindowBlocksOf(window_tokens_, block_tokens()),
                  scheduler::BlocksFor(tokens, block_tokens()));
}

void KvMemory::FreeBehindWindow(Sequence* sequence) const {
  if (!has_windows()) return;
  // The next token sees itself and window_tokens_ - 1 before it.
  const int64_t first = std::max<int64_t>(0, sequence->computed_tokens + 1 - window_tokens_);
  const Submission& submission = *sequence->submission;
  std::array<int64_t, 4> branches = {
      sequence->shared_tokens, submission.request.message_begin_tokens(),
      submission.request.message_end_tokens(), submission.prompt_tokens};
  std::sort(branches.begin(), branches.end());
  kvcache::BlockTable& blocks = sequence->window_blocks;
  for (const int64_t branch : branches) {
    if (branch <= 0) continue;
    // A match ends with a whole block, before the prompt's last token, and where a message begins
    // is known but for a token or so.
    const int64_t seen = FirstInWindow(branch) - 2 * block_tokens();
    blocks.FreeBefore(std::clamp<int64_t>(seen, 0, first));
    blocks.FreeBefore(std::min(first, branch), kvcache::BlockPool::Evicted::kLast);
  }
  blocks.FreeBefore(first);
}

void KvMemory::GiveBackDrafts(Sequence* sequence) const {
  sequence->blocks.ShrinkTo(sequence->known_tokens());
  if (!has_windows()) return;
  sequence->window_blocks.ShrinkTo(sequence->known_tokens());
  FreeBehindWindow(sequence);
}

void KvMemory::Index(Sequence* sequence) {
  const Submission& submission = *sequence->submission;
  const int64_t size = block_tokens();
  const int64_t tokens = std::min(sequence->computed_tokens, submission.indexed_tokens);
  for (int64_t& block = sequence->indexed_blocks; (block + 1) * size <= tokens; ++block) {
    sequence->node = index_.Insert(
        submission.salt, sequence->node, std::span(sequence->tokens).subspan(block * size, size),
        sequence->blocks.blocks()[block],
        has_windows() ? sequence->window_blocks.blocks()[block] : kvcache::BlockTable::kNoBlock);
  }
}

}  // namespace tessera::worker
