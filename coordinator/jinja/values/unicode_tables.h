#pragma once

// The tables behind unicode.h: code points from U+0080 on, sorted, none overlapping.
// Written by unicode_tables.py. Read-only.

#include <cstddef>
#include <cstdint>

namespace tessera::coordinator::jinja {

// first, first + stride, ..., last.
struct CharacterRange {
  uint32_t first;
  uint32_t last;
  uint32_t stride;
};

// Each code point of the range maps to itself plus delta.
struct CaseRange {
  uint32_t first;
  uint32_t last;
  uint32_t stride;
  int32_t delta;
};

// One that maps to several.
struct CaseSpecial {
  uint32_t code_point;
  const char* text;
};

#define JINJA_TABLE(Type, name) \
  extern const Type name[];     \
  extern const size_t name##Size

JINJA_TABLE(CharacterRange, kNotPrintable);
JINJA_TABLE(CharacterRange, kAlpha);
JINJA_TABLE(CharacterRange, kDecimal);
JINJA_TABLE(CharacterRange, kDigitNotDecimal);
JINJA_TABLE(CharacterRange, kNumericNotDigit);
JINJA_TABLE(CharacterRange, kLowerCase);
JINJA_TABLE(CharacterRange, kUpperCase);
JINJA_TABLE(CaseRange, kToLower);
JINJA_TABLE(CaseRange, kToUpper);
JINJA_TABLE(CaseRange, kToTitle);
JINJA_TABLE(CaseSpecial, kToLowerSpecial);
JINJA_TABLE(CaseSpecial, kToUpperSpecial);
JINJA_TABLE(CaseSpecial, kToTitleSpecial);

#undef JINJA_TABLE

}  // namespace tessera::coordinator::jinja
