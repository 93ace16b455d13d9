#include "coordinator/jinja/html_text.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <unordered_map>

#include "coordinator/jinja/values/unicode.h"

namespace tessera::coordinator::jinja {
namespace {

constexpr uint32_t kReplacement = 0xFFFD;
constexpr size_t kMaxNameCharacters = 32;

// What browsers make of &#128; to &#159;: windows-1252. 0 stands for itself.
constexpr uint16_t kWindows1252[32] = {
    0x20ac, 0x81,   0x201a, 0x0192, 0x201e, 0x2026, 0x2020, 0x2021, 0x02c6, 0x2030, 0x0160,
    0x2039, 0x0152, 0x8d,   0x017d, 0x8f,   0x90,   0x2018, 0x2019, 0x201c, 0x201d, 0x2022,
    0x2013, 0x2014, 0x02dc, 0x2122, 0x0161, 0x203a, 0x0153, 0x9d,   0x017e, 0x0178};

struct Entity {
  std::string text;
  bool bare = false;  // counts without its semicolon too
};
using Entities = std::unordered_map<std::string_view, Entity>;

Entities ReadEntities() {
  Entities entities;
  std::string_view rest = kHtmlEntities;
  while (!rest.empty()) {
    const size_t mark = rest.find_first_of(",;");
    const size_t end = rest.find(' ', mark);
    Entity entity{"", rest[mark] == ','};
    for (size_t at = mark; at < end;) {
      const char* const digits = rest.data() + at + 1;
      uint32_t code_point = 0;
      at = static_cast<size_t>(std::from_chars(digits, rest.data() + end, code_point, 16).ptr -
                               rest.data());
      AppendUtf8(code_point, entity.text);
    }
    entities.emplace(rest.substr(0, mark), std::move(entity));
    rest.remove_prefix(end + 1);
  }
  return entities;
}

bool IsNoCharacter(uint32_t c) {
  return (c >= 0x1 && c <= 0x8) || c == 0xb || (c >= 0xe && c <= 0x1f) ||
         (c >= 0x7f && c <= 0x9f) || (c >= 0xfdd0 && c <= 0xfdef) || (c & 0xfffe) == 0xfffe;
}

// &#65; or &#x41; from behind the '#'; false where no digit follows. `at` moves behind it.
bool AppendNumeric(std::string_view text, size_t& at, std::string& out) {
  const bool hex = at < text.size() && (text[at] == 'x' || text[at] == 'X');
  const size_t begin = at + (hex ? 1 : 0);
  uint32_t number = 0;
  const char* const first = text.data() + begin;
  const auto [end, error] =
      std::from_chars(first, text.data() + text.size(), number, hex ? 16 : 10);
  if (end == first) return false;
  at = static_cast<size_t>(end - text.data());
  if (at < text.size() && text[at] == ';') ++at;
  if (error == std::errc::result_out_of_range || number > 0x10FFFF ||
      (number >= 0xD800 && number <= 0xDFFF) || number == 0) {
    number = kReplacement;
  } else if (number >= 0x80 && number <= 0x9f) {
    number = kWindows1252[number - 0x80];
  } else if (IsNoCharacter(number)) {
    return true;
  }
  AppendUtf8(number, out);
  return true;
}

// The name behind an '&': at most 32 characters, and a semicolon.
std::string_view NameAt(std::string_view text) {
  size_t end = 0;
  for (size_t count = 0; count < kMaxNameCharacters && end < text.size(); ++count) {
    if (std::string_view("\t\n\f <&#;").find(text[end]) != std::string_view::npos) break;
    NextCodePoint(text, end);
  }
  if (end > 0 && end < text.size() && text[end] == ';') ++end;
  return text.substr(0, end);
}

// &amp; and the like from behind the '&'; false where the name is none. The longest known head of
// the name counts.
bool AppendNamed(std::string_view text, size_t& at, std::string& out) {
  static const auto& entities = *new Entities(ReadEntities());
  const std::string_view name = NameAt(text.substr(at));
  for (size_t length = name.size(); length > 1; --length) {
    const bool closed = name[length - 1] == ';';
    const auto found = entities.find(name.substr(0, length - (closed ? 1 : 0)));
    if (found == entities.end() || !(closed || found->second.bare)) continue;
    out += found->second.text;
    at += length;
    return true;
  }
  return false;
}

// Without tags and comments, up to the first that is not closed.
std::string WithoutTags(std::string_view text) {
  std::string kept;
  size_t done = 0;
  for (size_t begin = text.find('<'); begin != std::string_view::npos;
       begin = text.find('<', done)) {
    const bool comment = text.substr(begin).starts_with("<!--");
    const std::string_view close = comment ? "-->" : ">";
    const size_t end = text.find(close, begin + (comment ? 4 : 0));
    if (end == std::string_view::npos) break;
    kept.append(text.substr(done, begin - done));
    done = end + close.size();
  }
  return kept.append(text.substr(done));
}

}  // namespace

std::string StripTags(std::string_view text) {
  const std::string bare = WithoutTags(text);
  std::string words;
  bool space = false;
  for (size_t at = 0; at < bare.size();) {
    const size_t begin = at;
    if (IsSpace(NextCodePoint(bare, at))) {
      space = true;
      continue;
    }
    if (space && !words.empty()) words.push_back(' ');
    space = false;
    words.append(bare, begin, at - begin);
  }
  return words;
}

std::string UnescapeHtml(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t next = std::min(text.find('&', at), text.size());
    out.append(text.substr(at, next - at));
    at = next;
    if (at == text.size()) break;
    size_t behind = at + 1;
    bool known = false;
    if (behind < text.size() && text[behind] == '#') {
      ++behind;
      known = AppendNumeric(text, behind, out);
    } else {
      known = AppendNamed(text, behind, out);
    }
    if (!known) out.push_back('&');
    at = known ? behind : at + 1;
  }
  return out;
}

}  // namespace tessera::coordinator::jinja
