#include "coordinator/grammar/number_grammar.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tessera::coordinator {
namespace {

constexpr int64_t kLargest = 999'999'999'999'999'999;     // 18 digits
constexpr int64_t kLargestBound = 1'000'000'000'000'000;  // 10^15

std::string Digits(char low, char high) {
  if (low == high) return absl::StrCat("\"", std::string(1, low), "\"");
  return absl::StrCat("[", std::string(1, low), "-", std::string(1, high), "]");
}

std::string EitherOf(const std::vector<std::string>& ways) {
  return ways.size() == 1 ? ways[0] : absl::StrCat("(", absl::StrJoin(ways, " | "), ")");
}

// As `shape` has them: a digit for each digit, "." for a point.
std::string AnyDigits(std::string_view shape) {
  const size_t point = shape.find('.');
  if (point != shape.npos) {
    return absl::StrCat(AnyDigits(shape.substr(0, point)), " \".\" ",
                        AnyDigits(shape.substr(point + 1)));
  }
  return shape.empty() ? "\"\"" : absl::StrCat("[0-9]{", shape.size(), "}");
}

// Texts of `bound`'s shape that are not below it (`up`), or not above.
std::string Beyond(std::string_view bound, bool up) {
  if (bound.empty()) return "\"\"";
  const std::string_view rest = bound.substr(1);
  if (bound[0] == '.') return absl::StrCat("\".\" ", Beyond(rest, up));
  const char extreme = up ? '9' : '0';
  std::vector<std::string> ways = {absl::StrCat(Digits(bound[0], bound[0]), " ", Beyond(rest, up))};
  if (bound[0] != extreme) {
    const std::string others = up ? Digits(static_cast<char>(bound[0] + 1), '9')
                                  : Digits('0', static_cast<char>(bound[0] - 1));
    ways.push_back(absl::StrCat(others, " ", AnyDigits(rest)));
  }
  return EitherOf(ways);
}

// Texts of one shape from `low` to `high`.
std::string Between(std::string_view low, std::string_view high) {
  if (low.empty()) return "\"\"";
  const std::string_view low_rest = low.substr(1), high_rest = high.substr(1);
  if (low[0] == high[0]) {
    return absl::StrCat(Digits(low[0], low[0]), " ", Between(low_rest, high_rest));
  }
  std::vector<std::string> ways = {
      absl::StrCat(Digits(low[0], low[0]), " ", Beyond(low_rest, true))};
  if (high[0] - low[0] > 1) {
    ways.push_back(
        absl::StrCat(Digits(static_cast<char>(low[0] + 1), static_cast<char>(high[0] - 1)), " ",
                     AnyDigits(low_rest)));
  }
  ways.push_back(absl::StrCat(Digits(high[0], high[0]), " ", Beyond(high_rest, false)));
  return EitherOf(ways);
}

// With `decimals` digits behind a point, and at least one before.
std::string Written(int64_t units, int decimals) {
  std::string digits = absl::StrCat(units);
  if (decimals == 0) return digits;
  if (static_cast<int>(digits.size()) <= decimals) {
    digits.insert(0, decimals + 1 - digits.size(), '0');
  }
  return digits.insert(digits.size() - decimals, ".");
}

int64_t PowerOfTen(int exponent) {
  int64_t power = 1;
  for (int i = 0; i < exponent; ++i) power *= 10;
  return power;
}

// A grammar of numbers from `low` to `high` units, 0 <= low, each written with `decimals` decimals.
void AddRange(int64_t low, int64_t high, int decimals, std::vector<std::string>& ways) {
  while (low <= high) {
    const std::string first = Written(low, decimals);
    const auto digits = static_cast<int>(first.size()) - (decimals > 0 ? 1 : 0);
    const int64_t last_of_shape = digits >= 18 ? kLargest : PowerOfTen(digits) - 1;
    const int64_t last = std::min(high, last_of_shape);
    ways.push_back(Between(first, Written(last, decimals)));
    if (last == high || last >= kLargest) return;
    low = last + 1;
  }
}

int64_t LargestUnits(int decimals) { return kLargestBound * PowerOfTen(std::min(decimals, 3)); }

// What of `bounds` is not negative, `mirrored`: what is negative, without its sign.
struct Side {
  int64_t low = 0, high = 0;
  bool low_excluded = false, high_excluded = false;
};

std::optional<Side> SideOf(const DecimalBounds& bounds, bool mirrored) {
  const auto& near = mirrored ? bounds.highest : bounds.lowest;
  const auto& far = mirrored ? bounds.lowest : bounds.highest;
  const int64_t sign = mirrored ? -1 : 1;
  Side side = {0, LargestUnits(bounds.decimals), mirrored, false};
  if (near.has_value() && sign * near->units >= 0) {
    side.low = sign * near->units;
    side.low_excluded = near->excluded || (mirrored && near->units == 0);
  }
  if (far.has_value()) {
    side.high = sign * far->units;
    side.high_excluded = far->excluded;
  }
  const bool is_empty =
      side.low > side.high || (side.low == side.high && (side.low_excluded || side.high_excluded));
  if (is_empty) return std::nullopt;
  return side;
}

void AddSide(const Side& side, int decimals, std::vector<std::string>& ways) {
  const int64_t low = side.low + (side.low_excluded ? 1 : 0);
  const int64_t high = side.high - (side.high_excluded ? 1 : 0);
  for (int written = 0; written <= decimals; ++written) {
    const int64_t unit = PowerOfTen(decimals - written);
    AddRange((low + unit - 1) / unit, high / unit, written, ways);
  }
  const std::string point = decimals == 0 ? "\".\" " : "";
  // Finer: a prefix and more digits are less than a unit above the prefix.
  std::vector<std::string> prefixes;
  AddRange(low, side.high - 1, decimals, prefixes);
  if (!prefixes.empty()) {
    ways.push_back(absl::StrCat(EitherOf(prefixes), " ", point, "[0-9]{1,6}"));
  }
  if (side.low_excluded && side.low < side.high) {
    std::vector<std::string> lowest;
    AddRange(side.low, side.low, decimals, lowest);
    ways.push_back(absl::StrCat(EitherOf(lowest), " ", point, "[0-9]{0,5} [1-9]"));
  }
}

absl::Status NoSuchNumber() { return absl::NotFoundError("no number is within the bounds"); }

struct Parts {
  bool negative = false;
  std::string digits;    // without the point
  int64_t decimals = 0;  // of these, behind the point; below 0: zeros follow
};

std::optional<Parts> PartsOf(const std::string& number) {
  Parts parts;
  std::string_view text = number;
  if (text.starts_with('-')) {
    parts.negative = true;
    text.remove_prefix(1);
  }
  const size_t e = text.find_first_of("eE");
  if (e != text.npos) {
    int exponent = 0;
    std::string_view digits = text.substr(e + 1);
    if (digits.starts_with('+')) digits.remove_prefix(1);
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), exponent);
    if (read.ec != std::errc()) return std::nullopt;
    parts.decimals = -exponent;
    text = text.substr(0, e);
  }
  const size_t point = text.find('.');
  parts.digits = std::string(text.substr(0, point));
  if (point != text.npos) {
    parts.digits += text.substr(point + 1);
    parts.decimals += static_cast<int64_t>(text.size() - point - 1);
  }
  while (parts.digits.size() > 1 && parts.digits.back() == '0') {
    parts.digits.pop_back();
    --parts.decimals;
  }
  if (parts.digits == "0") parts.decimals = 0;
  return parts;
}

}  // namespace

