#include "coordinator/grammar/json_grammar.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/grammar/code_points.h"
#include "coordinator/grammar/number_grammar.h"

namespace tessera::coordinator {
namespace {

constexpr int64_t kBlockCharacters = 1000;

// Behind the backslash.
constexpr char kEscape[] =
    R"(["\\/bfnrt] | "u" ([0-9a-cA-CeEfF] [0-9a-fA-F]{3} | [dD] [0-7] [0-9a-fA-F]{2} | )"
    R"([dD] [89abAB] [0-9a-fA-F]{2} "\\u" [dD] [c-fC-F] [0-9a-fA-F]{2}))";

std::string OneMore(const std::string& escape, const std::string& then) {
  return absl::StrCat(CodePoints::Unescaped().AsClass(), " ", then, " | \"\\\\\" ", escape, " ",
                      then);
}

}  // namespace

JsonGrammar::JsonGrammar(GrammarText* text)
    : text_(*text),
      space_(text_.Add("(\" \" | \"\\n\" [ \\t]{0,12})?")),
      escape_(text_.Add(kEscape)),
      characters_(text_.AddRecursive(absl::StrCat("\"\" | ", OneMore(escape_, "REST")), "REST")) {
  const std::string body = absl::StrCat("\"\\\"\" | ", OneMore(escape_, "REST"));
  rest_ = text_.AddRecursive(body, "REST");
  string_ = text_.Add(absl::StrCat("\"\\\"\" ", rest_));
}

std::string JsonGrammar::Characters(int64_t min, int64_t max, std::string then,
                                    const std::string& end) {
  for (int64_t i = max; i >= 0; --i) {
    std::string body = then.empty() ? "" : OneMore(escape_, then);
    if (i >= min) absl::StrAppend(&body, body.empty() ? "" : " | ", end);
    then = text_.Add(body);
  }
  return then;
}

std::string JsonGrammar::StringOf(int64_t min, int64_t max) {
  constexpr char kQuote[] = "\"\\\"\"";
  if (max < 0)
    return absl::StrCat(kQuote, " ", min > 0 ? Characters(min, min - 1, rest_, kQuote) : rest_);
  // Long ones in blocks: a rule for each block, and one for each character of a block.
  const int64_t blocks = max > kBlockCharacters ? (max - 1) / kBlockCharacters : 0;
  const auto left = [min](int64_t i) { return std::max<int64_t>(0, min - i * kBlockCharacters); };
  std::string then = Characters(left(blocks), max - blocks * kBlockCharacters, "", kQuote);
  if (blocks == 0) return absl::StrCat(kQuote, " ", then);
  const std::string block = Characters(kBlockCharacters, kBlockCharacters, "", "\"\"");
  for (int64_t i = blocks - 1; i >= 0; --i) {
    std::string body = absl::StrCat(block, " ", then);
    if (left(i) < kBlockCharacters)
      absl::StrAppend(&body, " | ", Characters(left(i), kBlockCharacters - 1, "", kQuote));
    then = text_.Add(body);
  }
  return absl::StrCat(kQuote, " ", then);
}

void JsonGrammar::DefineValues() {
  if (!value_.empty()) return;
  value_ = text_.Declare();
  const std::string member = absl::StrCat(string_, " \":\" ", space_, " ", value_);
  const std::string comma = absl::StrCat(space_, " \",\" ", space_, " ");
  object_ = text_.Add(
      absl::StrCat("\"{\" ", space_, " (", member, " (", comma, member, ")* ", space_, ")? \"}\""));
  array_ = text_.Add(
      absl::StrCat("\"[\" ", space_, " (", value_, " (", comma, value_, ")* ", space_, ")? \"]\""));
  const std::string number = text_.Add(*NumberBody({}));
  text_.Define(value_, absl::StrCat(object_, " | ", array_, " | ", string_, " | ", number,
                                    " | \"true\" | \"false\" | \"null\""));
}

std::string JsonGrammar::Value() {
  DefineValues();
  return value_;
}

std::string JsonGrammar::Object() {
  DefineValues();
  return object_;
}

std::string JsonGrammar::Array() {
  DefineValues();
  return array_;
}

}  // namespace tessera::coordinator
