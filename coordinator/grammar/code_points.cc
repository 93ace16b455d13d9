#include "coordinator/grammar/code_points.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/grammar/grammar_text.h"

namespace tessera::coordinator {
namespace {

struct Escape {
  char32_t code_point;
  char letter;
};
constexpr Escape kEscapes[] = {{'"', '"'},  {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'},
                               {'\n', 'n'}, {'\r', 'r'},  {'\t', 't'}};

std::string InRegex(char32_t c) {
  const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  if (plain) return std::string(1, static_cast<char>(c));
  return absl::StrFormat("\\u{%x}", static_cast<uint32_t>(c));
}

}  // namespace

CodePoints CodePoints::Of(char32_t first, char32_t last) {
  CodePoints set;
  set.Add(first, last);
  return set;
}

CodePoints CodePoints::All() {
  CodePoints set = Of(0, 0xD7FF);
  set.Add(0xE000, kHighest);
  return set;
}

CodePoints CodePoints::Unescaped() {
  CodePoints set = Of(0x20, '"' - 1);
  set.Add('"' + 1, '\\' - 1);
  set.Add('\\' + 1, 0xD7FF);
  set.Add(0xE000, kHighest);
  return set;
}

void CodePoints::Add(char32_t first, char32_t last) {
  ranges_.emplace_back(first, last);
  Normalize();
}

void CodePoints::Add(const CodePoints& other) {
  ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end());
  Normalize();
}

void CodePoints::Normalize() {
  std::sort(ranges_.begin(), ranges_.end());
  std::vector<std::pair<char32_t, char32_t>> merged;
  for (const auto& [first, last] : ranges_) {
    if (!merged.empty() && first <= merged.back().second + 1) {
      merged.back().second = std::max(merged.back().second, last);
    } else {
      merged.emplace_back(first, last);
    }
  }
  ranges_ = std::move(merged);
}

CodePoints CodePoints::Complement() const {
  CodePoints rest;
  char32_t next = 0;
  for (const auto& [first, last] : ranges_) {
    if (first > next) rest.ranges_.emplace_back(next, first - 1);
    next = last + 1;
  }
  if (next <= kHighest) rest.ranges_.emplace_back(next, kHighest);
  return rest.Within(All());
}

CodePoints CodePoints::Within(const CodePoints& other) const {
  CodePoints both;
  for (const auto& [a, b] : ranges_) {
    for (const auto& [c, d] : other.ranges_) {
      if (std::max(a, c) <= std::min(b, d)) {
        both.ranges_.emplace_back(std::max(a, c), std::min(b, d));
      }
    }
  }
  both.Normalize();
  return both;
}

bool CodePoints::Has(char32_t code_point) const {
  return std::any_of(ranges_.begin(), ranges_.end(), [code_point](const auto& range) {
    return range.first <= code_point && code_point <= range.second;
  });
}

std::string CodePoints::AsClass() const {
  std::string all;
  for (const auto& [first, last] : ranges_) {
    absl::StrAppend(&all, GrammarText::InClass(first));
    if (last > first) absl::StrAppend(&all, "-", GrammarText::InClass(last));
  }
  return absl::StrCat("[", all, "]");
}

std::string CodePoints::AsRegexClass() const {
  std::string all;
  for (const auto& [first, last] : ranges_) {
    absl::StrAppend(&all, InRegex(first));
    if (last > first) absl::StrAppend(&all, "-", InRegex(last));
  }
  return absl::StrCat("[", all, "]");
}

std::vector<std::string> CodePoints::EscapesInJsonString() const {
  std::vector<std::string> escapes;
  CodePoints rest = Within(Of(0, 0x1F));
  for (const auto& [code_point, letter] : kEscapes) {
    if (!Has(code_point)) continue;
    escapes.push_back({'\\', letter});
    rest = rest.Within(Of(code_point, code_point).Complement());
  }
  constexpr char32_t kFew = 8;
  char32_t count = 0;
  for (const auto& [first, last] : rest.ranges_) count += last - first + 1;
  if (count <= kFew) {
    for (const auto& [first, last] : rest.ranges_) {
      for (char32_t c = first; c <= last; ++c) {
        escapes.push_back(absl::StrFormat("\\u%04x", static_cast<uint32_t>(c)));
      }
    }
  }
  return escapes;
}

std::vector<std::string> CodePoints::WaysInJsonString() const {
  std::vector<std::string> ways;
  const CodePoints unescaped = Within(Unescaped());
  if (!unescaped.empty()) ways.push_back(unescaped.AsClass());
  for (const std::string& escape : EscapesInJsonString())
    ways.push_back(GrammarText::Quoted(escape));
  return ways;
}

int64_t CodePoints::CountWaysInJsonString() const {
  return std::ssize(EscapesInJsonString()) + (Within(Unescaped()).empty() ? 0 : 1);
}

std::string CodePoints::InJsonStringAsRegex() const {
  std::vector<std::string> ways;
  const CodePoints unescaped = Within(Unescaped());
  if (!unescaped.empty()) ways.push_back(unescaped.AsRegexClass());
  for (const std::string& escape : EscapesInJsonString()) {
    std::string way;
    for (const char c : escape) way += InRegex(static_cast<unsigned char>(c));
    ways.push_back(std::move(way));
  }
  return ways.size() == 1 ? ways[0] : absl::StrCat("(", absl::StrJoin(ways, "|"), ")");
}

std::string CodePoints::InJsonString() const {
  const std::vector<std::string> ways = WaysInJsonString();
  return ways.size() == 1 ? ways[0] : absl::StrCat("(", absl::StrJoin(ways, " | "), ")");
}

std::string CodePoints::InJsonStringThen(const std::string& rule) const {
  std::vector<std::string> ways = WaysInJsonString();
  for (std::string& way : ways) absl::StrAppend(&way, " ", rule);
  return absl::StrJoin(ways, " | ");
}

}  // namespace tessera::coordinator
