// Jinja's tests: value is name(arguments). (Not called tests, which in this project are something
// else.)
//
// A fixed table; FindPredicate serves the parser, and select() while rendering.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "coordinator/jinja/values/runtime.h"
#include "coordinator/jinja/values/value.h"

namespace tessera::coordinator::jinja {

using Predicate = absl::StatusOr<bool> (*)(Runtime& runtime, const Value& value,
                                           const Arguments& arguments);

// Null where there is no such test.
Predicate FindPredicate(std::string_view name);

}  // namespace tessera::coordinator::jinja
