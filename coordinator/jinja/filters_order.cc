// Filters that compare items: sort, dictsort, unique, min, max.

#include <algorithm>
#include <numeric>

#include "coordinator/jinja/filters.h"
#include "coordinator/jinja/values/access.h"
#include "coordinator/jinja/values/compare.h"
#include "coordinator/jinja/values/status.h"
#include "coordinator/jinja/values/string_ops.h"
#include "third_party/absl/str_cat.h"

namespace tessera::coordinator::jinja {
namespace {

using Result = absl::StatusOr<Value>;

absl::StatusOr<Value> IgnoreCase(Runtime& runtime, const Value& value, bool case_sensitive) {
  if (case_sensitive || !value.is_string()) {
    return value;
  }
  JINJA_RETURN_IF_ERROR(runtime.Touch(kCharacterWork * value.bytes().size()));
  return runtime.NewString(ChangeCase(value.text(), Case::kLower));
}

// What each item is compared by.
class KeyOf {
 public:
  KeyOf(Runtime& runtime, bool case_sensitive)
      : runtime_(runtime), case_sensitive_(case_sensitive) {}

  absl::Status SetPath(const Value& attribute) {
    JINJA_ASSIGN_OR_RETURN(AttributePath path, ParseAttributePath(attribute));
    paths_.push_back(std::move(path));
    return absl::OkStatus();
  }

