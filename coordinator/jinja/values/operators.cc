#include "coordinator/jinja/values/operators.h"

#include <algorithm>
#include <cmath>

#include "coordinator/jinja/values/compare.h"
#include "coordinator/jinja/values/print.h"
#include "coordinator/jinja/values/status.h"
#include "third_party/absl/str_cat.h"

namespace tessera::coordinator::jinja {
namespace {

std::string_view Symbol(Operator op) {
  constexpr std::string_view kSymbols[] = {"+", "-", "*", "/", "//", "%", "**"};
  return kSymbols[static_cast<int>(op)];
}

absl::Status Unsupported(Operator op, const Value& a, const Value& b) {
  return RenderError(StrCat("unsupported operand type(s) for ", Symbol(op), ": '", a.TypeName(),
                            "' and '", b.TypeName(), "'"));
}

absl::Status TooLarge() { return RenderError("an integer grows beyond the limit of 127 bits"); }

absl::Status DivisionByZero() { return RenderError("division by zero"); }

Int FloorDivide(Int a, Int b) { return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0); }

absl::StatusOr<Value> IntPower(Int base, Int exponent) {
  if (exponent < 0) {
    if (base == 0) {
      return RenderError("0.0 cannot be raised to a negative power");
    }
    return Value::Float(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  Int result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) {
      return TooLarge();
    }
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) {
      return TooLarge();
    }
  }
  return Value::Integer(result);
}

absl::StatusOr<Value> ApplyInts(Operator op, Int a, Int b) {
  Int result = 0;
  bool overflow = false;
  switch (op) {
    case Operator::kAdd: overflow = __builtin_add_overflow(a, b, &result); break;
    case Operator::kSubtract: overflow = __builtin_sub_overflow(a, b, &result); break;
    case Operator::kMultiply: overflow = __builtin_mul_overflow(a, b, &result); break;
    case Operator::kPower: return IntPower(a, b);
    default:
      if (b == 0) {
        return DivisionByZero();
      }
      if (op == Operator::kDivide) {
        return Value::Float(static_cast<double>(static_cast<long double>(a) / b));
      }
      if (b == -1) {  // the one quotient that can overflow
        overflow = __builtin_sub_overflow(Int{0}, a, &result);
        result = op == Operator::kModulo ? 0 : result;
      } else {
        const Int quotient = FloorDivide(a, b);
        result = op == Operator::kFloorDivide ? quotient : a - quotient * b;
      }
  }
  if (overflow) {
    return TooLarge();
  }
  return Value::Integer(result);
}

// CPython's float_divmod: the remainder has the divisor's sign.
void FloatDivMod(double a, double b, double& quotient, double& remainder) {
  remainder = std::fmod(a, b);
  double exact = (a - remainder) / b;
  if (remainder != 0) {
    if ((b < 0) != (remainder < 0)) {
      remainder += b;
      exact -= 1;
    }
  } else {
    remainder = std::copysign(0.0, b);
  }
  if (exact == 0) {
    quotient = std::copysign(0.0, a / b);
    return;
  }
  quotient = std::floor(exact);
  if (exact - quotient > 0.5) {
    quotient += 1;
  }
}

absl::StatusOr<Value> FloatPower(double a, double b) {
  if (a == 0 && b < 0) {
    return RenderError("0.0 cannot be raised to a negative power");
  }
  if (a < 0 && std::isfinite(a) && std::isfinite(b) && std::floor(b) != b) {
    return RenderError("the power of a negative number with a fraction is complex: not supported");
  }
  const double result = std::pow(a, b);
  if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) {
    return RenderError("numerical result out of range");
  }
  return Value::Float(result);
}

absl::StatusOr<Value> ApplyFloats(Operator op, double a, double b) {
  double quotient = 0;
  double remainder = 0;
  switch (op) {
    case Operator::kAdd: return Value::Float(a + b);
    case Operator::kSubtract: return Value::Float(a - b);
    case Operator::kMultiply: return Value::Float(a * b);
    case Operator::kPower: return FloatPower(a, b);
    default: break;
  }
  if (b == 0) {
    return DivisionByZero();
  }
  if (op == Operator::kDivide) {
    return Value::Float(a / b);
  }
  FloatDivMod(a, b, quotient, remainder);
  return Value::Float(op == Operator::kFloorDivide ? quotient : remainder);
}

