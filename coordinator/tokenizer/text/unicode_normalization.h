// Unicode normalization forms (UAX #15) of well-formed UTF-8, from utf8proc's tables (Unicode 15).
//
// Characters that the form leaves alone are copied; only the stretches around others are
// decomposed, ordered and composed. O(n log n) whatever the text: long runs of combining marks are
// sorted, not bubbled. Tables of boundaries are built once per form, on first use; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::coordinator {

enum class NormalizationForm : uint8_t { kNfc, kNfd, kNfkc, kNfkd };

// Appends the normal form of text to *out.
//
// Where `mask` is given it holds one byte for each byte of `text`, and the mask of what was
// appended is appended to *mask_out: copied with copied characters, and for a rewritten stretch 1
// only if all of the stretch was 1.
void AppendNormalized(NormalizationForm form, std::string_view text, std::string_view mask,
                      std::string* out, std::string* mask_out);

}  // namespace tessera::coordinator
