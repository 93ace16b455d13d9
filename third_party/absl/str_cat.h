// tessera::StrCat: absl::StrCat that also takes std::string_view.
//
// Debian builds Abseil for C++14, where absl::string_view is a type of its own that a
// std::string_view does not convert to. Pure functions, thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace tessera {

// The same characters as Abseil's type, which absl functions take. Borrows `text`.
inline absl::string_view AbslView(std::string_view text) { return {text.data(), text.size()}; }

// The same characters as the standard type (for status.message()). Borrows `text`.
inline std::string_view StdView(absl::string_view text) { return {text.data(), text.size()}; }

namespace str_cat_detail {

template <typename T>
const T& Piece(const T& piece) {
  return piece;
}
inline absl::string_view Piece(const std::string_view& piece) { return AbslView(piece); }
// A char would be printed as a number.
inline std::string Piece(char piece) { return std::string(1, piece); }

}  // namespace str_cat_detail

// Strings as they are, numbers in decimal, a char as itself.
template <typename... Pieces>
std::string StrCat(const Pieces&... pieces) {
  return absl::StrCat(str_cat_detail::Piece(pieces)...);
}

}  // namespace tessera
