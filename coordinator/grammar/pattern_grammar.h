// Regular expressions as JSON Schema's `pattern` has them (ECMA 262), within a JSON string, and as
// texts of their own.
//
// Taken: literals, classes, . \d \w \s and their opposites (of these only ASCII is written),
// groups, alternatives, quantifiers, and ^ and $ at the ends of an alternative of the whole.
// Refused by name: lookaround, back references, \b, \p, anchors elsewhere. Without ^ or $ anything
// may stand before or behind.
//
// Thread rule: pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "coordinator/grammar/code_points.h"
#include "coordinator/grammar/grammar_text.h"
#include "coordinator/grammar/pattern_writer.h"

namespace tessera::coordinator {

// The body of a rule of what stands between the quotes; rules that it needs go to `text`.
// `characters`: the rule of any. Where lengths are given, the text keeps them or the pattern is
// refused. InvalidArgument with the reason.
absl::StatusOr<std::string> PatternBody(std::string_view pattern, const std::string& characters,
                                        const std::optional<PatternLengths>& lengths,
                                        GrammarText* text);

// The same outside of JSON, in texts without the character `without`.
absl::StatusOr<std::string> RawPatternBody(std::string_view pattern, char32_t without,
                                           const std::optional<PatternLengths>& lengths,
                                           GrammarText* text);

// The body of a rule of the texts that the pattern matches as a whole, outside of JSON.
absl::StatusOr<std::string> PlainPatternBody(std::string_view pattern);

// The characters of which a pattern without anchors is one, as "[a-z]" or "."; nothing where it is
// another one.
std::optional<CodePoints> CharacterOfPattern(std::string_view pattern);

// The pattern of a format; nothing where the format is not one that is enforced.
std::optional<std::string> PatternOfFormat(std::string_view format);

}  // namespace tessera::coordinator
