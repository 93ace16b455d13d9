// The functions a template finds without being given them, and the objects they make.
//
// Objects belong to the runtime; used by one thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/jinja/values/runtime.h"
#include "coordinator/jinja/values/value.h"

namespace tessera::coordinator::jinja {

// range, dict, namespace, raise_exception, strftime_now.
absl::StatusOr<std::vector<std::pair<std::string_view, Value>>> MakeGlobals(Runtime& runtime);

// What namespace() returns: the one thing whose attributes a template can set.
class Namespace : public Object {
 public:
  explicit Namespace(Dict attributes) : attributes_(std::move(attributes)) {}
  std::string_view TypeName() const override { return "Namespace"; }
  Namespace* name_space() override { return this; }
  absl::StatusOr<std::optional<Value>> Attribute(Runtime& runtime, std::string_view name) override;
  absl::StatusOr<Text> Repr(Runtime& runtime) override;
  // Names with a leading underscore are refused, as transformers does.
  absl::Status Set(Runtime& runtime, const std::string& name, Value value);

 private:
  Dict attributes_;
};

// A function of the object it is an attribute of: loop.cycle.
template <typename Self>
class ObjectMethod : public Object {
 public:
  using Body = absl::StatusOr<Value> (Self::*)(Runtime& runtime, const Arguments& arguments);
  ObjectMethod(Self* self, Body body) : self_(self), body_(body) {}
  std::string_view TypeName() const override { return "method"; }
  bool Callable() const override { return true; }
  absl::StatusOr<Value> Call(Runtime& runtime, const Arguments& arguments) override {
    return (self_->*body_)(runtime, arguments);
  }

 private:
  Self* self_;
  Body body_;
};

template <typename Self>
absl::StatusOr<std::optional<Value>> NewObjectMethod(Runtime& runtime, Self* self,
                                                     typename ObjectMethod<Self>::Body body) {
  auto method = runtime.NewObject<ObjectMethod<Self>>(self, body);
  if (!method.ok()) {
    return method.status();
  }
  return std::optional<Value>(Value::FromObject(*method));
}

}  // namespace tessera::coordinator::jinja
