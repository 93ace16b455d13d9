#include "coordinator/jinja/values/unicode.h"

#include <algorithm>
#include <cstring>

#include "coordinator/jinja/values/unicode_tables.h"

namespace tessera::coordinator::jinja {
namespace {

template <typename Range>
const Range* FindRange(const Range* table, size_t size, uint32_t c) {
  const Range* range = std::upper_bound(
      table, table + size, c, [](uint32_t value, const Range& r) { return value < r.first; });
  if (range == table) {
    return nullptr;
  }
  --range;
  return c <= range->last && (c - range->first) % range->stride == 0 ? range : nullptr;
}

bool Contains(const CharacterRange* table, size_t size, uint32_t c) {
  return FindRange(table, size, c) != nullptr;
}

const char* FindSpecial(const CaseSpecial* table, size_t size, uint32_t c) {
  const CaseSpecial* special =
      std::lower_bound(table, table + size, c,
                       [](const CaseSpecial& s, uint32_t value) { return s.code_point < value; });
  return special != table + size && special->code_point == c ? special->text : nullptr;
}

void AppendMapped(uint32_t c, const CaseRange* table, size_t size, const CaseSpecial* specials,
                  size_t special_size, std::string& out) {
  if (const char* text = FindSpecial(specials, special_size, c)) {
    out.append(text);
  } else if (const CaseRange* range = FindRange(table, size, c)) {
    AppendUtf8(c + static_cast<uint32_t>(range->delta), out);
  } else {
    AppendUtf8(c, out);
  }
}

bool IsAsciiLetter(uint32_t c) { return (c | 0x20) >= 'a' && (c | 0x20) <= 'z'; }

// Characters that Unicode calls case-ignorable, as far as they occur inside words.
bool IsCaseIgnorable(uint32_t c) {
  return c == '\'' || c == '.' || c == ':' || c == '^' || c == '`' || c == 0xA8 || c == 0xAD ||
         c == 0xAF || c == 0xB4 || c == 0xB7 || c == 0xB8 || (c >= 0x2B0 && c <= 0x36F) ||
         c == 0x2018 || c == 0x2019 || c == 0x2024 || c == 0x2027 || (c >= 0x200B && c <= 0x200F);
}

bool IsCased(uint32_t c) { return IsLower(c) || IsUpper(c); }

}  // namespace

bool ValidUtf8(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    const auto byte = [&](size_t at) { return static_cast<unsigned char>(text[at]); };
    const unsigned char lead = byte(i);
    if (lead < 0x80) {
      ++i;
      continue;
    }
    const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    if (lead < 0xC2 || lead > 0xF4 || i + length > text.size()) {
      return false;
    }
    uint32_t c = lead & (0x7Fu >> length);
    for (size_t k = 1; k < length; ++k) {
      if ((byte(i + k) & 0xC0) != 0x80) {
        return false;
      }
      c = c << 6 | (byte(i + k) & 0x3F);
    }
    constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
    if (c < kSmallest[length] || c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF)) {
      return false;
    }
    i += length;
  }
  return true;
}

bool IsAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

uint32_t NextCodePoint(std::string_view text, size_t& offset) {
  const auto byte = [&](size_t at) {
    return at < text.size() ? static_cast<unsigned char>(text[at]) : 0u;
  };
  const uint32_t lead = byte(offset);
  if (lead < 0x80) {
    ++offset;
    return lead;
  }
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  uint32_t c = lead & (0x7Fu >> length);
  for (size_t k = 1; k < length; ++k) {
    c = c << 6 | (byte(offset + k) & 0x3F);
  }
  offset = std::min(offset + length, text.size());
  return c;
}

size_t PreviousCharacter(std::string_view text, size_t offset) {
  do {
    --offset;
  } while (offset > 0 && (static_cast<unsigned char>(text[offset]) & 0xC0) == 0x80);
  return offset;
}

