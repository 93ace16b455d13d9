#pragma once

// Python's pprint.pformat with its defaults: one line where it fits 80 columns, else one item a
// line, dictionaries by sorted keys, long strings cut at white space.
//
// Text and errors as print.h says. Work is charged to the runtime.

#include "absl/status/statusor.h"
#include "coordinator/jinja/values/runtime.h"
#include "coordinator/jinja/values/value.h"

namespace tessera::coordinator::jinja {

absl::StatusOr<Text> PrettyPrint(Runtime& runtime, const Value& value);

}  // namespace tessera::coordinator::jinja
