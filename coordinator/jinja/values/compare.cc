#include "coordinator/jinja/values/compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "coordinator/jinja/values/status.h"
#include "third_party/absl/str_cat.h"

namespace tessera::coordinator::jinja {
namespace {

absl::StatusOr<bool> SequencesEqual(Runtime& runtime, const Value& a, const Value& b) {
  if (a.items().size() != b.items().size()) {
    return false;
  }
  for (size_t i = 0; i < a.items().size(); ++i) {
    JINJA_ASSIGN_OR_RETURN(const bool equal, Equals(runtime, a.items()[i], b.items()[i]));
    if (!equal) {
      return false;
    }
  }
  return true;
}

absl::StatusOr<bool> DictsEqual(Runtime& runtime, const Dict& a, const Dict& b) {
  if (a.size() != b.size()) {
    return false;
  }
  for (const auto& [key, value] : a.entries()) {
    const Value* other = b.Find(key);
    if (other == nullptr) {
      return false;
    }
    JINJA_ASSIGN_OR_RETURN(const bool equal, Equals(runtime, value, *other));
    if (!equal) {
      return false;
    }
  }
  return true;
}

// Keys compare as sets of keys; other views are equal only to themselves.
absl::StatusOr<bool> ViewsEqual(Runtime& runtime, const Value& a, const Value& b) {
  if (a.view().kind != ViewKind::kKeys || b.view().kind != ViewKind::kKeys) {
    return a.SameAs(b);
  }
  const Dict& keys = *a.view().dict;
  JINJA_RETURN_IF_ERROR(runtime.Step(static_cast<int64_t>(keys.size())));
  return keys.size() == b.view().dict->size() &&
         std::all_of(keys.entries().begin(), keys.entries().end(), [&](const Dict::Entry& entry) {
           return b.view().dict->Find(entry.first) != nullptr;
         });
}

Order OrderOf(int sign) {
  return sign < 0 ? Order::kLess : sign > 0 ? Order::kGreater : Order::kEqual;
}

Order CompareNumbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) {
    return OrderOf((a.int_value() > b.int_value()) - (a.int_value() < b.int_value()));
  }
  if (!KeysEqual(a, b)) {
    const double x = a.float_value();
    const double y = b.float_value();
    // An integer that a double cannot hold may round to the very number it is compared with.
    if (x == y && !a.is_float()) {
      return a.int_value() < static_cast<Int>(y) ? Order::kLess : Order::kGreater;
    }
    if (x == y && !b.is_float()) {
      return static_cast<Int>(x) < b.int_value() ? Order::kLess : Order::kGreater;
    }
    return x < y ? Order::kLess : x > y ? Order::kGreater : Order::kUnordered;
  }
  return Order::kEqual;
}

absl::StatusOr<bool> ContainsItem(Runtime& runtime, const std::vector<Value>& items,
                                  const Value& needle) {
  for (const Value& item : items) {
    JINJA_ASSIGN_OR_RETURN(const bool equal, Equals(runtime, item, needle));
    if (equal) {
      return true;
    }
  }
  return false;
}

absl::StatusOr<bool> ViewContains(Runtime& runtime, const View& view, const Value& needle) {
  if (view.kind == ViewKind::kValues) {
    for (const auto& entry : view.dict->entries()) {
      JINJA_ASSIGN_OR_RETURN(const bool equal, Equals(runtime, entry.second, needle));
      if (equal) {
        return true;
      }
    }
    return false;
  }
  const bool pairs = view.kind == ViewKind::kItems;
  if (pairs && (!needle.is_tuple() || needle.items().size() != 2)) {
    return false;
  }
  const Value& key = pairs ? needle.items()[0] : needle;
  JINJA_RETURN_IF_ERROR(CheckHashable(runtime, key));
  const Value* found = view.dict->Find(key);
  if (found == nullptr || !pairs) {
    return found != nullptr;
  }
  return Equals(runtime, *found, needle.items()[1]);
}

bool RangeContains(const Range& range, const Value& needle) {
  if (!needle.is_number()) {
    return false;
  }
  const double real = needle.float_value();
  if (needle.is_float() && (std::trunc(real) != real || std::fabs(real) > 1e18)) {
    return false;
  }
  const Int value = needle.is_float() ? static_cast<Int>(real) : needle.int_value();
  const Int offset = value - range.start;
  return offset % range.step == 0 && offset / range.step >= 0 &&
         offset / range.step < range.Length();
}

}  // namespace

