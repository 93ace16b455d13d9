// The methods of strings, dicts, lists and tuples that the sandbox lets templates call.
//
// Tables are fixed; functions may be used from any thread, each with its own runtime.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "coordinator/jinja/values/runtime.h"
#include "coordinator/jinja/values/value.h"

namespace tessera::coordinator::jinja {

enum class MethodKind {
  kNone,  // Python has no such attribute
  kCallable,
  kUnsafe,       // refused by the sandbox: it would change the value or reach into Python
  kUnsupported,  // Python has it, we do not
};

MethodKind FindMethod(const Value& value, std::string_view name);
// Whether Python has a str, dict or list method `name` that no value has here: calls to it are
// refused when the template is parsed.
bool IsUnsupportedMethod(std::string_view name);

// Requires FindMethod(value, name) == kCallable.
absl::StatusOr<Value> CallMethod(Runtime& runtime, const Value& value, std::string_view name,
                                 const Arguments& arguments);
absl::StatusOr<Object*> NewBoundMethod(Runtime& runtime, const Value& value, std::string_view name);

// One method of one type. The receiver has that type.
using Method = absl::StatusOr<Value> (*)(Runtime& runtime, const Value& self,
                                         const Arguments& arguments);
struct MethodEntry {
  std::string_view name;
  Method method;
};
// Null where str has no method `name` here. In string_methods.cc.
Method FindStringMethod(std::string_view name);

}  // namespace tessera::coordinator::jinja
