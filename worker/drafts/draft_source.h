// Where drafts come from: guesses of the tokens behind a sequence's last one, which a step computes
// on trial. A draft stands only if it equals the token that is drawn at its place, so no token
// depends on a source; a good one only saves steps.
//
// Thread rule: one thread (the engine's). A source follows one sequence.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace tessera::worker {

// Drafts of a sequence in one step, at most.
inline constexpr int64_t kMaxDrafts = 6;

class DraftSource {
 public:
  virtual ~DraftSource() = default;
  // Replaces `drafts` by the tokens that may follow `tokens`, `most` at most, the next one first.
  // `tokens` begin with those of the call before.
  virtual void Propose(std::span<const int32_t> tokens, int64_t most,
                       std::vector<int32_t>* drafts) = 0;
  // Whether it may propose some behind `tokens` and one more, which is not known yet.
  virtual bool MayProposeNext(std::span<const int32_t> tokens) = 0;
  // What the model's head proposed behind the first `behind` tokens.
  virtual void Take(int64_t /*behind*/, std::vector<int32_t> /*drafts*/) {}
};

// Makes the source of one sequence. Null: nothing is drafted.
using DraftSourceFactory = std::function<std::unique_ptr<DraftSource>()>;

}  // namespace tessera::worker