// Markup escapes what joins it.
Text EscapedFor(const Text& text, bool markup) {
  return markup && !text.markup() ? EscapeHtml(text) : text;
}

absl::StatusOr<Value> Concatenate(Runtime& runtime, const Value& a, const Value& b) {
  if (a.is_string()) {
    const bool markup = a.text().markup() || b.text().markup();
    JINJA_RETURN_IF_ERROR(runtime.CheckSize(a.bytes().size() + b.bytes().size()));
    Text joined = EscapedFor(a.text(), markup);
    joined.Append(EscapedFor(b.text(), markup));
    joined.set_markup(markup);
    return runtime.NewString(std::move(joined));
  }
  JINJA_RETURN_IF_ERROR(runtime.Touch((a.items().size() + b.items().size()) * sizeof(Value)));
  std::vector<Value> items = a.items();
  items.insert(items.end(), b.items().begin(), b.items().end());
  return a.is_list() ? runtime.NewList(std::move(items)) : runtime.NewTuple(std::move(items));
}

absl::StatusOr<Value> Repeat(Runtime& runtime, const Value& value, Int times) {
  times = std::max<Int>(times, 0);
  const size_t unit =
      value.is_string() ? value.bytes().size() : value.items().size() * sizeof(Value);
  if (unit != 0) {
    JINJA_RETURN_IF_ERROR(
        runtime.CheckSize(times > (Int{1} << 40) ? SIZE_MAX : unit * static_cast<size_t>(times)));
  } else {
    times = 0;
  }
  if (value.is_string()) {
    JINJA_RETURN_IF_ERROR(runtime.Step(static_cast<int64_t>(times / 16)));
    Text text;
    for (Int i = 0; i < times; ++i) {
      text.Append(value.text());
    }
    text.set_markup(value.text().markup());
    return runtime.NewString(std::move(text));
  }
  std::vector<Value> items;
  items.reserve(value.items().size() * static_cast<size_t>(times));
  for (Int i = 0; i < times; ++i) {
    items.insert(items.end(), value.items().begin(), value.items().end());
  }
  return value.is_list() ? runtime.NewList(std::move(items)) : runtime.NewTuple(std::move(items));
}

bool Repeatable(const Value& value) { return value.is_string() || value.is_sequence(); }

}  // namespace

absl::StatusOr<Value> Apply(Runtime& runtime, Operator op, const Value& a, const Value& b) {
  if (op == Operator::kModulo && a.is_string()) {
    return RenderError("a string's % operator is not supported: use ~ or format()");
  }
  JINJA_RETURN_IF_ERROR(CheckDefined(a));
  JINJA_RETURN_IF_ERROR(CheckDefined(b));
  if (a.is_integral() && b.is_integral()) {
    return ApplyInts(op, a.int_value(), b.int_value());
  }
  if (a.is_number() && b.is_number()) {
    return ApplyFloats(op, a.float_value(), b.float_value());
  }
  if (op == Operator::kAdd && a.kind() == b.kind() && Repeatable(a)) {
    return Concatenate(runtime, a, b);
  }
  if (op == Operator::kMultiply && Repeatable(a) && b.is_integral()) {
    return Repeat(runtime, a, b.int_value());
  }
  if (op == Operator::kMultiply && Repeatable(b) && a.is_integral()) {
    return Repeat(runtime, b, a.int_value());
  }
  return Unsupported(op, a, b);
}

absl::StatusOr<Value> Negate(const Value& value) {
  JINJA_RETURN_IF_ERROR(CheckDefined(value));
  if (value.is_float()) {
    return Value::Float(-value.float_value());
  }
  if (!value.is_integral()) {
    return RenderError(StrCat("bad operand type for unary -: '", value.TypeName(), "'"));
  }
  return ApplyInts(Operator::kSubtract, 0, value.int_value());
}

absl::StatusOr<Value> Plus(const Value& value) {
  JINJA_RETURN_IF_ERROR(CheckDefined(value));
  if (!value.is_number()) {
    return RenderError(StrCat("bad operand type for unary +: '", value.TypeName(), "'"));
  }
  return value.is_float() ? value : Value::Integer(value.int_value());
}

}  // namespace tessera::coordinator::jinja
