// A value of the template language: Python's None, bool, int, float, str, list, tuple, dict, range
// and dict views as Jinja templates see them, Jinja's undefined, and objects with state
// (namespaces, loops, macros, generators).
//
// Values are immutable and shared: copying one is cheap. Strings, lists and dicts are reference
// counted; Object pointers are borrowed from the Runtime that made them (runtime.h), so that
// cycles through a namespace cannot leak, and a Value must not outlive its Runtime. Containers are
// made by the Runtime, which charges and bounds them. Constants of a parsed template hold no
// Objects and may be read from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "coordinator/jinja/values/text.h"

namespace tessera::coordinator::jinja {

// Wide enough for every integer that JSON carries; Python's have no limit, here overflow is an
// error.
__extension__ using Int = __int128;

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kRange,
  kView,
  kObject,
};

class Value;
class Dict;
class Object;

struct Sequence {
  std::vector<Value> items;
  int depth = 1;  // 1 + the deepest item's
};

struct Range {
  Int start = 0;
  Int stop = 0;
  Int step = 1;  // never 0
  Int Length() const;
};

enum class ViewKind { kKeys, kValues, kItems };

struct View {
  ViewKind kind;
  std::shared_ptr<const Dict> dict;
};

class Value {
 public:
  Value() : Value(Kind::kNone, std::monostate()) {}

  // `message` is what using it reports.
  static Value Undefined(std::string message);
  static Value None() { return Value(); }
  static Value Bool(bool value) { return Value(Kind::kBool, value); }
  static Value Integer(Int value) { return Value(Kind::kInt, value); }
  static Value Float(double value) { return Value(Kind::kFloat, value); }
  static Value String(Text text);
  // A string of the template's own.
  static Value Literal(std::string_view text) { return String(Text(std::string(text), true)); }
  static Value List(std::shared_ptr<const Sequence> items) {
    return {Kind::kList, std::move(items)};
  }
  static Value Tuple(std::shared_ptr<const Sequence> items) {
    return {Kind::kTuple, std::move(items)};
  }
  static Value Dictionary(std::shared_ptr<const Dict> dict) {
    return {Kind::kDict, std::move(dict)};
  }
  static Value FromRange(const Range& range);
  static Value DictView(ViewKind kind, std::shared_ptr<const Dict> dict);
  static Value FromObject(Object* object) { return {Kind::kObject, object}; }

  Kind kind() const { return kind_; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_none() const { return kind_ == Kind::kNone; }
  bool is_bool() const { return kind_ == Kind::kBool; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_float() const { return kind_ == Kind::kFloat; }
  bool is_integral() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }
  bool is_number() const { return is_integral() || kind_ == Kind::kFloat; }
  bool is_dict() const { return kind_ == Kind::kDict; }
  bool is_list() const { return kind_ == Kind::kList; }
  bool is_tuple() const { return kind_ == Kind::kTuple; }
  bool is_sequence() const { return is_list() || is_tuple(); }
  bool is_object() const { return kind_ == Kind::kObject; }

  // Each requires the kind it names.
  const std::string& undefined_message() const { return *std::get<StringPtr>(data_); }
  bool bool_value() const { return std::get<bool>(data_); }
  Int int_value() const;       // of an int or a bool
  double float_value() const;  // of any number
  const Text& text() const { return *std::get<TextPtr>(data_); }
  const std::string& bytes() const { return text().bytes(); }
  const Sequence& sequence() const { return *std::get<SequencePtr>(data_); }
  const std::vector<Value>& items() const { return sequence().items; }
  const std::shared_ptr<const Dict>& dict_ptr() const { return std::get<DictPtr>(data_); }
  const Dict& dict() const { return *dict_ptr(); }
  const Range& range() const { return *std::get<RangePtr>(data_); }
  const View& view() const { return *std::get<ViewPtr>(data_); }
  Object* object() const { return std::get<Object*>(data_); }

  // How deeply containers nest below and with this one; 0 for scalars.
  int depth() const;
  // Python's bool(value).
  bool Truthy() const;
  // Python's name of the type, as messages give it: "str", "dict", ...
  std::string_view TypeName() const;
  // Python's `is`: the same object, or equal singletons and numbers.
  bool SameAs(const Value& other) const;

 private:
  using StringPtr = std::shared_ptr<const std::string>;
  using TextPtr = std::shared_ptr<const Text>;
  using SequencePtr = std::shared_ptr<const Sequence>;
  using DictPtr = std::shared_ptr<const Dict>;
  using RangePtr = std::shared_ptr<const Range>;
  using ViewPtr = std::shared_ptr<const View>;
  using Data = std::variant<std::monostate, bool, Int, double, StringPtr, TextPtr, SequencePtr,
                            DictPtr, RangePtr, ViewPtr, Object*>;

  Value(Kind kind, Data data) : data_(std::move(data)), kind_(kind) {}

  Data data_;
  Kind kind_;
};

// Hash and equality of dictionary keys: numbers compare across int, float and bool, strings by
// bytes. Requires IsHashable(key).
bool IsHashable(const Value& key);
size_t HashKey(const Value& key);
bool KeysEqual(const Value& a, const Value& b);

// An insertion-ordered dictionary. Built by one owner, then shared as const.
class Dict {
 public:
  using Entry = std::pair<Value, Value>;

  const std::vector<Entry>& entries() const { return entries_; }
  size_t size() const { return entries_.size(); }
  int depth() const { return depth_; }

  // Requires IsHashable(key). An equal key keeps its place and its spelling.
  void Set(const Value& key, Value value);
  // Null where there is none.
  const Value* Find(const Value& key) const;
  const Value* Find(std::string_view key) const;

 private:
  struct Hash {
    size_t operator()(const Value& key) const { return HashKey(key); }
  };
  struct Equal {
    bool operator()(const Value& a, const Value& b) const { return KeysEqual(a, b); }
  };
  // Below this size a scan is faster than the index.
  static constexpr size_t kIndexedSize = 12;

  std::vector<Entry> entries_;
  absl::flat_hash_map<Value, size_t, Hash, Equal> index_;  // empty while small
  int depth_ = 1;
};

}  // namespace tessera::coordinator::jinja
