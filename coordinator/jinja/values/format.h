#pragma once

// Python's two ways to format: "%s %d" % values, and "{} {:>5}".format(values).
//
// Text that comes from the format keeps its marks, and so do formatted strings; numbers are the
// format's. Errors are Python's TypeErrors and ValueErrors, and what is not supported: formatting
// through nested fields ("{:{}}").

#include <string_view>

#include "absl/status/statusor.h"
#include "coordinator/jinja/values/runtime.h"
#include "coordinator/jinja/values/value.h"

namespace tessera::coordinator::jinja {

// format % values: a tuple's items, a dict's named ones, or one value.
absl::StatusOr<Value> FormatPercent(Runtime& runtime, const Text& format, const Value& values);
// format.format(...).
absl::StatusOr<Value> FormatBraces(Runtime& runtime, const Text& format,
                                   const Arguments& arguments);
// format(value, spec): one field of the latter. In format_spec.cc.
absl::StatusOr<Text> FormatBySpec(Runtime& runtime, const Value& value, std::string_view spec);

// Digits of a number in `base`, without sign; upper-case letters if asked.
std::string Digits(Int value, int base, bool upper);
// C's printf for one double: conversion is one of eEfFgG.
std::string PrintDouble(double value, char conversion, int precision, bool alternate);

}  // namespace tessera::coordinator::jinja
