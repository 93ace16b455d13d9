#include "coordinator/answer/json_scanner.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"

namespace tessera::coordinator {
namespace {

bool IsSpace(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

}  // namespace

bool IsJsonNumber(std::string_view text) {
  size_t at = 0;
  const auto digits = [&] {
    const size_t begin = at;
    while (at < text.size() && absl::ascii_isdigit(text[at])) ++at;
    return at > begin;
  };
  const auto skip = [&](std::string_view any) {
    const bool there = at < text.size() && any.find(text[at]) != std::string_view::npos;
    at += there ? 1 : 0;
    return there;
  };
  skip("-");
  if (!skip("0") && !digits()) return false;
  if (skip(".") && !digits()) return false;
  if (skip("eE")) {
    skip("+-");
    if (!digits()) return false;
  }
  return at == text.size();
}

std::string EscapedControl(char c) {
  if (static_cast<unsigned char>(c) >= 0x20) return std::string(1, c);
  if (c == '\n') return "\\n";
  if (c == '\t') return "\\t";
  if (c == '\r') return "\\r";
  return absl::StrFormat("\\u%04x", static_cast<unsigned char>(c));
}

JsonScanner::State JsonScanner::Byte(char c) {
  if (complete_) return State::kBroken;
  bool fits = false;
  switch (within_) {
    case Within::kString: fits = StringByte(c); break;
    case Within::kEscape:
    case Within::kUnicode: fits = EscapeByte(c); break;
    case Within::kLiteral:
      fits = c == literal_left_.front();
      literal_left_.remove_prefix(1);
      if (literal_left_.empty()) within_ = Within::kNothing;
      break;
    case Within::kNumber:
      if (absl::ascii_isalnum(c) || c == '+' || c == '-' || c == '.') {
        number_.push_back(c);
        fits = true;
        break;
      }
      within_ = Within::kNothing;
      fits = IsJsonNumber(number_) && Structure(c);
      break;
    case Within::kNothing: fits = Structure(c); break;
  }
  if (!fits) return State::kBroken;
  return complete_ ? State::kComplete : State::kOpen;
}

bool JsonScanner::Structure(char c) {
  if (IsSpace(c)) return next_ != Next::kStart;
  switch (next_) {
    case Next::kStart: return Open(c);
    case Next::kValueOrEnd:
      if (c == ']') return Close(c);
      return BeginValue(c);
    case Next::kValue: return BeginValue(c);
    case Next::kKeyOrEnd:
      if (c == '}') return Close(c);
      [[fallthrough]];
    case Next::kKey:
      is_key_ = true;
      within_ = Within::kString;
      return c == '"';
    case Next::kColon: next_ = Next::kValue; return c == ':';
    case Next::kCommaOrEnd:
      if (c != ',') return Close(c);
      next_ = open_.back() == '{' ? Next::kKey : Next::kValue;
      return true;
  }
  return false;
}

bool JsonScanner::BeginValue(char c) {
  if (c == '{' || c == '[') return Open(c);
  AfterValue();
  if (c == '"') {
    is_key_ = false;
    within_ = Within::kString;
    return true;
  }
  if (c == '-' || absl::ascii_isdigit(c)) {
    within_ = Within::kNumber;
    number_ = c;
    return true;
  }
  for (const std::string_view literal : {"true", "false", "null"}) {
    if (c != literal.front()) continue;
    within_ = Within::kLiteral;
    literal_left_ = literal.substr(1);
    return true;
  }
  return false;
}

bool JsonScanner::Open(char c) {
  if ((c != '{' && c != '[') || open_.size() == kMaxDepth) return false;
  open_.push_back(c);
  next_ = c == '{' ? Next::kKeyOrEnd : Next::kValueOrEnd;
  return true;
}

bool JsonScanner::Close(char c) {
  if (c != (open_.back() == '{' ? '}' : ']')) return false;
  open_.pop_back();
  AfterValue();
  complete_ = open_.empty();
  return true;
}

bool JsonScanner::StringByte(char c) {
  if (c == '\\') within_ = Within::kEscape;
  if (c == '"') EndString();
  return true;
}

bool JsonScanner::EscapeByte(char c) {
  if (within_ == Within::kUnicode) {
    if (--hex_digits_ == 0) within_ = Within::kString;
    return absl::ascii_isxdigit(c);
  }
  within_ = c == 'u' ? Within::kUnicode : Within::kString;
  hex_digits_ = 4;
  return c == 'u' || std::string_view("\"\\/bfnrt").find(c) != std::string_view::npos;
}

void JsonScanner::EndString() {
  within_ = Within::kNothing;
  next_ = is_key_ ? Next::kColon : Next::kCommaOrEnd;
}

}  // namespace tessera::coordinator
