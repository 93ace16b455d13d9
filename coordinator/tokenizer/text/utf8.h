// UTF-8 as RFC 3629 defines it: no surrogates, no overlong forms, nothing above U+10FFFF.
// Pure functions, thread-safe. Offsets and lengths are bytes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tessera::coordinator {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

// Offset of the first byte that does not belong to well-formed UTF-8; npos where all is well.
size_t FindInvalidUtf8(std::string_view text);

// The code point that starts at *offset, which moves behind it. Requires well-formed text and
// *offset < text.size().
char32_t NextCodePoint(std::string_view text, size_t* offset);

// The code point that ends at *offset, which moves to its start. Requires well-formed text and
// *offset > 0.
char32_t PreviousCodePoint(std::string_view text, size_t* offset);

void AppendUtf8(char32_t code_point, std::string* out);

// How bytes that are not UTF-8 become U+FFFD.
enum class InvalidBytes {
  kOnePerSubpart,  // one for each maximal subpart (Unicode 3.9, the WHATWG decoder)
  kOnePerByte,     // one for each byte, as SentencePiece and byte-fallback decoders do
};

// Appends the text of `bytes` to *out and returns how many bytes that used. With `final` it uses
// all; without, up to three bytes at the end that may still become a character stay unused.
size_t DecodeUtf8(std::string_view bytes, InvalidBytes invalid, bool final, std::string* out);

// At most 64 bytes of text, quoted, as an error message may show it: cut at a character, U+FFFD for
// what is not UTF-8.
std::string Excerpt(std::string_view text);

}  // namespace tessera::coordinator
