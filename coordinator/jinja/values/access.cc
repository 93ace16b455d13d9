#include "coordinator/jinja/values/access.h"

#include <algorithm>
#include <optional>

#include "coordinator/jinja/values/compare.h"
#include "coordinator/jinja/values/methods.h"
#include "coordinator/jinja/values/print.h"
#include "coordinator/jinja/values/status.h"
#include "coordinator/jinja/values/unicode.h"
#include "third_party/absl/str_cat.h"

namespace tessera::coordinator::jinja {
namespace {

// How Jinja names a value in "... has no attribute".
std::string Described(const Value& value) {
  return value.is_none() ? "None" : StrCat("'", value.TypeName(), " object'");
}

absl::StatusOr<Value> MissingItem(Runtime& runtime, const Value& value, const Value& key) {
  if (key.is_string()) {
    return Value::Undefined(StrCat(Described(value), " has no attribute '", key.bytes(), "'"));
  }
  JINJA_ASSIGN_OR_RETURN(const Text name, Repr(runtime, key));
  return Value::Undefined(StrCat(Described(value), " has no element ", name.bytes()));
}

// The method or attribute `name` that values of this type have, if any.
absl::StatusOr<std::optional<Value>> BuiltinAttribute(Runtime& runtime, const Value& value,
                                                      std::string_view name) {
  if (value.is_object()) {
    return value.object()->Attribute(runtime, name);
  }
  switch (FindMethod(value, name)) {
    case MethodKind::kNone: return std::optional<Value>();
    case MethodKind::kUnsafe:
      return Value::Undefined(
          StrCat("access to attribute '", name, "' of '", value.TypeName(), "' object is unsafe."));
    case MethodKind::kUnsupported:
      return RenderError(StrCat("'", value.TypeName(), ".", name, "' is not supported"));
    case MethodKind::kCallable: break;
  }
  JINJA_ASSIGN_OR_RETURN(Object * method, NewBoundMethod(runtime, value, name));
  return Value::FromObject(method);
}

// The index-th of `size` items, counted from the end when negative; -1 where there is none.
Int ResolveIndex(Int index, Int size) {
  const Int resolved = index < 0 ? index + size : index;
  return resolved >= 0 && resolved < size ? resolved : -1;
}

absl::StatusOr<std::optional<Value>> StringItem(Runtime& runtime, const Value& value, Int index) {
  const std::string& bytes = value.bytes();
  JINJA_RETURN_IF_ERROR(runtime.Touch(bytes.size()));
  const Int at = ResolveIndex(index, static_cast<Int>(CountCodePoints(bytes)));
  if (at < 0) {
    return std::optional<Value>();
  }
  const size_t begin = OffsetOfCodePoint(bytes, static_cast<size_t>(at));
  size_t end = begin;
  NextCodePoint(bytes, &end);
  return Value::String(value.text().Slice(begin, end));
}

// value[key], or nothing where Python raises a LookupError or TypeError.
absl::StatusOr<std::optional<Value>> Subscript(Runtime& runtime, const Value& value,
                                               const Value& key) {
  std::optional<Value> nothing;
  if (value.is_dict()) {
    if (!IsHashable(key)) {
      return nothing;
    }
    JINJA_RETURN_IF_ERROR(CheckHashable(runtime, key));
    const Value* found = value.dict().Find(key);
    return found == nullptr ? nothing : std::optional<Value>(*found);
  }
  if (!key.is_integral()) {
    return nothing;
  }
  const Int index = key.int_value();
  if (value.is_string()) {
    return StringItem(runtime, value, index);
  }
  if (value.is_sequence()) {
    const Int at = ResolveIndex(index, static_cast<Int>(value.items().size()));
    return at < 0 ? nothing : std::optional<Value>(value.items()[static_cast<size_t>(at)]);
  }
  if (value.kind() == Kind::kRange) {
    const Range& range = value.range();
    const Int at = ResolveIndex(index, range.Length());
    return at < 0 ? nothing : std::optional<Value>(Value::Integer(range.start + at * range.step));
  }
  return nothing;
}

struct SliceBounds {
  Int start;
  Int step;
  size_t count;
};

absl::StatusOr<Int> SliceEnd(const Value& value, Int fallback) {
  if (value.is_none()) {
    return fallback;
  }
  JINJA_RETURN_IF_ERROR(CheckDefined(value));
  if (!value.is_integral()) {
    return RenderError("slice indices must be integers or None");
  }
  return value.int_value();
}

// Python's slice.indices(size).
absl::StatusOr<SliceBounds> ResolveSlice(const Value& start, const Value& stop, const Value& step,
                                         Int size) {
  JINJA_ASSIGN_OR_RETURN(Int stride, SliceEnd(step, 1));
  if (stride == 0) {
    return RenderError("slice step cannot be zero");
  }
  stride = std::clamp<Int>(stride, -(Int{1} << 62), Int{1} << 62);
  const Int lowest = stride > 0 ? 0 : -1;
  const Int highest = stride > 0 ? size : size - 1;
  const auto clamp = [&](Int index) {
    return std::clamp(index < 0 ? index + size : index, lowest, highest);
  };
  // The defaults are already inside; given ends count from the end when negative.
  JINJA_ASSIGN_OR_RETURN(Int begin, SliceEnd(start, stride > 0 ? 0 : highest));
  begin = start.is_none() ? begin : clamp(begin);
  JINJA_ASSIGN_OR_RETURN(Int end, SliceEnd(stop, stride > 0 ? size : -1));
  end = stop.is_none() ? end : clamp(end);
  const Int count = Range{begin, end, stride}.Length();
  return SliceBounds{begin, stride, static_cast<size_t>(count)};
}

absl::StatusOr<Value> SliceString(Runtime& runtime, const Value& value, const SliceBounds& bounds) {
  const Text& text = value.text();
  const std::string& bytes = text.bytes();
  JINJA_RETURN_IF_ERROR(runtime.Touch(bytes.size()));
  if (bounds.step == 1 || bounds.count == 0) {
    const size_t begin = OffsetOfCodePoint(bytes, static_cast<size_t>(bounds.start));
    return runtime.NewString(text.Slice(begin, OffsetOfCodePoint(bytes, bounds.count, begin)));
  }
  JINJA_RETURN_IF_ERROR(runtime.Touch(bytes.size() * sizeof(size_t)));
  std::vector<size_t> offsets;
  for (size_t at = 0; at < bytes.size(); NextCodePoint(bytes, &at)) {
    offsets.push_back(at);
  }
  offsets.push_back(bytes.size());
  Text slice;
  for (size_t i = 0; i < bounds.count; ++i) {
    const auto at = static_cast<size_t>(bounds.start + static_cast<Int>(i) * bounds.step);
    slice.AppendSlice(text, offsets[at], offsets[at + 1]);
  }
  slice.set_markup(text.markup());
  return runtime.NewString(std::move(slice));
}

absl::StatusOr<Value> SliceSequence(Runtime& runtime, const Value& value,
                                    const SliceBounds& bounds) {
  std::vector<Value> items;
  items.reserve(bounds.count);
  for (size_t i = 0; i < bounds.count; ++i) {
    items.push_back(
        value.items()[static_cast<size_t>(bounds.start + static_cast<Int>(i) * bounds.step)]);
  }
  return value.is_list() ? runtime.NewList(std::move(items)) : runtime.NewTuple(std::move(items));
}

absl::StatusOr<std::vector<Value>> Characters(Runtime& runtime, const Text& text) {
  JINJA_RETURN_IF_ERROR(runtime.Step(static_cast<int64_t>(text.size())));
  std::vector<Value> items;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    NextCodePoint(text.bytes(), &at);
    Text character = text.Slice(begin, at);
    character.set_markup(false);  // as iterating over a Markup gives plain strings
    items.push_back(Value::String(std::move(character)));
  }
  return items;
}

std::vector<Value> RangeItems(const Range& range) {
  std::vector<Value> items;
  for (Int i = 0, length = range.Length(); i < length; ++i) {
    items.push_back(Value::Integer(range.start + i * range.step));
  }
  return items;
}

absl::StatusOr<std::vector<Value>> ViewItems(Runtime& runtime, const View& view) {
  if (view.kind == ViewKind::kItems) {
    return DictItems(runtime, *view.dict);
  }
  std::vector<Value> items;
  items.reserve(view.dict->size());
  for (const auto& [key, value] : view.dict->entries()) {
    items.push_back(view.kind == ViewKind::kKeys ? key : value);
  }
  return items;
}

absl::Status NotIterable(const Value& value) {
  return RenderError(StrCat("'", value.TypeName(), "' object is not iterable"));
}

}  // namespace

