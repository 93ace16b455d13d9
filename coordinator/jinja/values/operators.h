// Arithmetic as Python does it: + - * / // % ** and the unary + and -.
//
// Functions of their arguments; strings and lists they make are charged to the runtime. Errors are
// Python's TypeErrors and ZeroDivisionErrors, and integers beyond 127 bits.
#pragma once

#include "absl/status/statusor.h"
#include "coordinator/jinja/values/runtime.h"
#include "coordinator/jinja/values/value.h"

namespace tessera::coordinator::jinja {

enum class Operator { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };

absl::StatusOr<Value> Apply(Runtime& runtime, Operator op, const Value& a, const Value& b);
absl::StatusOr<Value> Negate(const Value& value);
absl::StatusOr<Value> Plus(const Value& value);

}  // namespace tessera::coordinator::jinja
