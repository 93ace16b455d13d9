// Sets of code points, and how they are written within a JSON string.
//
// Thread rule: plain data.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tessera::coordinator {

// Any character of a JSON string, for Regex("..."): one code point or one whole escape.
inline constexpr char kJsonCharacterRegex[] =
    R"re(([ !#-\[\]-\ud7ff\ue000-\u{10ffff}]|\\(["\\/bfnrt]|u([0-9a-cA-CeEfF][0-9a-fA-F]{3}|)re"
    R"re([dD][0-7][0-9a-fA-F]{2}|[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}))))re";

class CodePoints {
 public:
  static constexpr char32_t kHighest = 0x10FFFF;

  CodePoints() = default;
  static CodePoints Of(char32_t first, char32_t last);
  static CodePoints All();        // surrogates are none
  static CodePoints Unescaped();  // what a JSON string holds as itself

  void Add(char32_t first, char32_t last);
  void Add(const CodePoints& other);
  CodePoints Complement() const;
  CodePoints Within(const CodePoints& other) const;
  bool empty() const { return ranges_.empty(); }
  bool Has(char32_t code_point) const;

  // One of them, as a class of a grammar.
  std::string AsClass() const;
  // One of them as it may stand in a JSON string, as alternatives of a grammar: as itself, or as an
  // escape where it must be one. Control characters without a short escape are left out where the
  // set has many.
  std::string InJsonString() const;
  // The same, and then a rule.
  std::string InJsonStringThen(const std::string& rule) const;
  // How many alternatives that has.
  int64_t CountWaysInJsonString() const;
  // Both for Regex("...") of a grammar.
  std::string AsRegexClass() const;
  std::string InJsonStringAsRegex() const;

 private:
  void Normalize();
  // What is written as an escape.
  std::vector<std::string> EscapesInJsonString() const;
  std::vector<std::string> WaysInJsonString() const;

  std::vector<std::pair<char32_t, char32_t>> ranges_;  // sorted, apart; both ends are in
};

}  // namespace tessera::coordinator
