// Jinja's filters: value | name(arguments).
//
// Fixed tables, one per file; FindFilter serves the parser, and map() while rendering. Filters
// charge what they make to the runtime and fail as Python's do. Those of jinja2 that no published
// chat template uses are missing: a template with one of them is refused by the filter's name.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/jinja/values/runtime.h"
#include "coordinator/jinja/values/value.h"

namespace tessera::coordinator::jinja {

using Filter = absl::StatusOr<Value> (*)(Runtime& runtime, const Value& value,
                                         const Arguments& arguments);
struct FilterEntry {
  std::string_view name;
  Filter filter;
};

// Null where there is no such filter.
Filter FindFilter(std::string_view name);

// The tables that FindFilter searches.
std::span<const FilterEntry> TextFilters();      // filters_text.cc
std::span<const FilterEntry> SequenceFilters();  // filters_sequence.cc
std::span<const FilterEntry> OrderFilters();     // filters_order.cc
std::span<const FilterEntry> NumberFilters();    // filters_number.cc

// "a.b.0" as the keys a, b and 0: how filters name an attribute of each item. None gives no keys;
// any other value is the one key.
using AttributePath = std::vector<Value>;
absl::StatusOr<AttributePath> ParseAttributePath(const Value& attribute);
// Follows the keys; an undefined step becomes `fallback` where one is given.
absl::StatusOr<Value> FollowPath(Runtime& runtime, Value value, const AttributePath& path,
                                 const Value* fallback = nullptr);

}  // namespace tessera::coordinator::jinja
