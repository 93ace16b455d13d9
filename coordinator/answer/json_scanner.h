// Reads one JSON object or array byte by byte and says where it ends, without keeping it.
//
// Strict (RFC 8259), but for UTF-8, which is not looked at, and for control characters within a
// string, which models write: whoever passes the bytes on escapes them (EscapedControl). Nests at
// most kMaxDepth levels. Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tessera::coordinator {

class JsonScanner {
 public:
  static constexpr size_t kMaxDepth = 64;
  enum class State { kOpen, kComplete, kBroken };

  // The next byte. After kComplete or kBroken nothing more may come.
  State Byte(char c);

  // Objects and arrays that are open.
  size_t depth() const { return open_.size(); }
  bool in_string() const { return within_ == Within::kString; }
  bool expects_value() const {
    return within_ == Within::kNothing && (next_ == Next::kValue || next_ == Next::kValueOrEnd);
  }
  bool expects_colon() const { return within_ == Within::kNothing && next_ == Next::kColon; }
  bool expects_comma() const { return within_ == Within::kNothing && next_ == Next::kCommaOrEnd; }
  bool expects_key() const {
    return within_ == Within::kNothing && (next_ == Next::kKey || next_ == Next::kKeyOrEnd);
  }

 private:
  enum class Within { kNothing, kString, kEscape, kUnicode, kNumber, kLiteral };
  enum class Next { kStart, kValue, kValueOrEnd, kKey, kKeyOrEnd, kColon, kCommaOrEnd };

  bool Structure(char c);
  bool BeginValue(char c);
  bool Open(char c);
  bool Close(char c);
  bool StringByte(char c);
  bool EscapeByte(char c);
  void EndString();
  void AfterValue() { next_ = Next::kCommaOrEnd; }

  std::string open_;  // the open brackets
  Within within_ = Within::kNothing;
  Next next_ = Next::kStart;
  bool is_key_ = false;  // the string that is open
  int hex_digits_ = 0;   // that a \u still needs
  std::string number_;   // so far
  std::string_view literal_left_;
  bool complete_ = false;
};

// Whether `text` is a number of JSON.
bool IsJsonNumber(std::string_view text);

// A byte of a JSON string as it may be passed on: control characters as escapes.
std::string EscapedControl(char c);

}  // namespace tessera::coordinator
