// Filters that make numbers.

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "coordinator/jinja/filters.h"
#include "coordinator/jinja/values/access.h"
#include "coordinator/jinja/values/compare.h"
#include "coordinator/jinja/values/operators.h"
#include "coordinator/jinja/values/print.h"
#include "coordinator/jinja/values/status.h"
#include "coordinator/jinja/values/unicode.h"
#include "third_party/absl/str_cat.h"

namespace tessera::coordinator::jinja {
namespace {

using Result = absl::StatusOr<Value>;

int DigitValue(char c) {
  if (c >= '0' && c <= '9') {
    return c - '0';
  }
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'z' ? lower - 'a' + 10 : 99;
}

// Removes white space around, the sign, and Python's underscores between digits; nothing where an
// underscore is misplaced.
std::optional<std::string> CleanNumber(std::string_view text, bool& negative) {
  const ByteRange kept = TrimSpace(text, true, true);
  text = text.substr(kept.begin, kept.end - kept.begin);
  negative = text.starts_with('-');
  if (text.starts_with('-') || text.starts_with('+')) {
    text.remove_prefix(1);
  }
  std::string clean;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      clean.push_back(text[i]);
    } else if (i == 0 || i + 1 == text.size() || DigitValue(text[i - 1]) == 99 ||
               DigitValue(text[i + 1]) == 99) {
      return std::nullopt;
    }
  }
  return clean;
}

// Python's int(text, base); nothing on a ValueError.
std::optional<Int> ParseInt(std::string_view text, int base) {
  bool negative = false;
  const std::optional<std::string> clean = CleanNumber(text, negative);
  if (!clean.has_value()) {
    return std::nullopt;
  }
  std::string_view digits = *clean;
  const char mark =
      digits.size() > 1 && digits[0] == '0' ? static_cast<char>(digits[1] | 0x20) : '\0';
  const int marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
  if (marked != 0 && (base == 0 || base == marked)) {
    digits.remove_prefix(2);
    base = marked;
  } else if (base == 0) {
    base = 10;
    if (digits.size() > 1 && digits[0] == '0' &&
        digits.find_first_not_of('0') != std::string::npos) {
      return std::nullopt;
    }
  }
  if (digits.empty()) {
    return std::nullopt;
  }
  Int value = 0;
  for (const char c : digits) {
    const int digit = DigitValue(c);
    if (digit >= base || __builtin_mul_overflow(value, static_cast<Int>(base), &value) ||
        __builtin_add_overflow(value, static_cast<Int>(digit), &value)) {
      return std::nullopt;
    }
  }
  return negative ? -value : value;
}

// Python's float(text); nothing on a ValueError.
std::optional<double> ParseFloat(std::string_view text) {
  bool negative = false;
  const std::optional<std::string> clean = CleanNumber(text, negative);
  if (!clean.has_value() || clean->empty() || clean->front() == '-' || clean->front() == '+') {
    return std::nullopt;
  }
  double value = 0;
  const char* end = clean->data() + clean->size();
  const auto [stop, error] = std::from_chars(clean->data(), end, value);
  if (stop != end || error == std::errc::invalid_argument ||
      clean->find('(') != std::string::npos) {
    return std::nullopt;
  }
  if (error == std::errc::result_out_of_range) {
    const size_t e = clean->find_first_of("eE");
    const bool tiny = e != std::string::npos && e + 1 < clean->size() && (*clean)[e + 1] == '-';
    value = tiny ? 0.0 : HUGE_VAL;
  }
  return negative ? -value : value;
}

std::optional<Int> Truncated(double value) {
  if (!(std::fabs(value) < 1e38)) {
    return std::nullopt;
  }
  return static_cast<Int>(value);
}

Result ToInt(Runtime& runtime, const Value& value, const Arguments& arguments) {
  JINJA_ASSIGN_OR_RETURN(const Bound bound, Bound::To("int", arguments, {"default", "base"}));
  JINJA_RETURN_IF_ERROR(CheckDefined(value));
  JINJA_ASSIGN_OR_RETURN(const Int base, bound.Integer(1, 10));
  std::optional<Int> result;
  if (value.is_integral()) {
    result = value.int_value();
  } else if (value.is_float()) {
    if (std::isinf(value.float_value())) {
      return RenderError("cannot convert float infinity to integer");
    }
    result = Truncated(value.float_value());
  } else if (value.is_string()) {
    JINJA_RETURN_IF_ERROR(runtime.Touch(value.bytes().size()));
    if (base == 0 || (base >= 2 && base <= 36)) {
      result = ParseInt(value.bytes(), static_cast<int>(base));
    }
    if (!result.has_value()) {
      const std::optional<double> real = ParseFloat(value.bytes());
      result = real.has_value() ? Truncated(*real) : std::nullopt;
    }
  }
  return result.has_value() ? Value::Integer(*result) : bound.Has(0) ? bound[0] : Value::Integer(0);
}

