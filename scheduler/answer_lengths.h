// How long an answer will get, from how long recent ones got: what admission counts beside the
// tokens that are known now.
//
// Problem: a sequence that is admitted for its known tokens grows, and the pool runs out under all
// that were admitted so. Idea: of the recent answers, those that were longer than what a sequence
// has emitted say how long it will be on average; never more than it may emit. Thread rule: one
// thread per object. Deterministic. Cost: O(kRecent + kTabled) per answer that ends, one look into
// a table per question, O(log kRecent) beyond it. Engine and simulator use it alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace tessera::scheduler {

class AnswerLengths {
 public:
  static constexpr size_t kRecent = 256;
  static constexpr int64_t kTabled = 2048;  // emitted tokens, from which on there is no table

  // An answer ended with so many tokens.
  void Note(int64_t output_tokens);

  // Tokens that a sequence with `emitted` of at most `max_tokens` will have emitted in the end;
  // at least one more than it has, as long as it may. Before any answer ended: max_tokens.
  int64_t Expected(int64_t emitted, int64_t max_tokens) const;

 private:
  // Mean of the recent answers from that place of sorted_ on, rounded up.
  int64_t MeanFrom(size_t place) const;

  std::deque<int64_t> recent_;   // oldest first
  std::vector<int64_t> sorted_;  // the same, by length
  std::vector<int64_t> sums_;    // of sorted_ from each place to the end
  // By emitted tokens: the mean of longer answers, as far as there are any and up to kTabled.
  std::vector<int64_t> expected_;
};

}  // namespace tessera::scheduler
