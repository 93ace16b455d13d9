// How values become text: Python's str() and repr() and json.dumps().
//
// A string keeps its marks. A container's text is the client's as a whole if any string in it is,
// else the template's. Errors: a limit, or what JSON cannot say.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "coordinator/jinja/values/runtime.h"
#include "coordinator/jinja/values/value.h"

namespace tessera::coordinator::jinja {

std::string IntToString(Int value);
// The shortest digits that read back as the same double, in Python's layout: 1.0, 1e+16, nan, inf.
std::string FloatToString(double value);
// With so many digits behind the point; halves of the exact binary value go to even.
std::string FixedPoint(double value, int digits);

// str(value): undefined is empty, a string is itself.
absl::StatusOr<Text> ToText(Runtime& runtime, const Value& value);
absl::StatusOr<Text> Repr(Runtime& runtime, const Value& value);
// Python's repr of a string: quotes chosen, what cannot be printed escaped.
std::string QuoteString(std::string_view text);

struct JsonFormat {
  bool ensure_ascii = false;
  bool pretty = false;  // one item a line, each level behind `indent`
  std::string indent;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};
absl::StatusOr<Text> ToJson(Runtime& runtime, const Value& value, const JsonFormat& format);

// Whether a string of the client's is reachable from `value`.
bool HoldsClientText(const Value& value);

// &, <, >, ' and " as HTML entities; the result is markup.
Text EscapeHtml(const Text& text);

}  // namespace tessera::coordinator::jinja