std::optional<int> DecimalsOf(const std::string& number) {
  const std::optional<Parts> parts = PartsOf(number);
  if (!parts.has_value() || parts->decimals > kMaxDecimals) return std::nullopt;
  return static_cast<int>(std::max<int64_t>(0, parts->decimals));
}

std::optional<DecimalBound> ParseDecimal(const std::string& number, int decimals) {
  const std::optional<Parts> parts = PartsOf(number);
  if (!parts.has_value() || parts->decimals > decimals) return std::nullopt;
  const int64_t most = LargestUnits(decimals);
  int64_t units = 0;
  const auto append = [&](char digit) {
    units = units >= most / 10 ? most : units * 10 + (digit - '0');
  };
  for (const char digit : parts->digits) append(digit);
  for (int64_t i = parts->decimals; i < decimals && units > 0 && units < most; ++i) append('0');
  return DecimalBound{parts->negative ? -units : units, false};
}

absl::StatusOr<std::string> IntegerBody(std::optional<int64_t> lowest,
                                        std::optional<int64_t> highest) {
  if (!lowest.has_value() && !highest.has_value()) {
    return "\"-\"? (\"0\" | [1-9] [0-9]{0,17})";
  }
  const int64_t low = std::max(-kLargest, lowest.value_or(-kLargest));
  const int64_t high = std::min(kLargest, highest.value_or(kLargest));
  std::vector<std::string> ways;
  AddRange(std::max<int64_t>(0, low), high, 0, ways);
  std::vector<std::string> negative;
  AddRange(std::max<int64_t>(1, -high), -low, 0, negative);
  if (!negative.empty()) ways.push_back(absl::StrCat("\"-\" ", EitherOf(negative)));
  if (ways.empty()) return NoSuchNumber();
  return EitherOf(ways);
}

absl::StatusOr<std::string> IntegerWithin(const DecimalBounds& bounds) {
  const int64_t unit = PowerOfTen(bounds.decimals);
  std::optional<int64_t> lowest, highest;
  if (bounds.lowest.has_value()) {
    const int64_t units = bounds.lowest->units + (bounds.lowest->excluded ? 1 : 0);
    lowest = units / unit + (units > 0 && units % unit != 0 ? 1 : 0);
  }
  if (bounds.highest.has_value()) {
    const int64_t units = bounds.highest->units - (bounds.highest->excluded ? 1 : 0);
    highest = units / unit - (units < 0 && units % unit != 0 ? 1 : 0);
  }
  return IntegerBody(lowest, highest);
}

absl::StatusOr<std::string> NumberBody(const DecimalBounds& bounds) {
  // A bound that was cut would let numbers pass.
  const int64_t most = LargestUnits(bounds.decimals);
  if (bounds.lowest.has_value() && bounds.lowest->units >= most) return NoSuchNumber();
  if (bounds.highest.has_value() && bounds.highest->units <= -most) return NoSuchNumber();
  if (!bounds.lowest.has_value() && !bounds.highest.has_value()) {
    return "\"-\"? (\"0\" | [1-9] [0-9]{0,17}) (\".\" [0-9]{1,17})? ([eE] (\"+\" | \"-\")? "
           "[0-9]{1,2})?";
  }
  std::vector<std::string> ways;
  if (const auto side = SideOf(bounds, /*mirrored=*/false)) AddSide(*side, bounds.decimals, ways);
  std::vector<std::string> negative;
  if (const auto side = SideOf(bounds, /*mirrored=*/true)) {
    AddSide(*side, bounds.decimals, negative);
  }
  if (!negative.empty()) ways.push_back(absl::StrCat("\"-\" ", EitherOf(negative)));
  if (ways.empty()) return NoSuchNumber();
  return EitherOf(ways);
}

}  // namespace tessera::coordinator
