// Which ids the next token of a sequence may not be: ids outside allowed_token_ids, the last token
// of a bad word whose other tokens end the output, and ids that the caller adds (stop ids before
// min_tokens). Where thinking has used up its budget, every id but the next one of its end: that
// wins over the others.
//
// Thread rule: immutable after construction.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "proto/worker.pb.h"

namespace tessera::worker {

class TokenBans {
 public:
  TokenBans() = default;
  // `submit` passed CheckSubmit.
  TokenBans(const v1::Submit& submit, int64_t vocabulary);

  // The banned ids, sorted, each once. `more` is sorted, each id once. The result borrows this
  // object, `more` or `scratch`.
  std::span<const int32_t> After(std::span<const int32_t> output, std::span<const int32_t> more,
                                 std::vector<int32_t>* scratch) const;

  // Whether they depend on which tokens the output has.
  bool follow_output() const { return !words_.empty() || thinking_.has_value(); }

 private:
  // The token of the end of thinking.
  std::optional<int32_t> ForcedAfter(std::span<const int32_t> output) const;

  int64_t vocabulary_ = 0;
  std::optional<v1::ThinkingBudget> thinking_;
  std::vector<int32_t> always_;              // sorted, each once
  std::vector<std::vector<int32_t>> words_;  // bad words of two and more tokens
};

}  // namespace tessera::worker
