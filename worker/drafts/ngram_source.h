// Drafts from the sequence itself: where its last tokens stood before, those that followed then.
//
// A table of positions, hashed by the kIndexed tokens before each, gives the newest place where
// the last kIndexed tokens stood; the one before them must agree, too. So a match has kMinMatch
// tokens or more: shorter ones are mostly chance, and slow answers that repeat nothing.
//
// Cost: each token is hashed once, and a call is one look-up. Memory: 8 to 16 bytes a token.
// Deterministic. Prompt lookup: github.com/apoorvumang/prompt-lookup-decoding.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "worker/drafts/draft_source.h"

namespace tessera::worker {

class NgramSource final : public DraftSource {
 public:
  static constexpr int64_t kMinMatch = 8;

  void Propose(std::span<const int32_t> tokens, int64_t most,
               std::vector<int32_t>* drafts) override;
  bool MayProposeNext(std::span<const int32_t> tokens) override;

 private:
  static constexpr int64_t kIndexed = kMinMatch - 1;

  // The place in places_ of the kIndexed tokens before `end`: theirs, or an empty one.
  size_t Find(std::span<const int32_t> tokens, int64_t end) const;
  // Enters all places but the last, behind which nothing is known.
  void Follow(std::span<const int32_t> tokens);
  void Enlarge(std::span<const int32_t> tokens);
  // Where the last kIndexed tokens end before, newest first; 0: nowhere.
  int64_t LastPlace(std::span<const int32_t> tokens);

  std::vector<int32_t> places_;  // ends of kIndexed tokens; 0: empty. A power of two, half empty
  int64_t used_ = 0;             // of places_
  int64_t followed_ = 0;         // ends below are in places_
};

}  // namespace tessera::worker
