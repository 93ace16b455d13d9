// Numbers of JSON within bounds, as bodies of grammar rules.
//
// Every text that they give is a number within the bounds, and an integer a text without fraction
// and exponent. Not every such number has a text: digits are bounded, and a number with a bound has
// no exponent.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace tessera::coordinator {

// A bound in units of 10^-decimals.
struct DecimalBound {
  int64_t units = 0;
  bool excluded = false;  // the bound itself is not allowed
};

struct DecimalBounds {
  int decimals = 0;
  std::optional<DecimalBound> lowest = {}, highest = {};
};

// How many decimals a number's text needs; nothing: more than kMaxDecimals.
inline constexpr int kMaxDecimals = 9;
std::optional<int> DecimalsOf(const std::string& number);
// The number in units of 10^-decimals, of which it needs no more; cut where it is far beyond what
// NumberBody writes.
std::optional<DecimalBound> ParseDecimal(const std::string& number, int decimals);

// NotFound where there is none.
absl::StatusOr<std::string> IntegerBody(std::optional<int64_t> lowest,
                                        std::optional<int64_t> highest);
absl::StatusOr<std::string> IntegerWithin(const DecimalBounds& bounds);
absl::StatusOr<std::string> NumberBody(const DecimalBounds& bounds);

}  // namespace tessera::coordinator
