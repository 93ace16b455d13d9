// Filters that choose, convert and regroup items.

#include <algorithm>

#include "coordinator/jinja/filters.h"
#include "coordinator/jinja/predicates.h"
#include "coordinator/jinja/values/access.h"
#include "coordinator/jinja/values/compare.h"
#include "coordinator/jinja/values/methods.h"
#include "coordinator/jinja/values/status.h"
#include "coordinator/jinja/values/unicode.h"
#include "third_party/absl/str_cat.h"

namespace tessera::coordinator::jinja {
namespace {

using Result = absl::StatusOr<Value>;

Result Default(Runtime&, const Value& value, const Arguments& arguments) {
  JINJA_ASSIGN_OR_RETURN(const Bound bound,
                         Bound::To("default", arguments, {"default_value", "boolean"}));
  const bool missing = value.is_undefined() || (bound.Boolean(1, false) && !value.Truthy());
  return !missing ? value : bound.Has(0) ? bound[0] : Value::Literal("");
}

Result First(Runtime& runtime, const Value& value, const Arguments& arguments) {
  JINJA_RETURN_IF_ERROR(Bound::To("first", arguments, {}).status());
  if (value.is_object()) {
    if (auto* generator = value.object()->generator()) {
      const Value* item = generator->Next();
      return item != nullptr ? *item : Value::Undefined("No first item, sequence was empty.");
    }
  }
  if (value.is_string() && !value.bytes().empty()) {
    size_t end = 0;
    NextCodePoint(value.bytes(), &end);
    Text first = value.text().Slice(0, end);
    first.set_markup(false);
    return runtime.NewString(std::move(first));
  }
  JINJA_ASSIGN_OR_RETURN(const auto items, ToItems(runtime, value));
  return items.empty() ? Value::Undefined("No first item, sequence was empty.") : items.front();
}

absl::Status CheckReversible(const Value& value) {
  return HasLength(value)
             ? absl::OkStatus()
             : RenderError(StrCat("'", value.TypeName(), "' object is not reversible"));
}

Result Last(Runtime& runtime, const Value& value, const Arguments& arguments) {
  JINJA_RETURN_IF_ERROR(Bound::To("last", arguments, {}).status());
  JINJA_RETURN_IF_ERROR(CheckReversible(value));
  if (value.is_string() && !value.bytes().empty()) {
    const size_t begin = PreviousCharacter(value.bytes(), value.bytes().size());
    return runtime.NewString(value.text().Slice(begin, value.bytes().size()));
  }
  JINJA_ASSIGN_OR_RETURN(const auto items, ToItems(runtime, value));
  return items.empty() ? Value::Undefined("No last item, sequence was empty.") : items.back();
}

Result Reverse(Runtime& runtime, const Value& value, const Arguments& arguments) {
  JINJA_RETURN_IF_ERROR(Bound::To("reverse", arguments, {}).status());
  if (value.is_string()) {
    JINJA_RETURN_IF_ERROR(runtime.Touch(value.bytes().size()));
    const Text& text = value.text();
    Text reversed;
    for (size_t end = text.size(); end > 0;) {
      const size_t begin = PreviousCharacter(text.bytes(), end);
      reversed.AppendSlice(text, begin, end);
      end = begin;
    }
    reversed.set_markup(text.markup());
    return runtime.NewString(std::move(reversed));
  }
  const bool reversible = HasLength(value);
  JINJA_ASSIGN_OR_RETURN(auto items, ToItems(runtime, value));
  std::reverse(items.begin(), items.end());
  return reversible ? runtime.NewGenerator(std::move(items)) : runtime.NewList(std::move(items));
}

Result ToList(Runtime& runtime, const Value& value, const Arguments& arguments) {
  JINJA_RETURN_IF_ERROR(Bound::To("list", arguments, {}).status());
  JINJA_ASSIGN_OR_RETURN(auto items, ToItems(runtime, value));
  return runtime.NewList(std::move(items));
}

Result Items(Runtime& runtime, const Value& value, const Arguments& arguments) {
  JINJA_RETURN_IF_ERROR(Bound::To("items", arguments, {}).status());
  if (value.is_undefined()) {
    return runtime.NewGenerator({});
  }
  if (!value.is_dict()) {
    return RenderError("items: can only get item pairs from a mapping");
  }
  JINJA_ASSIGN_OR_RETURN(auto items, DictItems(runtime, value.dict()));
  return runtime.NewGenerator(std::move(items));
}

Result Attribute(Runtime& runtime, const Value& value, const Arguments& arguments) {
  JINJA_ASSIGN_OR_RETURN(const Bound bound, Bound::To("attr", arguments, {"name"}, 1));
  JINJA_ASSIGN_OR_RETURN(const Text* name, bound.String(0));
  JINJA_RETURN_IF_ERROR(CheckDefined(value));
  // Unlike value.name it never looks at a dict's items.
  if (value.is_dict() && FindMethod(value, name->bytes()) == MethodKind::kNone) {
    return Value::Undefined(StrCat("'dict object' has no attribute '", name->bytes(), "'"));
  }
  return GetAttribute(runtime, value, name->bytes());
}

Result SliceFilter(Runtime& runtime, const Value& value, const Arguments& arguments) {
  JINJA_ASSIGN_OR_RETURN(const Bound bound,
                         Bound::To("slice", arguments, {"slices", "fill_with"}, 1));
  JINJA_ASSIGN_OR_RETURN(const Int slices, bound.Integer(0, 1));
  JINJA_ASSIGN_OR_RETURN(const auto items, ToItems(runtime, value));
  if (slices == 0) {
    return RenderError("slice: division by zero");
  }
  const Int size = static_cast<Int>(items.size());
  std::vector<Value> lists;
  size_t begin = 0;
  for (Int slice = 0; slice < slices; ++slice) {
    JINJA_RETURN_IF_ERROR(runtime.Step());
    const bool longer = slice < size % slices;
    const size_t count = static_cast<size_t>(size / slices) + (longer ? 1 : 0);
    const auto first = items.begin() + static_cast<std::ptrdiff_t>(begin);
    std::vector<Value> list(first, first + static_cast<std::ptrdiff_t>(count));
    if (const Value* fill = bound.Optional(1); fill != nullptr && !longer) {
      list.push_back(*fill);
    }
    JINJA_ASSIGN_OR_RETURN(Value made, runtime.NewList(std::move(list)));
    lists.push_back(std::move(made));
    begin += count;
  }
  return runtime.NewGenerator(std::move(lists));
}

Result Batch(Runtime& runtime, const Value& value, const Arguments& arguments) {
  JINJA_ASSIGN_OR_RETURN(const Bound bound,
                         Bound::To("batch", arguments, {"linecount", "fill_with"}, 1));
  JINJA_ASSIGN_OR_RETURN(const Int count, bound.Integer(0, 1));
  JINJA_ASSIGN_OR_RETURN(const auto items, ToItems(runtime, value));
  std::vector<Value> lists;
  std::vector<Value> list;
  const auto flush = [&]() -> absl::Status {
    JINJA_ASSIGN_OR_RETURN(Value made, runtime.NewList(std::move(list)));
    lists.push_back(std::move(made));
    list.clear();
    return absl::OkStatus();
  };
  for (const Value& item : items) {
    if (static_cast<Int>(list.size()) == count) {
      JINJA_RETURN_IF_ERROR(flush());
    }
    list.push_back(item);
  }
  if (!list.empty()) {
    if (const Value* fill = bound.Optional(1)) {
      while (static_cast<Int>(list.size()) < count) {
        JINJA_RETURN_IF_ERROR(runtime.Step());
        list.push_back(*fill);
      }
    }
    JINJA_RETURN_IF_ERROR(flush());
  }
  return runtime.NewGenerator(std::move(lists));
}

Arguments Without(const Arguments& arguments, size_t used) {
  Arguments rest;
  rest.positional.assign(arguments.positional.begin() + static_cast<std::ptrdiff_t>(used),
                         arguments.positional.end());
  rest.keyword = arguments.keyword;
  return rest;
}

Result MapAttribute(Runtime& runtime, const Value& value, const Arguments& arguments) {
  JINJA_ASSIGN_OR_RETURN(const Bound bound,
                         Bound::To("map", arguments, {"attribute", "default"}, 1));
  JINJA_ASSIGN_OR_RETURN(const AttributePath path, ParseAttributePath(bound[0]));
  JINJA_ASSIGN_OR_RETURN(auto items, ToItems(runtime, value));
  for (Value& item : items) {
    JINJA_RETURN_IF_ERROR(runtime.Step());
    JINJA_ASSIGN_OR_RETURN(item, FollowPath(runtime, item, path, bound.Optional(1)));
  }
  return runtime.NewGenerator(std::move(items));
}

Result Map(Runtime& runtime, const Value& value, const Arguments& arguments) {
  if (!value.Truthy()) {
    return runtime.NewGenerator({});
  }
  if (arguments.positional.empty()) {
    const bool attribute =
        std::any_of(arguments.keyword.begin(), arguments.keyword.end(),
                    [](const auto& keyword) { return keyword.first == "attribute"; });
    return attribute ? MapAttribute(runtime, value, arguments)
                     : Result(RenderError("map requires a filter argument"));
  }
  const Value& name = arguments.positional[0];
  const Filter filter = name.is_string() ? FindFilter(name.bytes()) : nullptr;
  if (filter == nullptr) {
    return RenderError(
        StrCat("map: no filter named '", name.is_string() ? name.bytes() : "?", "'"));
  }
  const Arguments rest = Without(arguments, 1);
  JINJA_ASSIGN_OR_RETURN(auto items, ToItems(runtime, value));
  for (Value& item : items) {
    JINJA_RETURN_IF_ERROR(runtime.Step());
    // A filter may be map itself.
    const Runtime::Level level(runtime);
    if (!level.ok()) {
      return Runtime::TooDeep();
    }
    JINJA_ASSIGN_OR_RETURN(item, filter(runtime, item, rest));
  }
  return runtime.NewGenerator(std::move(items));
}

// select, reject, selectattr and rejectattr: keeps the items (or whose attribute) the test accepts.
template <bool kByAttribute, bool kKeep>
Result Select(Runtime& runtime, const Value& value, const Arguments& arguments) {
  if (!value.Truthy()) {
    return runtime.NewGenerator({});
  }
  constexpr size_t kTest = kByAttribute ? 1 : 0;
  AttributePath path;
  if (kByAttribute) {
    if (arguments.positional.empty()) {
      return RenderError("Missing parameter for attribute name");
    }
    JINJA_ASSIGN_OR_RETURN(path, ParseAttributePath(arguments.positional[0]));
  }
  Predicate predicate = nullptr;
  if (arguments.positional.size() > kTest) {
    const Value& name = arguments.positional[kTest];
    predicate = name.is_string() ? FindPredicate(name.bytes()) : nullptr;
    if (predicate == nullptr) {
      return RenderError(StrCat("No test named '", name.is_string() ? name.bytes() : "?", "'"));
    }
  }
  const Arguments rest = predicate == nullptr ? Arguments() : Without(arguments, kTest + 1);
  JINJA_ASSIGN_OR_RETURN(const auto items, ToItems(runtime, value));
  std::vector<Value> kept;
  for (const Value& item : items) {
    JINJA_RETURN_IF_ERROR(runtime.Step());
    JINJA_ASSIGN_OR_RETURN(const Value tested, FollowPath(runtime, item, path));
    bool holds = tested.Truthy();
    if (predicate != nullptr) {
      JINJA_ASSIGN_OR_RETURN(holds, predicate(runtime, tested, rest));
    }
    if (holds == kKeep) {
      kept.push_back(item);
    }
  }
  return runtime.NewGenerator(std::move(kept));
}

constexpr FilterEntry kFilters[] = {
    {"attr", Attribute},
    {"batch", Batch},
    {"d", Default},
    {"default", Default},
    {"first", First},
    {"items", Items},
    {"last", Last},
    {"list", ToList},
    {"map", Map},
    {"reject", Select<false, false>},
    {"rejectattr", Select<true, false>},
    {"reverse", Reverse},
    {"select", Select<false, true>},
    {"selectattr", Select<true, true>},
    {"slice", SliceFilter},
};

}  // namespace

std::span<const FilterEntry> SequenceFilters() { return kFilters; }

}  // namespace tessera::coordinator::jinja
