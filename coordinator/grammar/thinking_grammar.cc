#include "coordinator/grammar/thinking_grammar.h"

#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "coordinator/grammar/code_points.h"
#include "coordinator/tokenizer/utf8.h"

namespace tessera::coordinator {
namespace {

std::u32string CodePointsOf(std::string_view text) {
  std::u32string all;
  for (size_t at = 0; at < text.size();) all.push_back(NextCodePoint(text, &at));
  return all;
}

// How many characters of `mark` end a text that has `seen`, its first ones, and then `next`.
size_t SeenBehind(const std::u32string& mark, size_t seen, char32_t next) {
  const std::u32string text = mark.substr(0, seen) + next;
  for (size_t length = std::min(text.size(), mark.size()); length > 0; --length) {
    if (text.compare(text.size() - length, length, mark, 0, length) == 0) return length;
  }
  return 0;
}

}  // namespace

// A rule for each count of the mark's characters that have been seen.
std::string TextUpTo(std::string_view mark, GrammarText* text) {
  const std::u32string wanted = CodePointsOf(mark);
  std::vector<std::string> rules;
  for (size_t i = 0; i < wanted.size(); ++i) rules.push_back(text->Declare());
  for (size_t seen = 0; seen < wanted.size(); ++seen) {
    std::map<size_t, CodePoints> next;
    CodePoints known;
    for (const char32_t c : wanted) {
      next[SeenBehind(wanted, seen, c)].Add(c, c);
      known.Add(c, c);
    }
    next[0].Add(known.Complement());
    std::vector<std::string> ways;
    for (const auto& [then, characters] : next) {
      const std::string rest = then == wanted.size() ? "" : absl::StrCat(" ", rules[then]);
      ways.push_back(absl::StrCat(characters.AsClass(), rest));
    }
    text->Define(rules[seen], absl::StrJoin(ways, " | "));
  }
  return rules[0];
}

std::string WithThinking(std::string_view opening, std::string_view closing, ThinkingPart part,
                         const std::string& answer, GrammarText* text) {
  const std::string thinking = absl::StrCat(TextUpTo(closing, text), " [ \\n]{0,4}");
  if (part == ThinkingPart::kOpen) return absl::StrCat(thinking, " ", answer);
  return absl::StrCat("(", GrammarText::Quoted(opening), " ", thinking, ")? ", answer);
}

}  // namespace tessera::coordinator
