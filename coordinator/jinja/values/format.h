// Python's "{} {name}".format(values), as far as chat templates use it: positional, numbered and
// named fields, and {:.2f}. Other parts of fields (attributes, items, conversions, widths) are
// refused by name.
//
// Text that comes from the format keeps its marks, and so do formatted strings; numbers are the
// format's. Errors are Python's ValueErrors and KeyErrors.
#pragma once

#include "absl/status/statusor.h"
#include "coordinator/jinja/values/runtime.h"
#include "coordinator/jinja/values/value.h"

namespace tessera::coordinator::jinja {

// format.format(...).
absl::StatusOr<Value> FormatBraces(Runtime& runtime, const Text& format,
                                   const Arguments& arguments);

}  // namespace tessera::coordinator::jinja
