// White space of ASCII at the ends of a text, as std::string_view (Abseil's own is another type
// here). Thread rule: pure functions.
#pragma once

#include <string_view>

namespace tessera::coordinator {

inline constexpr std::string_view kAsciiSpace = " \t\n\v\f\r";

inline std::string_view TrimLeft(std::string_view text) {
  const size_t begin = text.find_first_not_of(kAsciiSpace);
  return begin == std::string_view::npos ? std::string_view() : text.substr(begin);
}

inline std::string_view TrimRight(std::string_view text) {
  return text.substr(0, text.find_last_not_of(kAsciiSpace) + 1);
}

inline std::string_view Trim(std::string_view text) { return TrimLeft(TrimRight(text)); }

}  // namespace tessera::coordinator
