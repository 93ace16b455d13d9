#include "coordinator/jinja/values/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

namespace tessera::coordinator::jinja {
namespace {

utf8proc_category_t CategoryOf(uint32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

// Digits that are no decimal digits (Numeric_Type=Digit), as far as text has them: superscripts,
// subscripts, circled ones.
bool IsSpecialDigit(uint32_t c) {
  return c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 || (c >= 0x2074 && c <= 0x2079) ||
         (c >= 0x2080 && c <= 0x2089) || (c >= 0x2460 && c <= 0x2468) || c == 0x24EA;
}

// Characters that become several, which utf8proc's maps of one to one lack.
struct SpecialCase {
  uint32_t code_point;
  std::string_view upper;
  std::string_view title;
};
constexpr SpecialCase kSpecialCases[] = {
    {0xDF, "SS", "Ss"},     {0x149, "\u02BCN", "\u02BCN"}, {0xFB00, "FF", "Ff"},
    {0xFB01, "FI", "Fi"},   {0xFB02, "FL", "Fl"},          {0xFB03, "FFI", "Ffi"},
    {0xFB04, "FFL", "Ffl"}, {0xFB05, "ST", "St"},          {0xFB06, "ST", "St"},
};
constexpr uint32_t kCapitalDottedI = 0x130;

// Characters that Unicode calls case-ignorable, as far as they occur inside words.
bool IsCaseIgnorable(uint32_t c) {
  return c == '\'' || c == '.' || c == ':' || c == '^' || c == '`' || c == 0xA8 || c == 0xAD ||
         c == 0xAF || c == 0xB4 || c == 0xB7 || c == 0xB8 || (c >= 0x2B0 && c <= 0x36F) ||
         c == 0x2018 || c == 0x2019 || c == 0x2024 || c == 0x2027 || (c >= 0x200B && c <= 0x200F);
}

bool IsCased(uint32_t c) { return IsLower(c) || IsUpper(c); }

}  // namespace

bool IsAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

size_t PreviousCharacter(std::string_view text, size_t offset) {
  do {
    --offset;
  } while (offset > 0 && (static_cast<unsigned char>(text[offset]) & 0xC0) == 0x80);
  return offset;
}

size_t CountCodePoints(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

size_t OffsetOfCodePoint(std::string_view text, size_t index, size_t from) {
  size_t offset = from;
  for (; index > 0 && offset < text.size(); --index) {
    NextCodePoint(text, &offset);
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
  const utf8proc_category_t category = CategoryOf(c);
  return c == ' ' || (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_SO);
}

bool IsAlpha(uint32_t c) {
  const utf8proc_category_t category = CategoryOf(c);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool IsDecimal(uint32_t c) { return CategoryOf(c) == UTF8PROC_CATEGORY_ND; }

bool IsDigit(uint32_t c) { return IsDecimal(c) || IsSpecialDigit(c); }

bool IsAlphaNumeric(uint32_t c) {
  const utf8proc_category_t category = CategoryOf(c);
  return IsAlpha(c) || (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO);
}

// Beside letters, Roman numerals, circled letters and ordinal signs have case.
bool IsLower(uint32_t c) {
  return CategoryOf(c) == UTF8PROC_CATEGORY_LL || c == 0xAA || c == 0xBA ||
         (c >= 0x2170 && c <= 0x217F) || (c >= 0x24D0 && c <= 0x24E9);
}

bool IsUpper(uint32_t c) {
  return CategoryOf(c) == UTF8PROC_CATEGORY_LU || (c >= 0x2160 && c <= 0x216F) ||
         (c >= 0x24B6 && c <= 0x24CF);
}

bool IsLineBreak(uint32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

void AppendCase(uint32_t c, Case to, std::string& out) {
  if (to == Case::kLower && c == kCapitalDottedI) {
    out.append("i\u0307");
    return;
  }
  const auto* special = std::find_if(std::begin(kSpecialCases), std::end(kSpecialCases),
                                     [c](const SpecialCase& s) { return s.code_point == c; });
  if (to != Case::kLower && special != std::end(kSpecialCases)) {
    out.append(to == Case::kUpper ? special->upper : special->title);
    return;
  }
  const auto code_point = static_cast<utf8proc_int32_t>(c);
  const auto mapped = to == Case::kLower   ? utf8proc_tolower(code_point)
                      : to == Case::kUpper ? utf8proc_toupper(code_point)
                                           : utf8proc_totitle(code_point);
  AppendUtf8(static_cast<char32_t>(mapped), &out);
}

bool IsFinalSigma(std::string_view text, size_t begin, size_t end) {
  bool cased_before = false;
  for (size_t at = begin; at > 0;) {
    at = PreviousCharacter(text, at);
    size_t offset = at;
    const uint32_t c = NextCodePoint(text, &offset);
    if (!IsCaseIgnorable(c)) {
      cased_before = IsCased(c);
      break;
    }
  }
  if (!cased_before) {
    return false;
  }
  while (end < text.size()) {
    const uint32_t c = NextCodePoint(text, &end);
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
    if (!IsSpace(NextCodePoint(text, &next))) {
      break;
    }
    begin = next;
  }
  while (right && end > begin) {
    size_t start = PreviousCharacter(text, end);
    size_t offset = start;
    if (!IsSpace(NextCodePoint(text, &offset))) {
      break;
    }
    end = start;
  }
  return {begin, end};
}

}  // namespace tessera::coordinator::jinja