void AppendUtf8(uint32_t c, std::string& out) {
  if (c < 0x80) {
    out.push_back(static_cast<char>(c));
  } else if (c < 0x800) {
    out.push_back(static_cast<char>(0xC0 | c >> 6));
    out.push_back(static_cast<char>(0x80 | (c & 0x3F)));
  } else if (c < 0x10000) {
    out.push_back(static_cast<char>(0xE0 | c >> 12));
    out.push_back(static_cast<char>(0x80 | (c >> 6 & 0x3F)));
    out.push_back(static_cast<char>(0x80 | (c & 0x3F)));
  } else {
    out.push_back(static_cast<char>(0xF0 | c >> 18));
    out.push_back(static_cast<char>(0x80 | (c >> 12 & 0x3F)));
    out.push_back(static_cast<char>(0x80 | (c >> 6 & 0x3F)));
    out.push_back(static_cast<char>(0x80 | (c & 0x3F)));
  }
}

size_t CountCodePoints(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

size_t OffsetOfCodePoint(std::string_view text, size_t index, size_t from) {
  size_t offset = from;
  for (; index > 0 && offset < text.size(); --index) {
    NextCodePoint(text, offset);
  }
  return offset;
}

bool IsSpace(uint32_t c) {
  if (c < 0x80) {
    return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20);
  }
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool IsPrintable(uint32_t c) {
  return c < 0x80 ? c >= 0x20 && c != 0x7F : !Contains(kNotPrintable, kNotPrintableSize, c);
}

bool IsAlpha(uint32_t c) { return c < 0x80 ? IsAsciiLetter(c) : Contains(kAlpha, kAlphaSize, c); }

bool IsDecimal(uint32_t c) {
  return c < 0x80 ? c >= '0' && c <= '9' : Contains(kDecimal, kDecimalSize, c);
}

bool IsDigit(uint32_t c) {
  return IsDecimal(c) || (c >= 0x80 && Contains(kDigitNotDecimal, kDigitNotDecimalSize, c));
}

bool IsNumeric(uint32_t c) {
  return IsDigit(c) || (c >= 0x80 && Contains(kNumericNotDigit, kNumericNotDigitSize, c));
}

bool IsLower(uint32_t c) {
  return c < 0x80 ? c >= 'a' && c <= 'z' : Contains(kLowerCase, kLowerCaseSize, c);
}

bool IsUpper(uint32_t c) {
  return c < 0x80 ? c >= 'A' && c <= 'Z' : Contains(kUpperCase, kUpperCaseSize, c);
}

bool IsLineBreak(uint32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

void AppendCase(uint32_t c, Case to, std::string& out) {
  if (c < 0x80) {
    const bool change = to == Case::kLower ? c >= 'A' && c <= 'Z' : c >= 'a' && c <= 'z';
    out.push_back(static_cast<char>(change ? c ^ 0x20 : c));
    return;
  }
  switch (to) {
    case Case::kLower:
      return AppendMapped(c, kToLower, kToLowerSize, kToLowerSpecial, kToLowerSpecialSize, out);
    case Case::kUpper:
      return AppendMapped(c, kToUpper, kToUpperSize, kToUpperSpecial, kToUpperSpecialSize, out);
    case Case::kTitle:
      return AppendMapped(c, kToTitle, kToTitleSize, kToTitleSpecial, kToTitleSpecialSize, out);
  }
}

bool IsFinalSigma(std::string_view text, size_t begin, size_t end) {
  bool cased_before = false;
  for (size_t at = begin; at > 0;) {
    at = PreviousCharacter(text, at);
    size_t offset = at;
    const uint32_t c = NextCodePoint(text, offset);
    if (!IsCaseIgnorable(c)) {
      cased_before = IsCased(c);
      break;
    }
  }
  if (!cased_before) {
    return false;
  }
  while (end < text.size()) {
    const uint32_t c = NextCodePoint(text, end);
    if (!IsCaseIgnorable(c)) {
      return !IsCased(c);
    }
  }
  return true;
}

ByteRange TrimSpace(std::string_view text, bool left, bool right) {
  size_t begin = 0;
  size_t end = text.size();
  while (left && begin < end) {
    size_t next = begin;
    if (!IsSpace(NextCodePoint(text, next))) {
      break;
    }
    begin = next;
  }
  while (right && end > begin) {
    size_t start = PreviousCharacter(text, end);
    size_t offset = start;
    if (!IsSpace(NextCodePoint(text, offset))) {
      break;
    }
    end = start;
  }
  return {begin, end};
}

}  // namespace tessera::coordinator::jinja
