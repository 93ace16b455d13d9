#include "coordinator/jinja/values/value.h"

#include <algorithm>
#include <cmath>

#include "absl/hash/hash.h"
#include "coordinator/jinja/values/runtime.h"

namespace tessera::coordinator::jinja {

Int Range::Length() const {
  if (step > 0) {
    return start < stop ? (stop - start - 1) / step + 1 : 0;
  }
  return start > stop ? (start - stop - 1) / -step + 1 : 0;
}

Value Value::Undefined(std::string message) {
  return {Kind::kUndefined, std::make_shared<const std::string>(std::move(message))};
}

Value Value::String(Text text) {
  return {Kind::kString, std::make_shared<const Text>(std::move(text))};
}

Value Value::FromRange(const Range& range) {
  return {Kind::kRange, std::make_shared<const Range>(range)};
}

Value Value::DictView(ViewKind kind, std::shared_ptr<const Dict> dict) {
  return {Kind::kView, std::make_shared<const View>(View{kind, std::move(dict)})};
}

Int Value::int_value() const {
  return kind_ == Kind::kBool ? static_cast<Int>(bool_value()) : std::get<Int>(data_);
}

double Value::float_value() const {
  return kind_ == Kind::kFloat ? std::get<double>(data_) : static_cast<double>(int_value());
}

int Value::depth() const {
  switch (kind_) {
    case Kind::kList:
    case Kind::kTuple: return sequence().depth;
    case Kind::kDict: return dict().depth();
    case Kind::kView: return view().dict->depth() + 1;
    default: return 0;
  }
}

bool Value::Truthy() const {
  switch (kind_) {
    case Kind::kUndefined:
    case Kind::kNone: return false;
    case Kind::kBool: return bool_value();
    case Kind::kInt: return int_value() != 0;
    case Kind::kFloat: return float_value() != 0;
    case Kind::kString: return !text().empty();
    case Kind::kList:
    case Kind::kTuple: return !items().empty();
    case Kind::kDict: return dict().size() != 0;
    case Kind::kRange: return range().Length() != 0;
    case Kind::kView: return view().dict->size() != 0;
    case Kind::kObject: return object()->Truthy();
  }
  return false;
}

std::string_view Value::TypeName() const {
  switch (kind_) {
    case Kind::kUndefined: return "Undefined";
    case Kind::kNone: return "NoneType";
    case Kind::kBool: return "bool";
    case Kind::kInt: return "int";
    case Kind::kFloat: return "float";
    case Kind::kString: return "str";
    case Kind::kList: return "list";
    case Kind::kTuple: return "tuple";
    case Kind::kDict: return "dict";
    case Kind::kRange: return "range";
    case Kind::kView: {
      constexpr std::string_view kNames[] = {"dict_keys", "dict_values", "dict_items"};
      return kNames[static_cast<int>(view().kind)];
    }
    case Kind::kObject: return object()->TypeName();
  }
  return "object";
}

bool Value::SameAs(const Value& other) const {
  if (kind_ != other.kind_) {
    return false;
  }
  return data_ == other.data_;
}

bool IsHashable(const Value& key) {
  switch (key.kind()) {
    case Kind::kList:
    case Kind::kDict:
    case Kind::kView: return false;
    case Kind::kTuple: return std::all_of(key.items().begin(), key.items().end(), IsHashable);
    default: return true;
  }
}

size_t HashKey(const Value& key) {
  switch (key.kind()) {
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat: {
      // Equal numbers hash alike: integers beyond 2^53 are rounded, floats are taken as they are.
      const double number = key.float_value();
      return absl::HashOf(number == 0 ? 0.0 : number);
    }
    case Kind::kString: return absl::HashOf(std::string_view(key.bytes()));
    case Kind::kTuple: {
      size_t hash = key.items().size();
      for (const Value& item : key.items()) {
        hash = absl::HashOf(hash, HashKey(item));
      }
      return hash;
    }
    case Kind::kObject: return absl::HashOf(key.object());
    case Kind::kRange: return absl::HashOf(static_cast<int64_t>(key.range().Length()));
    default: return static_cast<size_t>(key.kind());
  }
}

namespace {

bool NumbersEqual(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) {
    return a.int_value() == b.int_value();
  }
  if (a.is_float() && b.is_float()) {
    return a.float_value() == b.float_value();
  }
  const double real = a.is_float() ? a.float_value() : b.float_value();
  const Int whole = a.is_float() ? b.int_value() : a.int_value();
  return std::fabs(real) < 1e38 && std::trunc(real) == real && static_cast<Int>(real) == whole;
}

bool RangesEqual(const Range& a, const Range& b) {
  const Int length = a.Length();
  return length == b.Length() &&
         (length == 0 || (a.start == b.start && (length == 1 || a.step == b.step)));
}

}  // namespace

bool KeysEqual(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    return NumbersEqual(a, b);
  }
  if (a.kind() != b.kind()) {
    return false;
  }
  switch (a.kind()) {
    case Kind::kString: return a.bytes() == b.bytes();
    case Kind::kTuple:
      return std::equal(a.items().begin(), a.items().end(), b.items().begin(), b.items().end(),
                        KeysEqual);
    case Kind::kRange: return RangesEqual(a.range(), b.range());
    case Kind::kObject: return a.object() == b.object();
    default: return true;  // undefined and none
  }
}

void Dict::Set(const Value& key, Value value) {
  depth_ = std::max({depth_, key.depth() + 1, value.depth() + 1});
  if (const Value* found = Find(key)) {
    // The entry is ours; Find is const only for its other callers.
    *const_cast<Value*>(found) = std::move(value);
    return;
  }
  entries_.emplace_back(key, std::move(value));
  if (entries_.size() == kIndexedSize) {
    for (size_t i = 0; i < entries_.size(); ++i) {
      index_.emplace(entries_[i].first, i);
    }
  } else if (entries_.size() > kIndexedSize) {
    index_.emplace(key, entries_.size() - 1);
  }
}

const Value* Dict::Find(const Value& key) const {
  if (entries_.size() >= kIndexedSize) {
    const auto found = index_.find(key);
    return found == index_.end() ? nullptr : &entries_[found->second].second;
  }
  for (const Entry& entry : entries_) {
    if (KeysEqual(entry.first, key)) {
      return &entry.second;
    }
  }
  return nullptr;
}

const Value* Dict::Find(std::string_view key) const {
  if (entries_.size() >= kIndexedSize) {
    return Find(Value::Literal(key));
  }
  for (const Entry& entry : entries_) {
    if (entry.first.is_string() && entry.first.bytes() == key) {
      return &entry.second;
    }
  }
  return nullptr;
}

}  // namespace tessera::coordinator::jinja
