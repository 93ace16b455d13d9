// The drafts of one sequence: what its source proposes, until too much of that is refused.
//
// Thread rule: one thread (the engine's). Ownership: owns the source.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "worker/drafts/draft_source.h"

namespace tessera::worker {

class Drafter {
 public:
  // So many lists in a row of which no draft stood end the drafting.
  static constexpr int64_t kMaxMisses = 64;

  explicit Drafter(std::unique_ptr<DraftSource> source) : source_(std::move(source)) {}

  bool gave_up() const { return misses_ >= kMaxMisses; }
  // As DraftSource has them; never any once it gave up.
  void Propose(std::span<const int32_t> tokens, int64_t most, std::vector<int32_t>* drafts);
  bool MayProposeNext(std::span<const int32_t> tokens);
  // A step tried a list of which the first `accepted` drafts stood.
  void Note(int64_t accepted) { misses_ = accepted > 0 ? 0 : misses_ + 1; }

 private:
  const std::unique_ptr<DraftSource> source_;
  int64_t misses_ = 0;  // in a row
};

}  // namespace tessera::worker
