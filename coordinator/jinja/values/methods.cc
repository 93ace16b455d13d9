#include "coordinator/jinja/values/methods.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "coordinator/jinja/values/access.h"
#include "coordinator/jinja/values/compare.h"
#include "coordinator/jinja/values/status.h"
#include "third_party/absl/str_cat.h"

namespace tessera::coordinator::jinja {
namespace {

absl::StatusOr<Value> DictGet(Runtime& runtime, const Value& self, const Arguments& arguments) {
  JINJA_ASSIGN_OR_RETURN(const Bound bound, Bound::To("get", arguments, {"key", "default"}, 1));
  JINJA_RETURN_IF_ERROR(CheckHashable(runtime, bound[0]));
  const Value* found = self.dict().Find(bound[0]);
  return found != nullptr ? *found : bound.Has(1) ? bound[1] : Value::None();
}

template <ViewKind kKind>
absl::StatusOr<Value> DictView(Runtime&, const Value& self, const Arguments& arguments) {
  JINJA_RETURN_IF_ERROR(Bound::To("a dict view", arguments, {}).status());
  return Value::DictView(kKind, self.dict_ptr());
}

// Values are immutable, so a copy is the value itself.
absl::StatusOr<Value> Copy(Runtime&, const Value& self, const Arguments& arguments) {
  JINJA_RETURN_IF_ERROR(Bound::To("copy", arguments, {}).status());
  return self;
}

absl::StatusOr<Value> SequenceCount(Runtime& runtime, const Value& self,
                                    const Arguments& arguments) {
  JINJA_ASSIGN_OR_RETURN(const Bound bound, Bound::To("count", arguments, {"value"}, 1));
  JINJA_ASSIGN_OR_RETURN(const auto items, ToItems(runtime, self));
  Int count = 0;
  for (const Value& item : items) {
    JINJA_ASSIGN_OR_RETURN(const bool equal, Equals(runtime, item, bound[0]));
    count += equal ? 1 : 0;
  }
  return Value::Integer(count);
}

absl::StatusOr<Value> SequenceIndex(Runtime& runtime, const Value& self,
                                    const Arguments& arguments) {
  JINJA_ASSIGN_OR_RETURN(const Bound bound,
                         Bound::To("index", arguments, {"value", "start", "stop"}, 1));
  JINJA_ASSIGN_OR_RETURN(const auto items, ToItems(runtime, self));
  const Int size = static_cast<Int>(items.size());
  JINJA_ASSIGN_OR_RETURN(Int start, bound.Integer(1, 0));
  JINJA_ASSIGN_OR_RETURN(Int stop, bound.Integer(2, size));
  start = std::max<Int>(start < 0 ? start + size : start, 0);
  stop = std::min<Int>(stop < 0 ? stop + size : stop, size);
  for (Int i = start; i < stop; ++i) {
    JINJA_ASSIGN_OR_RETURN(const bool equal,
                           Equals(runtime, items[static_cast<size_t>(i)], bound[0]));
    if (equal) {
      return Value::Integer(i);
    }
  }
  return RenderError(StrCat(self.TypeName(), ".index(x): x not in ", self.TypeName()));
}

constexpr MethodEntry kDictMethods[] = {
    {"copy", Copy},
    {"get", DictGet},
    {"items", DictView<ViewKind::kItems>},
    {"keys", DictView<ViewKind::kKeys>},
    {"values", DictView<ViewKind::kValues>},
};
constexpr MethodEntry kListMethods[] = {
    {"copy", Copy}, {"count", SequenceCount}, {"index", SequenceIndex}};
constexpr MethodEntry kTupleMethods[] = {{"count", SequenceCount}, {"index", SequenceIndex}};

constexpr std::string_view kUnsafeDictMethods[] = {"clear", "pop", "popitem", "setdefault",
                                                   "update"};
constexpr std::string_view kUnsafeListMethods[] = {"append", "clear",  "extend",  "insert",
                                                   "pop",    "remove", "reverse", "sort"};
constexpr std::string_view kUnsupportedStringMethods[] = {
    "casefold",  "center",      "encode",   "expandtabs", "format_map", "isidentifier",
    "isnumeric", "isprintable", "istitle",  "ljust",      "maketrans",  "partition",
    "rjust",     "rpartition",  "swapcase", "translate",  "zfill"};
constexpr std::string_view kUnsupportedDictMethods[] = {"fromkeys"};
constexpr std::string_view kUnsupportedIntAttributes[] = {
    "as_integer_ratio", "bit_count", "bit_length", "conjugate", "denominator",
    "from_bytes",       "imag",      "numerator",  "real",      "to_bytes"};
constexpr std::string_view kUnsupportedFloatAttributes[] = {
    "as_integer_ratio", "conjugate", "fromhex", "hex", "imag", "is_integer", "real"};

template <typename Table>
bool Has(const Table& table, std::string_view name) {
  return std::find(std::begin(table), std::end(table), name) != std::end(table);
}

template <typename Table>
Method FindIn(const Table& table, std::string_view name) {
  const auto* found = std::find_if(std::begin(table), std::end(table),
                                   [name](const MethodEntry& entry) { return entry.name == name; });
  return found == std::end(table) ? nullptr : found->method;
}

Method FindMethodOf(const Value& value, std::string_view name) {
  switch (value.kind()) {
    case Kind::kString: return FindStringMethod(name);
    case Kind::kDict: return FindIn(kDictMethods, name);
    case Kind::kList: return FindIn(kListMethods, name);
    case Kind::kTuple:
    case Kind::kRange: return FindIn(kTupleMethods, name);
    default: return nullptr;
  }
}

class BoundMethod : public Object {
 public:
  BoundMethod(Value self, std::string_view name) : self_(std::move(self)), name_(name) {}
  std::string_view TypeName() const override { return "builtin_function_or_method"; }
  bool Callable() const override { return true; }
  absl::StatusOr<Value> Call(Runtime& runtime, const Arguments& arguments) override {
    return CallMethod(runtime, self_, name_, arguments);
  }