absl::StatusOr<bool> Equals(Runtime& runtime, const Value& a, const Value& b) {
  JINJA_RETURN_IF_ERROR(runtime.Step());
  if (a.kind() != b.kind() || a.is_number()) {
    return a.is_number() && b.is_number() && KeysEqual(a, b);
  }
  switch (a.kind()) {
    case Kind::kString:
      if (a.bytes().size() != b.bytes().size()) {
        return false;
      }
      JINJA_RETURN_IF_ERROR(runtime.Touch(a.bytes().size()));
      return a.bytes() == b.bytes();
    case Kind::kList:
    case Kind::kTuple: return SequencesEqual(runtime, a, b);
    case Kind::kDict: return DictsEqual(runtime, a.dict(), b.dict());
    case Kind::kView: return ViewsEqual(runtime, a, b);
    default: return KeysEqual(a, b);
  }
}

absl::StatusOr<Order> Compare(Runtime& runtime, const Value& a, const Value& b,
                              std::string_view operation) {
  JINJA_RETURN_IF_ERROR(CheckDefined(a));
  JINJA_RETURN_IF_ERROR(CheckDefined(b));
  JINJA_RETURN_IF_ERROR(runtime.Step());
  if (a.is_number() && b.is_number()) {
    return CompareNumbers(a, b);
  }
  if (a.is_string() && b.is_string()) {
    JINJA_RETURN_IF_ERROR(runtime.Touch(std::min(a.bytes().size(), b.bytes().size())));
    // UTF-8 sorts as its code points do.
    return OrderOf(a.bytes().compare(b.bytes()));
  }
  if (a.kind() != b.kind() || !a.is_sequence()) {
    return RenderError(StrCat("'", operation, "' not supported between instances of '",
                              a.TypeName(), "' and '", b.TypeName(), "'"));
  }
  const size_t shared = std::min(a.items().size(), b.items().size());
  for (size_t i = 0; i < shared; ++i) {
    JINJA_ASSIGN_OR_RETURN(const bool equal, Equals(runtime, a.items()[i], b.items()[i]));
    if (!equal) {
      return Compare(runtime, a.items()[i], b.items()[i], operation);
    }
  }
  return OrderOf((a.items().size() > b.items().size()) - (a.items().size() < b.items().size()));
}

absl::StatusOr<bool> Contains(Runtime& runtime, const Value& haystack, const Value& needle) {
  JINJA_RETURN_IF_ERROR(runtime.Step());
  switch (haystack.kind()) {
    case Kind::kUndefined: return false;
    case Kind::kString: {
      JINJA_RETURN_IF_ERROR(CheckDefined(needle));
      if (!needle.is_string()) {
        return RenderError(
            StrCat("'in <string>' requires string as left operand, not ", needle.TypeName()));
      }
      const std::string& text = haystack.bytes();
      JINJA_RETURN_IF_ERROR(runtime.Touch(text.size()));
      return memmem(text.data(), text.size(), needle.bytes().data(), needle.bytes().size()) !=
             nullptr;
    }
    case Kind::kList:
    case Kind::kTuple: return ContainsItem(runtime, haystack.items(), needle);
    case Kind::kDict:
      JINJA_RETURN_IF_ERROR(CheckHashable(runtime, needle));
      return haystack.dict().Find(needle) != nullptr;
    case Kind::kRange: return RangeContains(haystack.range(), needle);
    case Kind::kView: return ViewContains(runtime, haystack.view(), needle);
    case Kind::kObject:
      if (auto* generator = haystack.object()->generator()) {
        while (const Value* item = generator->Next()) {
          JINJA_ASSIGN_OR_RETURN(const bool equal, Equals(runtime, *item, needle));
          if (equal) {
            return true;
          }
        }
        return false;
      }
      break;
    default: break;
  }
  return RenderError(StrCat("argument of type '", haystack.TypeName(), "' is not iterable"));
}

absl::Status CheckDefined(const Value& value) {
  return value.is_undefined() ? RenderError(value.undefined_message()) : absl::OkStatus();
}

absl::Status CheckHashable(Runtime& runtime, const Value& key) {
  if (key.is_tuple()) {
    JINJA_RETURN_IF_ERROR(runtime.Step(static_cast<int64_t>(key.items().size())));
    for (const Value& item : key.items()) {
      JINJA_RETURN_IF_ERROR(CheckHashable(runtime, item));
    }
    return absl::OkStatus();
  }
  if (key.is_string()) {
    return runtime.Touch(key.bytes().size());
  }
  return IsHashable(key) ? absl::OkStatus()
                         : RenderError(StrCat("unhashable type: '", key.TypeName(), "'"));
}

}  // namespace tessera::coordinator::jinja
