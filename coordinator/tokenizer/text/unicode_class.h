// Classes of Unicode code points, as bits, from utf8proc's tables (Unicode 15). The table is built
// once, on first use, and then only read: thread-safe.
#pragma once

#include <cstdint>

namespace tessera::coordinator {

enum UnicodeClass : uint8_t {
  kLetter = 1 << 0,       // L*
  kMark = 1 << 1,         // M*
  kNumber = 1 << 2,       // N*
  kPunctuation = 1 << 3,  // P*
  kWhiteSpace = 1 << 4,   // the property White_Space
  kWordPart = 1 << 5,     // \w: letters, marks, decimal digits, connectors and joiners
};

// The classes of a code point, or'ed. 0 for unassigned ones and those above U+10FFFF.
uint8_t UnicodeClassOf(char32_t code_point);

}  // namespace tessera::coordinator
