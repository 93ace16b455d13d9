#include "coordinator/jinja/predicates.h"

#include <algorithm>
#include <iterator>

#include "coordinator/jinja/filters.h"
#include "coordinator/jinja/values/access.h"
#include "coordinator/jinja/values/compare.h"
#include "coordinator/jinja/values/operators.h"
#include "coordinator/jinja/values/print.h"
#include "coordinator/jinja/values/status.h"
#include "coordinator/jinja/values/unicode.h"
#include "third_party/absl/str_cat.h"

namespace tessera::coordinator::jinja {
namespace {

using Result = absl::StatusOr<bool>;

// A test that asks only what kind of value it is.
template <bool (*kHolds)(const Value&)>
Result Is(Runtime&, const Value& value, const Arguments& arguments) {
  JINJA_RETURN_IF_ERROR(Bound::To("the test", arguments, {}).status());
  return kHolds(value);
}

bool IsDefined(const Value& value) { return !value.is_undefined(); }
bool IsUndefined(const Value& value) { return value.is_undefined(); }
bool IsNone(const Value& value) { return value.is_none(); }
bool IsBoolean(const Value& value) { return value.is_bool(); }
bool IsFalse(const Value& value) { return value.is_bool() && !value.bool_value(); }
bool IsTrue(const Value& value) { return value.is_bool() && value.bool_value(); }
bool IsInteger(const Value& value) { return value.kind() == Kind::kInt; }
bool IsFloat(const Value& value) { return value.is_float(); }
bool IsNumber(const Value& value) { return value.is_number(); }
bool IsString(const Value& value) { return value.is_string(); }
bool IsMapping(const Value& value) { return value.is_dict(); }
bool IsSequence(const Value& value) { return HasLength(value) && value.kind() != Kind::kView; }
bool IsCallable(const Value& value) {
  // Undefined has a __call__, though one that fails.
  return value.is_undefined() || (value.is_object() && value.object()->Callable());
}
bool IsEscaped(const Value& value) { return value.is_string() && value.text().markup(); }
bool IsFilter(const Value& value) {
  return value.is_string() && FindFilter(value.bytes()) != nullptr;
}
bool IsTest(const Value& value) {
  return value.is_string() && FindPredicate(value.bytes()) != nullptr;
}

// Some cased character, and none of the other case.
template <bool kUpper>
Result AllCased(Runtime& runtime, const Value& value, const Arguments& arguments) {
  JINJA_RETURN_IF_ERROR(Bound::To("the test", arguments, {}).status());
  JINJA_ASSIGN_OR_RETURN(const Text text, ToText(runtime, value));
  JINJA_RETURN_IF_ERROR(runtime.Touch(text.size()));
  bool some = false;
  for (size_t at = 0; at < text.size();) {
    const uint32_t c = NextCodePoint(text.bytes(), &at);
    if (kUpper ? IsLower(c) : IsUpper(c)) {
      return false;
    }
    some = some || (kUpper ? IsUpper(c) : IsLower(c));
  }
  return some;
}

Result RemainderIs(Runtime& runtime, const Value& value, const Value& divisor, int remainder) {
  JINJA_ASSIGN_OR_RETURN(const Value rest, Apply(runtime, Operator::kModulo, value, divisor));
  return Equals(runtime, rest, Value::Integer(remainder));
}

template <int kRemainder>
Result Parity(Runtime& runtime, const Value& value, const Arguments& arguments) {
  JINJA_RETURN_IF_ERROR(Bound::To("the test", arguments, {}).status());
  return RemainderIs(runtime, value, Value::Integer(2), kRemainder);
}

Result DivisibleBy(Runtime& runtime, const Value& value, const Arguments& arguments) {
  JINJA_ASSIGN_OR_RETURN(const Bound bound, Bound::To("divisibleby", arguments, {"num"}, 1));
  return RemainderIs(runtime, value, bound[0], 0);
}

template <bool kEqual>
Result Equality(Runtime& runtime, const Value& value, const Arguments& arguments) {
  JINJA_ASSIGN_OR_RETURN(const Bound bound, Bound::To("the test", arguments, {"other"}, 1));
  JINJA_ASSIGN_OR_RETURN(const bool equal, Equals(runtime, value, bound[0]));
  return equal == kEqual;
}

template <Order kOrder, bool kOrEqual>
Result Ordered(Runtime& runtime, const Value& value, const Arguments& arguments) {
  JINJA_ASSIGN_OR_RETURN(const Bound bound, Bound::To("the test", arguments, {"other"}, 1));
  JINJA_ASSIGN_OR_RETURN(const Order order, Compare(runtime, value, bound[0]));
  return order == kOrder || (kOrEqual && order == Order::kEqual);
}

Result IsIn(Runtime& runtime, const Value& value, const Arguments& arguments) {
  JINJA_ASSIGN_OR_RETURN(const Bound bound, Bound::To("in", arguments, {"seq"}, 1));
  return Contains(runtime, bound[0], value);
}

Result IsSameAs(Runtime&, const Value& value, const Arguments& arguments) {
  JINJA_ASSIGN_OR_RETURN(const Bound bound, Bound::To("sameas", arguments, {"other"}, 1));
  return value.SameAs(bound[0]);
}

struct Entry {
  std::string_view name;
  Predicate predicate;
};

constexpr Entry kPredicates[] = {
    {"!=", Equality<false>},
    {"<", Ordered<Order::kLess, false>},
    {"<=", Ordered<Order::kLess, true>},
    {"==", Equality<true>},
    {">", Ordered<Order::kGreater, false>},
    {">=", Ordered<Order::kGreater, true>},
    {"boolean", Is<IsBoolean>},
    {"callable", Is<IsCallable>},
    {"defined", Is<IsDefined>},
    {"divisibleby", DivisibleBy},
    {"eq", Equality<true>},
    {"equalto", Equality<true>},
    {"escaped", Is<IsEscaped>},
    {"even", Parity<0>},
    {"false", Is<IsFalse>},
    {"filter", Is<IsFilter>},
    {"float", Is<IsFloat>},
    {"ge", Ordered<Order::kGreater, true>},
    {"greaterthan", Ordered<Order::kGreater, false>},
    {"gt", Ordered<Order::kGreater, false>},
    {"in", IsIn},
    {"integer", Is<IsInteger>},
    {"iterable", Is<IsIterable>},
    {"le", Ordered<Order::kLess, true>},
    {"lessthan", Ordered<Order::kLess, false>},
    {"lower", AllCased<false>},
    {"lt", Ordered<Order::kLess, false>},
    {"mapping", Is<IsMapping>},
    {"ne", Equality<false>},
    {"none", Is<IsNone>},
    {"number", Is<IsNumber>},
    {"odd", Parity<1>},
    {"sameas", IsSameAs},
    {"sequence", Is<IsSequence>},
    {"string", Is<IsString>},
    {"test", Is<IsTest>},
    {"true", Is<IsTrue>},
    {"undefined", Is<IsUndefined>},
    {"upper", AllCased<true>},
};

}  // namespace

Predicate FindPredicate(std::string_view name) {
  const auto* found = std::lower_bound(
      std::begin(kPredicates), std::end(kPredicates), name,
      [](const Entry& entry, std::string_view wanted) { return entry.name < wanted; });
  return found != std::end(kPredicates) && found->name == name ? found->predicate : nullptr;
}

}  // namespace tessera::coordinator::jinja