 private:
  Value self_;
  std::string name_;
};

}  // namespace

MethodKind FindMethod(const Value& value, std::string_view name) {
  if (name.starts_with("__") && name.ends_with("__")) {
    return MethodKind::kUnsafe;
  }
  if (FindMethodOf(value, name) != nullptr) {
    return MethodKind::kCallable;
  }
  bool unsafe = false;
  bool unsupported = false;
  switch (value.kind()) {
    case Kind::kString: unsupported = Has(kUnsupportedStringMethods, name); break;
    case Kind::kDict:
      unsafe = Has(kUnsafeDictMethods, name);
      unsupported = Has(kUnsupportedDictMethods, name);
      break;
    case Kind::kList: unsafe = Has(kUnsafeListMethods, name); break;
    case Kind::kBool:
    case Kind::kInt: unsupported = Has(kUnsupportedIntAttributes, name); break;
    case Kind::kFloat: unsupported = Has(kUnsupportedFloatAttributes, name); break;
    default: break;
  }
  return unsafe ? MethodKind::kUnsafe : unsupported ? MethodKind::kUnsupported : MethodKind::kNone;
}

bool IsUnsupportedMethod(std::string_view name) {
  return Has(kUnsupportedStringMethods, name) || Has(kUnsupportedDictMethods, name);
}

absl::StatusOr<Value> CallMethod(Runtime& runtime, const Value& value, std::string_view name,
                                 const Arguments& arguments) {
  return FindMethodOf(value, name)(runtime, value, arguments);
}

absl::StatusOr<Object*> NewBoundMethod(Runtime& runtime, const Value& value,
                                       std::string_view name) {
  JINJA_ASSIGN_OR_RETURN(BoundMethod * method, runtime.NewObject<BoundMethod>(value, name));
  return method;
}

}  // namespace tessera::coordinator::jinja
