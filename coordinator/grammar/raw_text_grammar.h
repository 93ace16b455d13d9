// Strings as formats of tags write them: raw, up to a closing tag. Every rule has the closing tag
// as its end.
//
// A string without limits holds anything but the tags. One that has a length holds no "</"
// besides, and one with a pattern no "<": so no tag can begin in it.
//
// Thread rule: one thread. Borrows the grammar's text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/grammar/grammar_text.h"
#include "coordinator/grammar/pattern_grammar.h"

namespace tessera::coordinator {

class RawTextGrammar {
 public:
  // The span of minLength and maxLength: two rules for each character.
  static constexpr int64_t kMaxCounted = 2000;

  // `closing` ends a string; `others`, of which each begins with "</", would end it too.
  RawTextGrammar(std::string closing, const std::vector<std::string>& others, GrammarText* text);

  const std::string& string() const { return string_; }
  // The one string; empty where it holds a tag.
  std::string Exactly(const std::string& string) const;
  // A body of strings of so many characters, at most kMaxCounted; max -1: no limit.
  std::string StringOf(int64_t min, int64_t max);
  // A body of strings that a pattern matches. InvalidArgument with the reason.
  absl::StatusOr<std::string> Matching(std::string_view pattern,
                                       const std::optional<PatternLengths>& lengths);

 private:
  GrammarText& text_;
  const std::string closing_;
  std::vector<std::string> tags_;  // the closing one first
  std::string string_;
};

}  // namespace tessera::coordinator
