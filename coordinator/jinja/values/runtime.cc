#include "coordinator/jinja/values/runtime.h"

#include <algorithm>

#include "coordinator/jinja/values/status.h"
#include "third_party/absl/str_cat.h"

namespace tessera::coordinator::jinja {
namespace {

// Work on strings may touch so many times the output limit; enough for a template that passes a
// prompt of the full size through 32 filters.
constexpr int64_t kTouchFactor = 32;

}  // namespace

absl::StatusOr<Value> Object::Call(Runtime&, const Arguments&) {
  return RenderError(StrCat("'", TypeName(), "' object is not callable"));
}

absl::StatusOr<std::optional<Value>> Object::Attribute(Runtime&, std::string_view) {
  return std::optional<Value>();
}

absl::StatusOr<Text> Object::Repr(Runtime&) {
  return Text(StrCat("<", TypeName(), " object>"), true);
}

std::vector<Value> Generator::Rest() {
  std::vector<Value> rest(items_.begin() + static_cast<std::ptrdiff_t>(position_), items_.end());
  position_ = items_.size();
  return rest;
}

absl::Status Runtime::Step(int64_t count) {
  steps_ += count;
  if (steps_ > limits_.max_steps) {
    return RenderError(StrCat("the template needs more than the limit of ", limits_.max_steps,
                              " steps; send fewer or shorter messages"));
  }
  return absl::OkStatus();
}

absl::Status Runtime::Touch(size_t size_bytes) {
  const int64_t limit = kTouchFactor * limits_.max_output_bytes;
  touched_bytes_ += static_cast<int64_t>(std::min<size_t>(size_bytes, limit + 1));
  if (touched_bytes_ > limit) {
    return RenderError(StrCat("the template works on more than the limit of ", limit,
                              " bytes; send fewer or shorter messages"));
  }
  return absl::OkStatus();
}

absl::Status Runtime::CheckSize(size_t size_bytes) const {
  if (size_bytes > static_cast<size_t>(limits_.max_output_bytes)) {
    return RenderError(StrCat("the template makes a string beyond the limit of ",
                              limits_.max_output_bytes, " bytes; send fewer or shorter messages"));
  }
  return absl::OkStatus();
}

absl::Status Runtime::TooDeep() {
  return RenderError(
      StrCat("the template nests deeper than the limit of ", kMaxCallDepth, " levels"));
}

absl::StatusOr<Value> Runtime::NewString(Text text) {
  JINJA_RETURN_IF_ERROR(CheckSize(text.size()));
  JINJA_RETURN_IF_ERROR(Touch(text.size()));
  return Value::String(std::move(text));
}

absl::StatusOr<std::shared_ptr<const Sequence>> Runtime::NewSequence(std::vector<Value> items) {
  JINJA_RETURN_IF_ERROR(Touch(items.size() * sizeof(Value)));
  auto sequence = std::make_shared<Sequence>();
  for (const Value& item : items) {
    sequence->depth = std::max(sequence->depth, item.depth() + 1);
  }
  if (sequence->depth > kMaxValueDepth) {
    return RenderError(StrCat("a list nests deeper than the limit of ", kMaxValueDepth, " levels"));
  }
  sequence->items = std::move(items);
  return std::shared_ptr<const Sequence>(std::move(sequence));
}

absl::StatusOr<Value> Runtime::NewList(std::vector<Value> items) {
  JINJA_ASSIGN_OR_RETURN(auto sequence, NewSequence(std::move(items)));
  return Value::List(std::move(sequence));
}

absl::StatusOr<Value> Runtime::NewTuple(std::vector<Value> items) {
  JINJA_ASSIGN_OR_RETURN(auto sequence, NewSequence(std::move(items)));
  return Value::Tuple(std::move(sequence));
}

absl::StatusOr<Value> Runtime::NewDict(Dict dict) {
  JINJA_RETURN_IF_ERROR(Touch(dict.size() * sizeof(Dict::Entry)));
  if (dict.depth() > kMaxValueDepth) {
    return RenderError(StrCat("a dict nests deeper than the limit of ", kMaxValueDepth, " levels"));
  }
  return Value::Dictionary(std::make_shared<const Dict>(std::move(dict)));
}

absl::StatusOr<Value> Runtime::NewGenerator(std::vector<Value> items) {
  JINJA_RETURN_IF_ERROR(Touch(items.size() * sizeof(Value)));
  JINJA_ASSIGN_OR_RETURN(Generator * generator, NewObject<Generator>(std::move(items)));
  return Value::FromObject(generator);
}

absl::StatusOr<Bound> Bound::To(std::string_view function, const Arguments& arguments,
                                std::initializer_list<std::string_view> parameters,
                                size_t required) {
  Bound bound;
  bound.function_ = function;
  std::copy(parameters.begin(), parameters.end(), bound.names_.begin());
  if (arguments.positional.size() > parameters.size()) {
    return RenderError(StrCat(function, " takes at most ", parameters.size(), " arguments, got ",
                              arguments.positional.size()));
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    bound.values_[i] = &arguments.positional[i];
  }
  for (const auto& [name, value] : arguments.keyword) {
    const auto* found = std::find(parameters.begin(), parameters.end(), name);
    if (found == parameters.end()) {
      return RenderError(StrCat(function, " has no parameter '", name, "'"));
    }
    const Value*& slot = bound.values_[static_cast<size_t>(found - parameters.begin())];
    if (slot != nullptr) {
      return RenderError(StrCat(function, " got two values for '", name, "'"));
    }
    slot = &value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (bound.values_[i] == nullptr) {
      return RenderError(StrCat(function, " needs the argument '", bound.names_[i], "'"));
    }
  }
  return bound;
}

absl::StatusOr<Int> Bound::Integer(size_t i, Int fallback) const {
  if (!Has(i)) {
    return fallback;
  }
  if (!values_[i]->is_integral()) {
    return RenderError(
        StrCat(function_, ": '", names_[i], "' must be an integer, not ", values_[i]->TypeName()));
  }
  // Nothing an argument counts is that large; the clamp leaves room for arithmetic on it.
  constexpr Int kLargest = Int{1} << 62;
  return std::clamp(values_[i]->int_value(), -kLargest, kLargest);
}

absl::StatusOr<const Text*> Bound::String(size_t i) const {
  if (!values_[i]->is_string()) {
    return RenderError(
        StrCat(function_, ": '", names_[i], "' must be a string, not ", values_[i]->TypeName()));
  }
  return &values_[i]->text();
}

}  // namespace tessera::coordinator::jinja
