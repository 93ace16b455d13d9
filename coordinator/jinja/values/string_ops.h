// Python's str operations on marked text, shared by string methods and filters.
//
// Results keep each character's mark. Pure except for charges to the runtime; errors are limits and
// Python's ValueErrors.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/jinja/values/runtime.h"
#include "coordinator/jinja/values/text.h"
#include "coordinator/jinja/values/unicode.h"

namespace tessera::coordinator::jinja {

// What work on each character is charged, in bytes for each of the text's: it is slower than
// copying.
inline constexpr size_t kCharacterWork = 4;

Text ChangeCase(const Text& text, Case to);  // lower or upper
Text Capitalize(const Text& text);           // first character titled, the rest lowered
Text TitleCase(const Text& text);            // str.title: each run of letters

// Without the characters in `chars` (null: white space) at its ends.
Text Strip(const Text& text, const Text* chars, bool left, bool right);

// Where `needle` starts at or after `from`; npos where it does not. Linear time.
size_t FindBytes(std::string_view text, std::string_view needle, size_t from = 0);

// count < 0: all.
absl::StatusOr<Text> Replace(Runtime& runtime, const Text& text, const Text& old_text,
                             const Text& new_text, Int count);

// Pieces between runs of white space, or between separators; at most `max_splits` cuts unless
// negative, from the right if asked. A null separator means white space.
absl::StatusOr<std::vector<Value>> Split(Runtime& runtime, const Text& text, const Text* separator,
                                         Int max_splits, bool from_right);
// What split_lines sees as lines: [begin, end) without and `next` behind the line break.
struct Line {
  size_t begin;
  size_t end;
  size_t next;
};
std::vector<Line> SplitLines(std::string_view text);

// `left` and `right` copies of `fill` around text.
absl::StatusOr<Text> Pad(Runtime& runtime, const Text& text, Int left, const Text& fill, Int right);

// Items must be strings, as str.join demands.
absl::StatusOr<Text> Join(Runtime& runtime, const Text& separator, const std::vector<Value>& items);

}  // namespace tessera::coordinator::jinja
