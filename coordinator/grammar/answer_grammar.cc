#include "coordinator/grammar/answer_grammar.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "coordinator/grammar/json_grammar.h"
#include "coordinator/grammar/pattern_grammar.h"
#include "coordinator/tokenizer/text/utf8.h"

namespace tessera::coordinator {
namespace {

constexpr int kMaxNesting = 64;

// How deep brackets nest that stand outside of quotes and classes; roughly is enough.
int NestingOf(std::string_view grammar) {
  int depth = 0, deepest = 0;
  char within = '\0';
  for (size_t i = 0; i < grammar.size(); ++i) {
    const char c = grammar[i];
    if (c == '\\') {
      ++i;
    } else if (within != '\0') {
      if (c == within) within = '\0';
    } else if (c == '"' || c == '[') {
      within = c == '"' ? '"' : ']';
    } else if (c == '(') {
      deepest = std::max(deepest, ++depth);
    } else if (c == ')') {
      --depth;
    }
  }
  return deepest;
}

absl::Status CheckText(std::string_view text) {
  if (text.size() > kMaxGivenBytes) {
    return absl::InvalidArgumentError(absl::StrCat("larger than ", kMaxGivenBytes, " bytes"));
  }
  if (FindInvalidUtf8(text) != std::string_view::npos || text.find('\0') != std::string_view::npos)
    return absl::InvalidArgumentError("not a text: it has a NUL or is not UTF-8");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<AnswerGrammar> AnswerGrammar::OfSchema(const nlohmann::ordered_json& schema,
                                                      SchemaMode mode) {
  AnswerGrammar answer;
  absl::StatusOr<SchemaGrammar> added = AddSchema(schema, mode, &answer.text_);
  if (!added.ok()) return added.status();
  answer.body_ = std::move(added->rule);
  answer.left_out_ = std::move(added->left_out);
  return answer;
}

AnswerGrammar AnswerGrammar::OfAnyObject() {
  AnswerGrammar answer;
  answer.body_ = JsonGrammar(&answer.text_).Object();
  return answer;
}

absl::StatusOr<AnswerGrammar> AnswerGrammar::OfRegex(std::string_view regex) {
  absl::StatusOr<std::string> body = PlainPatternBody(regex);
  if (!body.ok()) return body.status();
  AnswerGrammar answer;
  answer.body_ = *std::move(body);
  return answer;
}

absl::StatusOr<AnswerGrammar> AnswerGrammar::OfChoices(const std::vector<std::string>& choices) {
  if (choices.empty()) return absl::InvalidArgumentError("at least one choice is needed");
  if (absl::Status s = CheckText(absl::StrJoin(choices, "")); !s.ok()) return s;
  std::vector<std::string> quoted;
  for (const std::string& choice : choices) quoted.push_back(GrammarText::Quoted(choice));
  AnswerGrammar answer;
  answer.body_ = absl::StrJoin(quoted, " | ");
  return answer;
}

absl::StatusOr<AnswerGrammar> AnswerGrammar::OfEbnf(std::string grammar) {
  if (absl::Status s = CheckText(grammar); !s.ok()) return s;
  if (grammar.find("::=") == grammar.npos)
    return absl::InvalidArgumentError("EBNF is expected, as: root ::= \"yes\" | \"no\"");
  if (NestingOf(grammar) > kMaxNesting)
    return absl::InvalidArgumentError(absl::StrCat("it nests deeper than ", kMaxNesting));
  AnswerGrammar answer;
  answer.own_ = std::move(grammar);
  return answer;
}

std::string AnswerGrammar::Text(const AnswerStart& start) const {
  if (!own_.empty()) return own_;
  GrammarText text = text_;
  const std::string root = BehindStart(start, body_, &text);
  return text.WithRoot(root);
}

}  // namespace tessera::coordinator