absl::StatusOr<Value> GetAttribute(Runtime& runtime, const Value& value, std::string_view name) {
  JINJA_RETURN_IF_ERROR(CheckDefined(value));
  JINJA_ASSIGN_OR_RETURN(std::optional<Value> found, BuiltinAttribute(runtime, value, name));
  if (!found.has_value() && value.is_dict()) {
    const Value* item = value.dict().Find(name);
    return item != nullptr ? *item : MissingItem(runtime, value, Value::Literal(name));
  }
  return found.has_value() ? *found : MissingItem(runtime, value, Value::Literal(name));
}

absl::StatusOr<Value> GetItem(Runtime& runtime, const Value& value, const Value& key) {
  JINJA_RETURN_IF_ERROR(CheckDefined(value));
  JINJA_ASSIGN_OR_RETURN(std::optional<Value> found, Subscript(runtime, value, key));
  if (!found.has_value() && key.is_string()) {
    JINJA_ASSIGN_OR_RETURN(found, BuiltinAttribute(runtime, value, key.bytes()));
  }
  return found.has_value() ? *found : MissingItem(runtime, value, key);
}

absl::StatusOr<Value> GetSlice(Runtime& runtime, const Value& value, const Value& start,
                               const Value& stop, const Value& step) {
  JINJA_RETURN_IF_ERROR(CheckDefined(value));
  if (!value.is_string() && !value.is_sequence() && value.kind() != Kind::kRange) {
    return RenderError(StrCat("'", value.TypeName(), "' object cannot be sliced"));
  }
  JINJA_ASSIGN_OR_RETURN(const Int size, Length(runtime, value));
  JINJA_ASSIGN_OR_RETURN(const SliceBounds bounds, ResolveSlice(start, stop, step, size));
  if (value.is_string()) {
    return SliceString(runtime, value, bounds);
  }
  if (value.is_sequence()) {
    return SliceSequence(runtime, value, bounds);
  }
  const Range& range = value.range();
  Int stride = 0;
  if (__builtin_mul_overflow(bounds.step, range.step, &stride) || stride > (Int{1} << 100) ||
      stride < -(Int{1} << 100)) {
    return RenderError("the step of a range grows beyond the limit of 100 bits");
  }
  const Int first = range.start + bounds.start * range.step;
  return Value::FromRange({first, first + static_cast<Int>(bounds.count) * stride, stride});
}