  // "a,b": by a, then by b. Keys become lists.
  absl::Status SetPaths(const Value& attribute) {
    as_list_ = true;
    if (!attribute.is_string()) {
      return SetPath(attribute);
    }
    const std::string_view names = attribute.bytes();
    for (size_t begin = 0; begin <= names.size();) {
      const size_t end = std::min(names.find(',', begin), names.size());
      JINJA_RETURN_IF_ERROR(SetPath(Value::Literal(names.substr(begin, end - begin))));
      begin = end + 1;
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Value> operator()(const Value& item) const {
    std::vector<Value> keys;
    for (const AttributePath& path : paths_) {
      JINJA_ASSIGN_OR_RETURN(Value key, FollowPath(runtime_, item, path));
      JINJA_ASSIGN_OR_RETURN(key, IgnoreCase(runtime_, key, case_sensitive_));
      if (!as_list_) {
        return key;
      }
      keys.push_back(std::move(key));
    }
    return runtime_.NewList(std::move(keys));
  }

 private:
  Runtime& runtime_;
  bool case_sensitive_;
  bool as_list_ = false;
  std::vector<AttributePath> paths_;
};

// A stable merge sort whose comparison may fail: the order of the keys as indices.
class Sorter {
 public:
  Sorter(Runtime& runtime, const std::vector<Value>& keys)
      : runtime_(runtime), keys_(keys), order_(keys.size()), merged_(keys.size()) {
    std::iota(order_.begin(), order_.end(), size_t{0});
  }

  absl::StatusOr<std::vector<size_t>> Sort(bool reverse) {
    // Reversed before and after, equal items keep their order, as Python's sort does.
    if (reverse) {
      std::reverse(order_.begin(), order_.end());
    }
    for (size_t width = 1; width < order_.size(); width *= 2) {
      for (size_t begin = 0; begin + width < order_.size(); begin += 2 * width) {
        JINJA_RETURN_IF_ERROR(
            Merge(begin, begin + width, std::min(begin + 2 * width, order_.size())));
      }
    }
    if (reverse) {
      std::reverse(order_.begin(), order_.end());
    }
    return std::move(order_);
  }

 private:
  absl::Status Merge(size_t begin, size_t middle, size_t end) {
    size_t left = begin;
    size_t right = middle;
    for (size_t out = begin; out < end; ++out) {
      bool take_right = left == middle;
      if (left < middle && right < end) {
        JINJA_ASSIGN_OR_RETURN(const Order order,
                               Compare(runtime_, keys_[order_[right]], keys_[order_[left]]));
        take_right = order == Order::kLess;
      }
      merged_[out] = order_[take_right ? right++ : left++];
    }
    std::copy(merged_.begin() + static_cast<std::ptrdiff_t>(begin),
              merged_.begin() + static_cast<std::ptrdiff_t>(end),
              order_.begin() + static_cast<std::ptrdiff_t>(begin));
    return absl::OkStatus();
  }

  Runtime& runtime_;
  const std::vector<Value>& keys_;
  std::vector<size_t> order_;
  std::vector<size_t> merged_;
};

absl::StatusOr<std::vector<Value>> SortedBy(Runtime& runtime, const std::vector<Value>& items,
                                            const std::vector<Value>& keys, bool reverse) {
  JINJA_ASSIGN_OR_RETURN(const auto order, Sorter(runtime, keys).Sort(reverse));
  std::vector<Value> sorted;
  sorted.reserve(items.size());
  for (const size_t i : order) {
    sorted.push_back(items[i]);
  }
  return sorted;
}

absl::StatusOr<std::vector<Value>> KeysOf(const std::vector<Value>& items, const KeyOf& key_of) {
  std::vector<Value> keys;
  keys.reserve(items.size());
  for (const Value& item : items) {
    JINJA_ASSIGN_OR_RETURN(Value key, key_of(item));
    keys.push_back(std::move(key));
  }
  return keys;
}

Result Sort(Runtime& runtime, const Value& value, const Arguments& arguments) {
  JINJA_ASSIGN_OR_RETURN(const Bound bound,
                         Bound::To("sort", arguments, {"reverse", "case_sensitive", "attribute"}));
  KeyOf key_of(runtime, bound.Boolean(1, false));
  JINJA_RETURN_IF_ERROR(key_of.SetPaths(bound.Has(2) ? bound[2] : Value::None()));
  JINJA_ASSIGN_OR_RETURN(const auto items, ToItems(runtime, value));
  JINJA_ASSIGN_OR_RETURN(const auto keys, KeysOf(items, key_of));
  JINJA_ASSIGN_OR_RETURN(auto sorted, SortedBy(runtime, items, keys, bound.Boolean(0, false)));
  return runtime.NewList(std::move(sorted));
}

Result DictSort(Runtime& runtime, const Value& value, const Arguments& arguments) {
  JINJA_ASSIGN_OR_RETURN(const Bound bound,
                         Bound::To("dictsort", arguments, {"case_sensitive", "by", "reverse"}));
  JINJA_RETURN_IF_ERROR(CheckDefined(value));
  if (!value.is_dict()) {
    return RenderError(StrCat("dictsort: expected a dict, not ", value.TypeName()));
  }
  const std::string by = bound.Has(1) && bound[1].is_string() ? bound[1].bytes() : "key";
  if (by != "key" && by != "value") {
    return RenderError("dictsort: you can only sort by either \"key\" or \"value\"");
  }
  std::vector<Value> keys;
  for (const auto& entry : value.dict().entries()) {
    JINJA_ASSIGN_OR_RETURN(Value key, IgnoreCase(runtime, by == "key" ? entry.first : entry.second,
                                                 bound.Boolean(0, false)));
    keys.push_back(std::move(key));
  }
  JINJA_ASSIGN_OR_RETURN(const auto items, DictItems(runtime, value.dict()));
  JINJA_ASSIGN_OR_RETURN(auto sorted, SortedBy(runtime, items, keys, bound.Boolean(2, false)));
  return runtime.NewList(std::move(sorted));
}

Result Unique(Runtime& runtime, const Value& value, const Arguments& arguments) {
  JINJA_ASSIGN_OR_RETURN(const Bound bound,
                         Bound::To("unique", arguments, {"case_sensitive", "attribute"}));
  KeyOf key_of(runtime, bound.Boolean(0, false));
  JINJA_RETURN_IF_ERROR(key_of.SetPath(bound.Has(1) ? bound[1] : Value::None()));
  JINJA_ASSIGN_OR_RETURN(const auto items, ToItems(runtime, value));
  Dict seen;
  std::vector<Value> kept;
  for (const Value& item : items) {
    JINJA_RETURN_IF_ERROR(runtime.Step());
    JINJA_ASSIGN_OR_RETURN(const Value key, key_of(item));
    JINJA_RETURN_IF_ERROR(CheckHashable(runtime, key));
    if (seen.Find(key) == nullptr) {
      seen.Set(key, Value::None());
      kept.push_back(item);
    }
  }
  return runtime.NewGenerator(std::move(kept));
}

template <Order kBetter>
Result Extreme(Runtime& runtime, const Value& value, const Arguments& arguments) {
  JINJA_ASSIGN_OR_RETURN(const Bound bound,
                         Bound::To("min", arguments, {"case_sensitive", "attribute"}));
  KeyOf key_of(runtime, bound.Boolean(0, false));
  JINJA_RETURN_IF_ERROR(key_of.SetPath(bound.Has(1) ? bound[1] : Value::None()));
  JINJA_ASSIGN_OR_RETURN(const auto items, ToItems(runtime, value));
  if (items.empty()) {
    return Value::Undefined("No aggregated item, sequence was empty.");
  }
  JINJA_ASSIGN_OR_RETURN(const auto keys, KeysOf(items, key_of));
  size_t best = 0;
  for (size_t i = 1; i < items.size(); ++i) {
    JINJA_ASSIGN_OR_RETURN(const Order order, Compare(runtime, keys[i], keys[best]));
    best = order == kBetter ? i : best;
  }
  return items[best];
}

constexpr FilterEntry kFilters[] = {
    {"dictsort", DictSort},
    {"max", Extreme<Order::kGreater>},
    {"min", Extreme<Order::kLess>},
    {"sort", Sort},
    {"unique", Unique},
};

}  // namespace

std::span<const FilterEntry> OrderFilters() { return kFilters; }

}  // namespace tessera::coordinator::jinja
