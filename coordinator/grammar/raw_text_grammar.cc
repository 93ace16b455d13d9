#include "coordinator/grammar/raw_text_grammar.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/grammar/code_points.h"
#include "coordinator/grammar/thinking_grammar.h"

namespace tessera::coordinator {
namespace {

// All characters but these.
std::string Without(std::string_view characters) {
  CodePoints set;
  for (const char c : characters) set.Add(c, c);
  return set.Complement().AsClass();
}

}  // namespace

RawTextGrammar::RawTextGrammar(std::string closing, const std::vector<std::string>& others,
                               GrammarText* text)
    : text_(*text), closing_(GrammarText::Quoted(closing)), tags_({std::move(closing)}) {
  tags_.insert(tags_.end(), others.begin(), others.end());
  string_ = TextUpTo(tags_, text);
}

std::string RawTextGrammar::Exactly(const std::string& string) const {
  const bool has_tag = std::any_of(tags_.begin(), tags_.end(), [&](const std::string& tag) {
    return string.find(tag) != string.npos;
  });
  return has_tag ? "" : absl::StrCat(GrammarText::Quoted(string), " ", closing_);
}

// From the last character to the first: what follows where a '<' stands before, and where not.
std::string RawTextGrammar::StringOf(int64_t min, int64_t max) {
  const std::string plain = Without("<"), behind_open = Without("</");
  std::string any = string_, behind = string_;
  int64_t at = min;
  if (max < 0) {
    // Behind the counted ones nothing but the tags is kept out: no tag may begin in them.
    behind = text_.AddRecursive(
        absl::StrCat(behind_open, " ", string_, " | \"<\" REST | ", closing_), "REST");
  } else {
    any = behind = text_.Add(closing_);
    at = max;
  }
  for (int64_t i = at - 1; i >= 0; --i) {
    const std::string end = i >= min ? absl::StrCat(" | ", closing_) : "";
    const std::string open = absl::StrCat(" | \"<\" ", behind, end);
    std::string next_any = text_.Add(absl::StrCat(plain, " ", any, open));
    behind = text_.Add(absl::StrCat(behind_open, " ", any, open));
    any = std::move(next_any);
  }
  return any;
}

absl::StatusOr<std::string> RawTextGrammar::Matching(std::string_view pattern,
                                                     const std::optional<PatternLengths>& lengths) {
  absl::StatusOr<std::string> body = RawPatternBody(pattern, U'<', lengths, &text_);
  if (!body.ok()) return body.status();
  return absl::StrCat("(", *body, ") ", closing_);
}

}  // namespace tessera::coordinator
