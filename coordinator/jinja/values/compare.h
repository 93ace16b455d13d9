// Python's comparisons: ==, <, `in`.
//
// Functions of their arguments; work is charged to the runtime. Errors are Python's TypeErrors.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "coordinator/jinja/values/runtime.h"
#include "coordinator/jinja/values/value.h"

namespace tessera::coordinator::jinja {

absl::StatusOr<bool> Equals(Runtime& runtime, const Value& a, const Value& b);

enum class Order { kLess, kEqual, kGreater, kUnordered };  // unordered: a NaN is involved
// Numbers with numbers, strings with strings, lists with lists, tuples with tuples; anything else
// is a TypeError that names `operation`.
absl::StatusOr<Order> Compare(Runtime& runtime, const Value& a, const Value& b,
                              std::string_view operation = "<");

// needle in haystack.
absl::StatusOr<bool> Contains(Runtime& runtime, const Value& haystack, const Value& needle);

// What using an undefined value reports; for others OK.
absl::Status CheckDefined(const Value& value);
// A TypeError unless `key` can be a dictionary's key.
absl::Status CheckHashable(Runtime& runtime, const Value& key);

}  // namespace tessera::coordinator::jinja
