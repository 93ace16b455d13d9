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

// A rule for each count of the mark's characters that have been seen.
std::string TextOf(std::string_view mark, bool has_mark, GrammarText* text) {
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
    if (!has_mark) ways.push_back("\"\"");
    for (const auto& [then, characters] : next) {
      if (then == wanted.size() && !has_mark) continue;
      const std::string rest = then == wanted.size() ? "" : absl::StrCat(" ", rules[then]);
      ways.push_back(absl::StrCat(characters.AsClass(), rest));
    }
    text->Define(rules[seen], absl::StrJoin(ways, " | "));
  }
  return rules[0];
}

}  // namespace

std::string TextUpTo(std::string_view mark, GrammarText* text) { return TextOf(mark, true, text); }

std::string TextWithout(std::string_view mark, GrammarText* text) {
  return TextOf(mark, false, text);
}

std::string BehindStart(const AnswerStart& start, const std::string& form, GrammarText* text) {
  std::string answer = form;
  const std::string any = CodePoints::All().AsClass();
  for (const std::string& call : start.calls) {
    absl::StrAppend(&answer, " | ", GrammarText::Quoted(call), " ", any, "*");
  }
  if (start.closing.empty()) return answer;
  answer = text->Add(answer);
  const std::string behind = absl::StrCat(TextUpTo(start.closing, text), " [ \\n]{0,4} ", answer);
  if (start.calls_in_thinking) return absl::StrCat(behind, " | ", TextWithout(start.closing, text));
  if (start.is_open) return behind;
  return absl::StrCat(answer, " | ", GrammarText::Quoted(start.opening), " ", behind);
}

}  // namespace tessera::coordinator
