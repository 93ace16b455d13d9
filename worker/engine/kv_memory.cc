#include "worker/engine/kv_memory.h"

#include <algorithm>

namespace tessera::worker {

KvMemory::KvMemory(const scheduler::BatchLimits& limits)
    : pool_(static_cast<int32_t>(limits.total_blocks), static_cast<int32_t>(limits.block_tokens)),
      index_(&pool_) {}

kvcache::PrefixMatch KvMemory::Match(std::string_view salt, std::span<const int32_t> tokens) const {
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

void KvMemory::Index(Sequence* sequence) {
  const Submission& submission = *sequence->submission;
  const int64_t size = block_tokens();
  const int64_t tokens = std::min(sequence->computed_tokens, submission.indexed_tokens);
  for (int64_t& block = sequence->indexed_blocks; (block + 1) * size <= tokens; ++block) {
    sequence->node = index_.Insert(submission.salt, sequence->node,
                                   std::span(sequence->tokens).subspan(block * size, size),
                                   sequence->blocks.blocks()[block]);
  }
}

}  // namespace tessera::worker
