// Regular expressions of tokenizer files: written for Oniguruma (Ruby syntax, Unicode), carried out
// by PCRE2 with its JIT.
//
// The pattern is translated where the two disagree (\s, \w, line anchors); what has no equal
// meaning in PCRE2 is refused when the pattern is compiled. Matching has a budget of backtracking
// steps, so that a bad pattern ends in an error and not in a hang.
//
// Immutable after Compile; FindAll may be called from any thread. Copies share the compiled code.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tessera::coordinator {

struct ByteSpan {
  size_t begin;
  size_t end;
};

class Regex {
 public:
  // InvalidArgument, with the place in the pattern, where it cannot be used.
  static absl::StatusOr<Regex> Compile(std::string_view pattern);

  // Appends the matches, left to right, not overlapping. A match may be empty, a place between two
  // characters, but not where the match before it ends. An empty text has none. Requires
  // well-formed UTF-8.
  // ResourceExhausted where the pattern backtracks beyond its budget.
  absl::Status FindAll(std::string_view text, std::vector<ByteSpan>* matches) const;

 private:
  struct Code;
  explicit Regex(std::shared_ptr<const Code> code) : code_(std::move(code)) {}
  std::shared_ptr<const Code> code_;
};

}  // namespace tessera::coordinator