bool HasLength(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kRange:
    case Kind::kView: return true;
    default: return false;
  }
}

absl::StatusOr<Int> Length(Runtime& runtime, const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined: return Int{0};
    case Kind::kString:
      JINJA_RETURN_IF_ERROR(runtime.Touch(value.bytes().size()));
      return static_cast<Int>(CountCodePoints(value.bytes()));
    case Kind::kList:
    case Kind::kTuple: return static_cast<Int>(value.items().size());
    case Kind::kDict: return static_cast<Int>(value.dict().size());
    case Kind::kRange: return value.range().Length();
    case Kind::kView: return static_cast<Int>(value.view().dict->size());
    default: return RenderError(StrCat("object of type '", value.TypeName(), "' has no len()"));
  }
}

bool IsIterable(const Value& value) {
  return HasLength(value) || (value.is_object() && value.object()->generator() != nullptr);
}

absl::StatusOr<std::vector<Value>> DictItems(Runtime& runtime, const Dict& dict) {
  std::vector<Value> items;
  items.reserve(dict.size());
  for (const auto& [key, value] : dict.entries()) {
    JINJA_ASSIGN_OR_RETURN(Value pair, runtime.NewTuple({key, value}));
    items.push_back(std::move(pair));
  }
  return items;
}

absl::StatusOr<std::vector<Value>> ToItems(Runtime& runtime, const Value& value) {
  if (!IsIterable(value)) {
    return NotIterable(value);
  }
  if (value.is_object()) {
    std::vector<Value> rest = value.object()->generator()->Rest();
    JINJA_RETURN_IF_ERROR(runtime.Touch(rest.size() * sizeof(Value)));
    return rest;
  }
  JINJA_ASSIGN_OR_RETURN(const Int length, Length(runtime, value));
  JINJA_RETURN_IF_ERROR(runtime.Touch(static_cast<size_t>(length) * sizeof(Value)));
  switch (value.kind()) {
    case Kind::kString: return Characters(runtime, value.text());
    case Kind::kList:
    case Kind::kTuple: return value.items();
    case Kind::kDict: return ViewItems(runtime, View{ViewKind::kKeys, value.dict_ptr()});
    case Kind::kRange: return RangeItems(value.range());
    case Kind::kView: return ViewItems(runtime, value.view());
    default: return std::vector<Value>();
  }
}

}  // namespace tessera::coordinator::jinja
