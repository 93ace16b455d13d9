#include "coordinator/grammar/json_grammar.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/grammar/code_points.h"
#include "coordinator/grammar/number_grammar.h"

namespace tessera::coordinator {
namespace {

constexpr int64_t kUnitCharacters = 8;
constexpr int64_t kBlockCharacters = 8 * kUnitCharacters;
// Behind a unit come at least so many. Longer tokens over its end are not written there.
constexpr int64_t kAheadCharacters = 24;

constexpr char kQuote[] = "\"\\\"\"";

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

std::string JsonGrammar::UnitThen(const std::string& then) {
  const std::string unit = absl::StrCat(kJsonCharacterRegex, "{", kUnitCharacters, "}");
  const std::string ahead = Characters(0, kAheadCharacters - 1, "", kQuote);
  const std::string name = text_.Declare();
  text_.Define(name, absl::StrCat("Regex(", GrammarText::Quoted(unit), ") (= ", ahead, ")"));
  return absl::StrCat(name, " ", then);
}

std::string JsonGrammar::Units(int64_t min, int64_t max, const std::string& then,
                               const std::string& end) {
  const auto [known, is_new] = units_.try_emplace({min, max, then, end});
  if (!is_new) return known->second;
  const int64_t units = std::max<int64_t>(0, max - kAheadCharacters) / kUnitCharacters;
  const auto left = [min](int64_t i) { return std::max<int64_t>(0, min - i * kUnitCharacters); };
  std::string rule = Characters(left(units), max - units * kUnitCharacters, then, end);
  for (int64_t i = units - 1; i >= 0; --i) {
    std::string body = UnitThen(rule);
    if (left(i) < kUnitCharacters)
      absl::StrAppend(&body, " | ", Characters(left(i), kUnitCharacters - 1, "", end));
    rule = text_.Add(body);
  }
  return known->second = rule;
}

const std::string& JsonGrammar::Block() {
  if (!block_.empty()) return block_;
  // What follows a rule counts as known only where a rule stands behind it.
  block_ = text_.Add("\"\"");
  for (int64_t i = 0; i < kBlockCharacters; i += kUnitCharacters)
    block_ = text_.Add(UnitThen(block_));
  return block_;
}

std::string JsonGrammar::StringOf(int64_t min, int64_t max) {
  const bool is_open = max < 0;
  if (is_open && min == 0) return absl::StrCat(kQuote, " ", rest_);
  const int64_t counted = is_open ? min - 1 : max;
  // Behind a block come as many characters as behind a unit.
  const int64_t blocks = std::max<int64_t>(0, counted - kAheadCharacters) / kBlockCharacters;
  const auto left = [min](int64_t i) { return std::max<int64_t>(0, min - i * kBlockCharacters); };
  std::string then =
      Units(left(blocks), counted - blocks * kBlockCharacters, is_open ? rest_ : "", kQuote);
  for (int64_t i = blocks - 1; i >= 0; --i) {
    std::string body = absl::StrCat(Block(), " ", then);
    if (left(i) < kBlockCharacters)
      absl::StrAppend(&body, " | ", Units(left(i), kBlockCharacters - 1, "", kQuote));
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
  const std::string array = text_.Add(
      absl::StrCat("\"[\" ", space_, " (", value_, " (", comma, value_, ")* ", space_, ")? \"]\""));
  const std::string number = text_.Add(*NumberBody({}));
  text_.Define(value_, absl::StrCat(object_, " | ", array, " | ", string_, " | ", number,
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

}  // namespace tessera::coordinator