Result ToFloat(Runtime& runtime, const Value& value, const Arguments& arguments) {
  JINJA_ASSIGN_OR_RETURN(const Bound bound, Bound::To("float", arguments, {"default"}));
  JINJA_RETURN_IF_ERROR(CheckDefined(value));
  std::optional<double> result;
  if (value.is_number()) {
    result = value.float_value();
  } else if (value.is_string()) {
    JINJA_RETURN_IF_ERROR(runtime.Touch(value.bytes().size()));
    result = ParseFloat(value.bytes());
  }
  return result.has_value() ? Value::Float(*result) : bound.Has(0) ? bound[0] : Value::Float(0.0);
}

Result Abs(Runtime&, const Value& value, const Arguments& arguments) {
  JINJA_RETURN_IF_ERROR(Bound::To("abs", arguments, {}).status());
  JINJA_RETURN_IF_ERROR(CheckDefined(value));
  if (value.is_float()) {
    return Value::Float(std::fabs(value.float_value()));
  }
  if (!value.is_integral()) {
    return RenderError(StrCat("bad operand type for abs(): '", value.TypeName(), "'"));
  }
  return value.int_value() < 0 ? Negate(value) : Plus(value);
}

// printf rounds the exact binary value to even, as Python does.
double RoundFloat(double value, Int digits) {
  if (!std::isfinite(value) || digits > 400) {
    return value;
  }
  const std::string text = FixedPoint(std::fabs(value), static_cast<int>(digits));
  double rounded = 0;
  std::from_chars(text.data(), text.data() + text.size(), rounded);
  return std::copysign(rounded, value);
}

// Jinja's method "ceil" or "floor": func(value * 10**precision) / 10**precision.
Result RoundOneWay(Runtime& runtime, const Value& value, Int precision, bool up) {
  JINJA_ASSIGN_OR_RETURN(const Value scale, Apply(runtime, Operator::kPower, Value::Integer(10),
                                                  Value::Integer(precision)));
  JINJA_ASSIGN_OR_RETURN(const Value scaled, Apply(runtime, Operator::kMultiply, value, scale));
  Value whole = scaled;
  if (scaled.is_float()) {
    const double real = scaled.float_value();
    const std::optional<Int> rounded = Truncated(up ? std::ceil(real) : std::floor(real));
    if (!rounded.has_value()) {
      return RenderError("round: cannot convert the float to an integer");
    }
    whole = Value::Integer(*rounded);
  }
  return Apply(runtime, Operator::kDivide, whole, scale);
}

Result Round(Runtime& runtime, const Value& value, const Arguments& arguments) {
  JINJA_ASSIGN_OR_RETURN(const Bound bound, Bound::To("round", arguments, {"precision", "method"}));
  JINJA_RETURN_IF_ERROR(CheckDefined(value));
  JINJA_ASSIGN_OR_RETURN(const Int precision, bound.Integer(0, 0));
  const std::string method = bound.Has(1) && bound[1].is_string() ? bound[1].bytes() : "common";
  if (!value.is_number()) {
    return RenderError(StrCat("round: a number is required, not ", value.TypeName()));
  }
  if (method == "ceil" || method == "floor") {
    return RoundOneWay(runtime, value, precision, method == "ceil");
  }
  if (method != "common") {
    return RenderError("round: method must be common, ceil or floor");
  }
  if (precision < 0) {
    return RenderError("round: a precision below 0 is not supported");
  }
  return value.is_float() ? Value::Float(RoundFloat(value.float_value(), precision))
                          : Value::Integer(value.int_value());
}

Result Sum(Runtime& runtime, const Value& value, const Arguments& arguments) {
  JINJA_ASSIGN_OR_RETURN(const Bound bound, Bound::To("sum", arguments, {"attribute", "start"}));
  JINJA_ASSIGN_OR_RETURN(const AttributePath path,
                         ParseAttributePath(bound.Has(0) ? bound[0] : Value::None()));
  Value total = bound.Has(1) ? bound[1] : Value::Integer(0);
  if (total.is_string()) {
    return RenderError("sum() can't sum strings [use ''.join(seq) instead]");
  }
  JINJA_ASSIGN_OR_RETURN(const auto items, ToItems(runtime, value));
  for (const Value& item : items) {
    JINJA_RETURN_IF_ERROR(runtime.Step());
    JINJA_ASSIGN_OR_RETURN(const Value part, FollowPath(runtime, item, path));
    JINJA_ASSIGN_OR_RETURN(total, Apply(runtime, Operator::kAdd, total, part));
  }
  return total;
}

Result LengthFilter(Runtime& runtime, const Value& value, const Arguments& arguments) {
  JINJA_RETURN_IF_ERROR(Bound::To("length", arguments, {}).status());
  JINJA_ASSIGN_OR_RETURN(const Int length, Length(runtime, value));
  return Value::Integer(length);
}

constexpr FilterEntry kFilters[] = {
    {"abs", Abs},   {"count", LengthFilter},  {"float", ToFloat},
    {"int", ToInt}, {"length", LengthFilter}, {"round", Round},
    {"sum", Sum},
};

}  // namespace

std::span<const FilterEntry> NumberFilters() { return kFilters; }

}  // namespace tessera::coordinator::jinja
