#include "coordinator/jinja/lexer.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "coordinator/jinja/values/status.h"
#include "coordinator/jinja/values/unicode.h"
#include "third_party/absl/str_cat.h"

namespace tessera::coordinator::jinja {
namespace {

bool IsDigitChar(char c) { return c >= '0' && c <= '9'; }
bool IsNameStart(char c) { return ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || c == '_'; }

std::string NormalizeNewlines(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r') {
      out.push_back('\n');
      i += i + 1 < text.size() && text[i + 1] == '\n' ? 1 : 0;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

int Newlines(std::string_view text) {
  return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

int HexValue(char c) {
  if (IsDigitChar(c)) {
    return c - '0';
  }
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

// \xhh, \uhhhh and \Uhhhhhhhh: `at` is behind the letter. -1 where digits are missing.
int64_t ReadHexEscape(std::string_view body, size_t& at, int digits) {
  int64_t code = 0;
  for (int i = 0; i < digits; ++i, ++at) {
    if (at >= body.size() || HexValue(body[at]) < 0) {
      return -1;
    }
    code = code * 16 + HexValue(body[at]);
  }
  return code;
}

int64_t ReadOctalEscape(std::string_view body, size_t& at) {
  int64_t code = 0;
  for (int i = 0; i < 3 && at < body.size() && body[at] >= '0' && body[at] <= '7'; ++i, ++at) {
    code = code * 8 + (body[at] - '0');
  }
  return code;
}

// Python's string escapes; unknown ones stay as they are.
absl::StatusOr<std::string> Unescape(std::string_view body, int line) {
  constexpr std::string_view kLetters = "\\'\"abfnrtv";
  constexpr std::string_view kMeanings = "\\'\"\a\b\f\n\r\t\v";
  std::string out;
  for (size_t at = 0; at < body.size();) {
    if (body[at] != '\\' || at + 1 == body.size()) {
      out.push_back(body[at++]);
      continue;
    }
    const char letter = body[at + 1];
    at += 2;
    if (const size_t simple = kLetters.find(letter); simple != std::string_view::npos) {
      out.push_back(kMeanings[simple]);
      continue;
    }
    int64_t code = -2;
    switch (letter) {
      case '\n': continue;
      case 'x': code = ReadHexEscape(body, at, 2); break;
      case 'u': code = ReadHexEscape(body, at, 4); break;
      case 'U': code = ReadHexEscape(body, at, 8); break;
      case 'N': return SyntaxError(line, "character names (\\N{...}) are not supported");
      default:
        if (letter >= '0' && letter <= '7') {
          --at;
          code = ReadOctalEscape(body, at);
        }
    }
    if (code == -2) {
      out.push_back('\\');
      out.push_back(letter);
      continue;
    }
    if (code < 0 || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) {
      return SyntaxError(line, StrCat("the escape \\", letter, " in a string is no character"));
    }
    AppendUtf8(static_cast<uint32_t>(code), &out);
  }
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  absl::StatusOr<std::vector<Token>> Run() {
    while (at_ < source_.size()) {
      JINJA_RETURN_IF_ERROR(Text());
    }
    Add(TokenType::kEnd, line_);
    return std::move(tokens_);
  }

 private:
  void Add(TokenType type, int line, std::string text = "") {
    tokens_.push_back({type, line, std::move(text)});
  }
  std::string_view Rest() const { return std::string_view(source_).substr(at_); }
  bool StartsWith(std::string_view text) const { return Rest().starts_with(text); }
  // Moves on and counts lines.
  void Advance(size_t end) {
    line_ += Newlines(std::string_view(source_).substr(at_, end - at_));
    at_ = end;
  }
  void SkipSpace() { Advance(at_ + TrimSpace(Rest(), true, false).begin); }

  // Where the next {{, {% or {# is.
  size_t NextTag() const {
    for (size_t brace = source_.find('{', at_); brace != std::string::npos;
         brace = source_.find('{', brace + 1)) {
      const char next = brace + 1 < source_.size() ? source_[brace + 1] : '\0';
      if (next == '{' || next == '%' || next == '#') {
        return brace;
      }
    }
    return source_.size();
  }

  // What is left of the text before a tag with the given sign.
  std::string_view Stripped(std::string_view text, char sign, bool variable) const {
    if (sign == '-') {
      return text.substr(0, TrimSpace(text, false, true).end);
    }
    if (sign == '+' || variable) {
      return text;
    }
    const size_t break_at = text.rfind('\n');
    const size_t begin = break_at == std::string_view::npos ? 0 : break_at + 1;
    if (begin == 0 && !line_starting_) {
      return text;
    }
    const ByteRange kept = TrimSpace(text.substr(begin), true, true);
    return kept.begin == kept.end ? text.substr(0, begin) : text;
  }

  // Text up to the next tag, then the tag.
  absl::Status Text() {
    const size_t tag = NextTag();
    const std::string_view text = std::string_view(source_).substr(at_, tag - at_);
    if (tag == source_.size()) {
      Add(TokenType::kData, line_, std::string(text));
      Advance(tag);
      return absl::OkStatus();
    }
    const char kind = source_[tag + 1];
    size_t behind = tag + 2;
    char sign = '\0';
    if (behind < source_.size() && (source_[behind] == '-' || source_[behind] == '+')) {
      sign = source_[behind++];
    }
    const std::string_view kept = Stripped(text, sign, kind == '{');
    if (!kept.empty()) {
      Add(TokenType::kData, line_, std::string(kept));
    }
    Advance(tag);
    const int tag_line = line_;
    at_ = behind;
    if (kind == '#') {
      return Comment(tag_line);
    }
    if (kind == '%' && SkipRawBegin()) {
      return Raw(tag_line);
    }
    Add(kind == '%' ? TokenType::kBlockBegin : TokenType::kVariableBegin, tag_line);
    return Inside(kind == '%');
  }

  // Behind a tag's end at `end`, whose sign was the character before it.
  void CloseTag(size_t end, char sign, bool trim_line_break) {
    Advance(end);
    if (sign == '-') {
      SkipSpace();
    } else if (sign != '+' && trim_line_break && StartsWith("\n")) {
      Advance(at_ + 1);
    }
    line_starting_ = at_ > 0 && source_[at_ - 1] == '\n';
  }

  absl::Status Comment(int tag_line) {
    const size_t close = source_.find("#}", at_);
    if (close == std::string::npos) {
      return SyntaxError(tag_line, "the comment is not closed with #}");
    }
    const char sign = close > at_ ? source_[close - 1] : '\0';
    CloseTag(close + 2, sign, true);
    return absl::OkStatus();
  }

  // Whether {% is followed by `raw %}`; moves behind it if so.
  bool SkipRawBegin() {
    const size_t start = at_;
    const int line = line_;
    SkipSpace();
    if (StartsWith("raw")) {
      Advance(at_ + 3);
      SkipSpace();
      if (StartsWith("-%}")) {
        Advance(at_ + 3);
        SkipSpace();
        return true;
      }
      if (StartsWith("%}")) {
        Advance(at_ + 2);
        return true;
      }
    }
    at_ = start;
    line_ = line;
    return false;
  }

  absl::Status Raw(int tag_line) {
    // The raw tag's own last character decides for the text behind it; its line break is kept.
    line_starting_ = source_[at_ - 1] == '\n';
    const size_t begin = at_;
    for (size_t tag = source_.find("{%", at_); tag != std::string::npos;
         tag = source_.find("{%", tag + 2)) {
      size_t end = tag + 2;
      const char begin_sign = end < source_.size() ? source_[end] : '\0';
      end += begin_sign == '-' || begin_sign == '+' ? 1 : 0;
      std::string_view rest = std::string_view(source_).substr(end);
      rest.remove_prefix(TrimSpace(rest, true, false).begin);
      if (!rest.starts_with("endraw")) {
        continue;
      }
      rest.remove_prefix(6);
      rest.remove_prefix(TrimSpace(rest, true, false).begin);
      const char end_sign = !rest.empty() ? rest.front() : '\0';
      const bool has_sign = end_sign == '-' || end_sign == '+';
      if (!rest.substr(has_sign ? 1 : 0).starts_with("%}")) {
        continue;
      }
      const std::string_view text = std::string_view(source_).substr(begin, tag - begin);
      const std::string_view kept = Stripped(text, begin_sign, false);
      if (!kept.empty()) {
        Add(TokenType::kData, line_, std::string(kept));
      }
      CloseTag(source_.size() - rest.size() + (has_sign ? 3 : 2), has_sign ? end_sign : '\0', true);
      return absl::OkStatus();
    }
    return SyntaxError(tag_line, "the raw block is not closed with {% endraw %}");
  }

  // Whether the tag ends here; moves behind its end if so.
  bool TagEnd(bool block) {
    const std::string_view close = block ? "%}" : "}}";
    const char sign = StartsWith("-") || (block && StartsWith("+")) ? source_[at_] : '\0';
    if (!Rest().substr(sign != '\0' ? 1 : 0).starts_with(close)) {
      return false;
    }
    const int line = line_;
    CloseTag(at_ + (sign != '\0' ? 3 : 2), sign, block);
    Add(block ? TokenType::kBlockEnd : TokenType::kVariableEnd, line);
    return true;
  }

  // Tokens up to the tag's end. Inside brackets an end is an operator like any other.
  absl::Status Inside(bool block) {
    std::string open;
    while (at_ < source_.size()) {
      if (open.empty() && TagEnd(block)) {
        return absl::OkStatus();
      }
      const size_t space = TrimSpace(Rest(), true, false).begin;
      if (space > 0) {
        Advance(at_ + space);
        continue;
      }
      const char c = source_[at_];
      if (IsDigitChar(c)) {
        JINJA_RETURN_IF_ERROR(Number());
      } else if (IsNameStart(c)) {
        Name();
      } else if (c == '\'' || c == '"') {
        JINJA_RETURN_IF_ERROR(String());
      } else {
        JINJA_RETURN_IF_ERROR(Operator(open));
      }
    }
    return absl::OkStatus();  // the parser misses the end
  }

  void Name() {
    const size_t begin = at_;
    while (at_ < source_.size() && (IsNameStart(source_[at_]) || IsDigitChar(source_[at_]))) {
      ++at_;
    }
    Add(TokenType::kName, line_, source_.substr(begin, at_ - begin));
  }

  absl::Status String() {
    const char quote = source_[at_];
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) {
      end += source_[end] == '\\' ? 2 : 1;
    }
    if (end >= source_.size()) {
      return SyntaxError(line_, StrCat("the string that starts with ", quote, " is not closed"));
    }
    JINJA_ASSIGN_OR_RETURN(
        std::string text,
        Unescape(std::string_view(source_).substr(at_ + 1, end - at_ - 1), line_));
    Add(TokenType::kString, line_, std::move(text));
    Advance(end + 1);
    return absl::OkStatus();
  }

  // Behind the digits (of `base`) from `from` on, single underscores between them included.
  size_t SkipDigits(size_t from, int base) const {
    const auto is_digit = [&](size_t at) {
      return at < source_.size() && HexValue(source_[at]) >= 0 && HexValue(source_[at]) < base;
    };
    size_t at = from;
    while (is_digit(at) || (at < source_.size() && source_[at] == '_' && is_digit(at + 1) &&
                            (at > from || base != 10))) {
      ++at;
    }
    return at;
  }

  absl::Status Number() {
    const size_t begin = at_;
    const size_t whole = SkipDigits(begin, 10);
    size_t end = whole;
    // After a dot (items.0.5) digits are an index, not the start of a float.
    if (begin == 0 || source_[begin - 1] != '.') {
      if (end < source_.size() && source_[end] == '.' && end + 1 < source_.size() &&
          IsDigitChar(source_[end + 1])) {
        end = SkipDigits(end + 1, 10);
      }
      size_t exponent = end;
      if (exponent < source_.size() && (source_[exponent] | 0x20) == 'e') {
        ++exponent;
        if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-')) {
          ++exponent;
        }
        const size_t digits = SkipDigits(exponent, 10);
        end = digits > exponent ? digits : end;
      }
    }
    return end > whole ? FloatToken(begin, end) : IntegerToken(begin, whole);
  }

  std::string WithoutUnderscores(size_t begin, size_t end) const {
    std::string digits = source_.substr(begin, end - begin);
    std::erase(digits, '_');
    return digits;
  }

  absl::Status FloatToken(size_t begin, size_t end) {
    const std::string digits = WithoutUnderscores(begin, end);
    Token token{TokenType::kFloat, line_, ""};
    const auto [stop, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), token.real);
    if (error == std::errc::result_out_of_range) {
      // Python rounds what no float can hold: to zero or to infinity.
      token.real = digits.find("e-") != std::string::npos || digits.find("E-") != std::string::npos
                       ? 0.0
                       : HUGE_VAL;
    }
    tokens_.push_back(std::move(token));
    at_ = end;
    return absl::OkStatus();
  }

  absl::Status IntegerToken(size_t begin, size_t end) {
    int base = 10;
    const char mark = end < source_.size() && end == begin + 1 && source_[begin] == '0'
                          ? static_cast<char>(source_[end] | 0x20)
                          : '\0';
    const int marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    if (marked != 0 && SkipDigits(begin + 2, marked) > begin + 2) {
      base = marked;
      end = SkipDigits(begin + 2, marked);
      begin += 2;
    } else if (source_[begin] == '0') {
      // 007 is 00 and then 7, which no expression allows.
      end = std::min(source_.find_first_not_of("0_", begin), end);
    }
    Token token{TokenType::kInteger, line_, ""};
    for (const char digit : WithoutUnderscores(begin, end)) {
      if (__builtin_mul_overflow(token.integer, static_cast<Int>(base), &token.integer) ||
          __builtin_add_overflow(token.integer, static_cast<Int>(HexValue(digit)),
                                 &token.integer)) {
        return SyntaxError(line_, "an integer is beyond the limit of 127 bits");
      }
    }
    tokens_.push_back(std::move(token));
    at_ = end;
    return absl::OkStatus();
  }

  absl::Status Operator(std::string& open) {
    constexpr std::string_view kDouble[] = {"//", "**", "==", "!=", ">=", "<="};
    constexpr std::string_view kSingle = "+-/*%~[](){}><=.:|,;";
    const auto* two = std::find_if(std::begin(kDouble), std::end(kDouble),
                                   [&](std::string_view op) { return StartsWith(op); });
    const char c = source_[at_];
    if (two == std::end(kDouble) && kSingle.find(c) == std::string_view::npos) {
      size_t end = at_;
      NextCodePoint(source_, &end);
      return SyntaxError(line_,
                         StrCat("unexpected character '", source_.substr(at_, end - at_), "'"));
    }
    const std::string text = two != std::end(kDouble) ? std::string(*two) : std::string(1, c);
    if (text == "{" || text == "(" || text == "[") {
      open.push_back(c == '{' ? '}' : c == '(' ? ')' : ']');
    } else if (text == "}" || text == ")" || text == "]") {
      if (open.empty() || open.back() != c) {
        return SyntaxError(
            line_, open.empty() ? StrCat("unexpected '", c, "'")
                                : StrCat("unexpected '", c, "', expected '", open.back(), "'"));
      }
      open.pop_back();
    }
    Add(TokenType::kOperator, line_, text);
    at_ += text.size();
    return absl::OkStatus();
  }

  const std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // whether the text at at_ begins a line of the source
  std::vector<Token> tokens_;
};

}  // namespace

absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source) {
  std::string normalized = NormalizeNewlines(source);
  if (normalized.ends_with('\n')) {
    normalized.pop_back();
  }
  return Lexer(std::move(normalized)).Run();
}

absl::Status SyntaxError(int line, std::string_view reason) {
  return RenderError(StrCat("chat template line ", line, ": ", reason));
}

}  // namespace tessera::coordinator::jinja
