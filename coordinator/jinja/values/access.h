// Reading parts of values: attributes, items, slices, length, iteration; as Jinja's sandbox does.
//
// Functions of their arguments; lists they make are charged to the runtime.
#pragma once

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/jinja/values/runtime.h"
#include "coordinator/jinja/values/value.h"

namespace tessera::coordinator::jinja {

// value.name: a method or attribute, else the item "name", else undefined.
absl::StatusOr<Value> GetAttribute(Runtime& runtime, const Value& value, std::string_view name);
// value[key]: the item, else for a string the attribute, else undefined.
absl::StatusOr<Value> GetItem(Runtime& runtime, const Value& value, const Value& key);
// value[start:stop:step] of a string, list, tuple or range; each end an integer or none.
absl::StatusOr<Value> GetSlice(Runtime& runtime, const Value& value, const Value& start,
                               const Value& stop, const Value& step);

// len(value).
absl::StatusOr<Int> Length(Runtime& runtime, const Value& value);
bool HasLength(const Value& value);
bool IsIterable(const Value& value);
// list(value): characters, items, keys. A generator is used up.
absl::StatusOr<std::vector<Value>> ToItems(Runtime& runtime, const Value& value);

// A (key, value) tuple for each entry.
absl::StatusOr<std::vector<Value>> DictItems(Runtime& runtime, const Dict& dict);

}  // namespace tessera::coordinator::jinja
