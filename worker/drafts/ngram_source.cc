#include "worker/drafts/ngram_source.h"

#include <algorithm>

namespace tessera::worker {

size_t NgramSource::Find(std::span<const int32_t> tokens, int64_t end) const {
  const auto wanted = tokens.subspan(static_cast<size_t>(end - kIndexed), kIndexed);
  uint64_t hash = 0x9e3779b97f4a7c15;
  for (const int32_t token : wanted) {
    hash = (hash ^ static_cast<uint32_t>(token)) * 0xbf58476d1ce4e5b9;
    hash ^= hash >> 29;
  }
  for (size_t at = hash & (places_.size() - 1);; at = (at + 1) & (places_.size() - 1)) {
    if (places_[at] == 0) return at;
    const auto there = tokens.subspan(static_cast<size_t>(places_[at] - kIndexed), kIndexed);
    if (std::equal(there.begin(), there.end(), wanted.begin())) return at;
  }
}

void NgramSource::Enlarge(std::span<const int32_t> tokens) {
  const std::vector<int32_t> before = std::move(places_);
  places_.assign(std::max<size_t>(64, 2 * before.size()), 0);
  for (const int32_t end : before) {
    if (end > 0) places_[Find(tokens, end)] = end;
  }
}

void NgramSource::Follow(std::span<const int32_t> tokens) {
  for (int64_t end = std::max(followed_, kIndexed); end < std::ssize(tokens); ++end) {
    if (2 * (used_ + 1) > std::ssize(places_)) Enlarge(tokens);
    int32_t& place = places_[Find(tokens, end)];
    used_ += place == 0 ? 1 : 0;
    place = static_cast<int32_t>(end);
  }
  followed_ = std::max(followed_, std::ssize(tokens));
}

int64_t NgramSource::LastPlace(std::span<const int32_t> tokens) {
  Follow(tokens);
  if (places_.empty()) return 0;
  return places_[Find(tokens, std::ssize(tokens))];
}

void NgramSource::Propose(std::span<const int32_t> tokens, int64_t most,
                          std::vector<int32_t>* drafts) {
  drafts->clear();
  const int64_t place = LastPlace(tokens);
  if (place < kMinMatch) return;
  const int64_t last = std::ssize(tokens);
  if (tokens[place - kMinMatch] != tokens[last - kMinMatch]) return;
  // A text that repeats itself at once goes on so: what is drafted may be what is drafted.
  for (int64_t i = 0; i < most; ++i) {
    const int64_t from = place + i;
    drafts->push_back(from < last ? tokens[from] : (*drafts)[from - last]);
  }
}

bool NgramSource::MayProposeNext(std::span<const int32_t> tokens) { return LastPlace(tokens) > 0; }

}  // namespace tessera::worker
