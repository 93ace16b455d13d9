#include "coordinator/jinja/filters.h"

#include <algorithm>
#include <string>

#include "coordinator/jinja/values/access.h"
#include "coordinator/jinja/values/status.h"
#include "coordinator/jinja/values/string_ops.h"

namespace tessera::coordinator::jinja {
namespace {

Value PathPart(std::string_view part) {
  const bool number =
      !part.empty() && part.size() < 19 &&
      std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!number) {
    return Value::Literal(part);
  }
  Int index = 0;
  for (const char digit : part) {
    index = index * 10 + (digit - '0');
  }
  return Value::Integer(index);
}

}  // namespace

Filter FindFilter(std::string_view name) {
  for (const auto table : {TextFilters(), SequenceFilters(), OrderFilters(), NumberFilters()}) {
    for (const FilterEntry& entry : table) {
      if (entry.name == name) {
        return entry.filter;
      }
    }
  }
  return nullptr;
}

absl::StatusOr<AttributePath> ParseAttributePath(const Value& attribute) {
  AttributePath path;
  if (attribute.is_none()) {
    return path;
  }
  if (!attribute.is_string()) {
    path.push_back(attribute);
    return path;
  }
  const std::string_view name = attribute.bytes();
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    path.push_back(PathPart(name.substr(begin, end - begin)));
    begin = end + 1;
  }
  return path;
}

absl::StatusOr<Value> FollowPath(Runtime& runtime, Value value, const AttributePath& path,
                                 const Value* fallback) {
  for (const Value& key : path) {
    JINJA_RETURN_IF_ERROR(runtime.Step());
    JINJA_ASSIGN_OR_RETURN(value, GetItem(runtime, value, key));
    if (value.is_undefined() && fallback != nullptr) {
      value = *fallback;
    }
  }
  return value;
}

}  // namespace tessera::coordinator::jinja
