#include "coordinator/grammar/thinking_grammar.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "coordinator/grammar/code_points.h"
#include "coordinator/tokenizer/text/utf8.h"

namespace tessera::coordinator {
namespace {

std::u32string CodePointsOf(std::string_view text) {
  std::u32string all;
  for (size_t at = 0; at < text.size();) all.push_back(NextCodePoint(text, &at));
  return all;
}

// What may be seen of the marks at a text's end: their beginnings. The first is none of them.
std::vector<std::u32string> Beginnings(const std::vector<std::u32string>& marks) {
  std::set<std::u32string> all = {U""};
  for (const std::u32string& mark : marks) {
    for (size_t length = 1; length <= mark.size(); ++length) all.insert(mark.substr(0, length));
  }
  return {all.begin(), all.end()};
}

// The longest end of `text` that is one of `beginnings`.
size_t SeenBehind(const std::vector<std::u32string>& beginnings, std::u32string_view text) {
  for (;; text.remove_prefix(1)) {
    const auto found = std::lower_bound(beginnings.begin(), beginnings.end(), text);
    if (found != beginnings.end() && *found == text) return found - beginnings.begin();
  }
}

// A rule for each beginning that may have been seen.
std::string TextOf(const std::vector<std::string>& marks, bool has_first, GrammarText* text) {
  std::vector<std::u32string> wanted;
  for (const std::string& mark : marks) wanted.push_back(CodePointsOf(mark));
  const std::vector<std::u32string> beginnings = Beginnings(wanted);
  const auto ends_with = [](const std::u32string& seen, const std::u32string& mark) {
    return seen.size() >= mark.size() &&
           seen.compare(seen.size() - mark.size(), mark.size(), mark) == 0;
  };
  const auto is_end = [&](const std::u32string& seen) {
    return std::any_of(wanted.begin(), wanted.end(),
                       [&](const std::u32string& mark) { return ends_with(seen, mark); });
  };
  CodePoints known;
  for (const std::u32string& mark : wanted) {
    for (const char32_t c : mark) known.Add(c, c);
  }
  std::vector<std::string> rules(beginnings.size());
  for (size_t i = 0; i < rules.size(); ++i) {
    if (!is_end(beginnings[i])) rules[i] = text->Declare();
  }
  for (size_t seen = 0; seen < rules.size(); ++seen) {
    if (rules[seen].empty()) continue;
    std::map<size_t, CodePoints> next;
    for (const std::u32string& mark : wanted) {
      for (const char32_t c : mark) next[SeenBehind(beginnings, beginnings[seen] + c)].Add(c, c);
    }
    next[0].Add(known.Complement());
    std::vector<std::string> ways;
    if (!has_first) ways.push_back("\"\"");
    for (const auto& [then, characters] : next) {
      if (!rules[then].empty()) {
        ways.push_back(absl::StrCat(characters.AsClass(), " ", rules[then]));
      } else if (has_first && ends_with(beginnings[then], wanted[0])) {
        ways.push_back(characters.AsClass());
      }
    }
    text->Define(rules[seen], absl::StrJoin(ways, " | "));
  }
  return rules[0];
}

}  // namespace

std::string TextUpTo(const std::vector<std::string>& marks, GrammarText* text) {
  return TextOf(marks, true, text);
}

std::string TextWithout(const std::vector<std::string>& marks, GrammarText* text) {
  return TextOf(marks, false, text);
}

std::string BehindStart(const AnswerStart& start, const std::string& form, GrammarText* text) {
  std::string answer = form;
  const std::string any = CodePoints::All().AsClass();
  for (const std::string& call : start.calls) {
    absl::StrAppend(&answer, " | ", GrammarText::Quoted(call), " ", any, "*");
  }
  if (start.held_calls) {
    const std::string calls = start.held_calls(text);
    if (!calls.empty()) absl::StrAppend(&answer, " | ", calls);
  }
  if (start.closing.empty()) return answer;
  answer = text->Add(answer);
  const std::string behind = absl::StrCat(TextUpTo({start.closing}, text), " [ \\n]{0,4} ", answer);
  if (start.calls_in_thinking)
    return absl::StrCat(behind, " | ", TextWithout({start.closing}, text));
  if (start.is_open) return behind;
  return absl::StrCat(answer, " | ", GrammarText::Quoted(start.opening), " ", behind);
}

}  // namespace tessera::coordinator
