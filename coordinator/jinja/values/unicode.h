// Python's idea of characters: code points, white space, case, classes.
//
// Pure functions, thread-safe. Strings are well-formed UTF-8; positions are byte offsets. Classes
// and simple case maps are utf8proc's (Unicode 15).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "coordinator/tokenizer/text/utf8.h"

namespace tessera::coordinator::jinja {

bool IsAscii(std::string_view text);

// The start of the character before `offset`. Requires offset > 0.
size_t PreviousCharacter(std::string_view text, size_t offset);

// How many code points `text` has: Python's len.
size_t CountCodePoints(std::string_view text);
// The byte offset of the `index`-th code point from offset `from` on; text.size() when there are
// fewer.
size_t OffsetOfCodePoint(std::string_view text, size_t index, size_t from = 0);

bool IsSpace(uint32_t c);  // str.isspace, which is also what strip() and \s mean
bool IsPrintable(uint32_t c);
bool IsAlpha(uint32_t c);
bool IsDecimal(uint32_t c);
bool IsDigit(uint32_t c);
bool IsAlphaNumeric(uint32_t c);
bool IsLower(uint32_t c);
bool IsUpper(uint32_t c);
bool IsLineBreak(uint32_t c);  // where splitlines() cuts

enum class Case { kLower, kUpper, kTitle };
// Appends `c` in the given case: one or more characters.
void AppendCase(uint32_t c, Case to, std::string& out);
// Whether the capital sigma that ends at `end` closes a word, where Python lowers it to U+03C2.
bool IsFinalSigma(std::string_view text, size_t begin, size_t end);

// `text` without white space at its ends: [begin, end).
struct ByteRange {
  size_t begin;
  size_t end;
};
ByteRange TrimSpace(std::string_view text, bool left, bool right);

}  // namespace tessera::coordinator::jinja
