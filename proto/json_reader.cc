#include "proto/json_reader.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "third_party/absl/str_cat.h"

namespace tessera {
namespace {

using nlohmann::json;

// Deepest nesting of arrays and objects, counted without building anything.
int NestingDepth(std::string_view text) {
  int depth = 0, deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return deepest;
}

// What stands there, short enough for an error line.
std::string Shown(const json& value) {
  if (value.is_structured()) return value.type_name();
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

}  // namespace

absl::StatusOr<json> ParseJsonObject(std::string_view text, std::string_view file,
                                     int64_t max_bytes) {
  if (static_cast<int64_t>(text.size()) > max_bytes) {
    return absl::InvalidArgumentError(
        StrCat(file, ": ", text.size(), " bytes; at most ", max_bytes, " are read"));
  }
  const int depth = NestingDepth(text);
  if (depth > kMaxJsonDepth) {
    return absl::InvalidArgumentError(
        StrCat(file, ": nested ", depth, " deep; at most ", kMaxJsonDepth, " is read"));
  }
  json document = json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (document.is_discarded()) {
    return absl::InvalidArgumentError(StrCat(file, ": not valid JSON (or cut off)"));
  }
  if (!document.is_object()) {
    return absl::InvalidArgumentError(
        StrCat(file, ": the top level must be an object, not ", document.type_name()));
  }
  return document;
}

JsonReader::JsonReader(const json& object, std::string_view file, std::string_view place)
    : object_(object), file_(file), place_(place) {}

bool JsonReader::HasKey(const char* key) const {
  asked_.emplace(key);
  return object_.contains(key);
}

bool JsonReader::Has(const char* key) const {
  asked_.emplace(key);
  const auto found = object_.find(key);
  return found != object_.end() && !found->is_null();
}

const json& JsonReader::At(const char* key) const { return *object_.find(key); }

JsonReader JsonReader::Nested(const char* key) const {
  return JsonReader(At(key), file_, StrCat(place_, key, "."));
}

std::vector<std::string> JsonReader::Unread() const {
  std::vector<std::string> unread;
  for (const auto& [name, unused] : object_.items()) {
    if (!asked_.contains(name)) unread.push_back(name);
  }
  return unread;
}

void JsonReader::Fail(std::string_view key, std::string_view reason) {
  if (!status_.ok()) return;
  status_ = absl::InvalidArgumentError(StrCat(file_, ": ", place_, key, " ", reason));
}

bool JsonReader::CheckInteger(const char* key, const json& value, int64_t min, int64_t max) {
  // A number above 2^63 would wrap on conversion.
  const bool fits =
      value.is_number_integer() &&
      (!value.is_number_unsigned() || value.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX));
  if (fits && value.get<int64_t>() >= min && value.get<int64_t>() <= max) return true;
  Fail(key, StrCat("must be an integer from ", min, " to ", max, ", not ", Shown(value)));
  return false;
}

int64_t JsonReader::Integer(const char* key, int64_t min, int64_t max) {
  if (!Has(key)) {
    Fail(key, "is missing");
    return min;
  }
  return IntegerOr(key, min, min, max);
}

int64_t JsonReader::IntegerOr(const char* key, int64_t default_value, int64_t min, int64_t max) {
  if (!Has(key) || !CheckInteger(key, At(key), min, max)) return default_value;
  return At(key).get<int64_t>();
}

double JsonReader::Number(const char* key, double min, double max) {
  if (!Has(key)) {
    Fail(key, "is missing");
    return min;
  }
  return NumberOr(key, min, min, max);
}

double JsonReader::NumberOr(const char* key, double default_value, double min, double max) {
  if (!Has(key)) return default_value;
  const json& value = At(key);
  if (value.is_number()) {
    const double number = value.get<double>();
    if (number >= min && number <= max) return number;
  }
  Fail(key, StrCat("must be a number from ", min, " to ", max, ", not ", Shown(value)));
  return default_value;
}

bool JsonReader::BoolOr(const char* key, bool default_value) {
  if (!Has(key)) return default_value;
  if (At(key).is_boolean()) return At(key).get<bool>();
  Fail(key, StrCat("must be true or false, not ", Shown(At(key))));
  return default_value;
}

std::string JsonReader::StringOr(const char* key, std::string_view default_value) {
  if (!Has(key)) return std::string(default_value);
  if (At(key).is_string()) return At(key).get<std::string>();
  Fail(key, StrCat("must be a string, not ", Shown(At(key))));
  return std::string(default_value);
}

std::vector<int64_t> JsonReader::Integers(const char* key, int64_t min, int64_t max) {
  std::vector<int64_t> values;
  if (!Has(key)) return values;
  const json& member = At(key);
  if (!member.is_array()) {
    if (CheckInteger(key, member, min, max)) values.push_back(member.get<int64_t>());
    return values;
  }
  for (const json& value : member) {
    if (!CheckInteger(key, value, min, max)) break;
    values.push_back(value.get<int64_t>());
  }
  return values;
}

std::vector<double> JsonReader::Numbers(const char* key, double min, double max) {
  std::vector<double> values;
  if (!Has(key)) return values;
  const json& member = At(key);
  if (!member.is_array()) Fail(key, StrCat("must be a list of numbers, not ", Shown(member)));
  for (const json& value : member) {
    const bool fits = value.is_number() && value.get<double>() >= min && value.get<double>() <= max;
    if (!fits) {
      Fail(key, StrCat("must hold numbers from ", min, " to ", max, ", not ", Shown(value)));
      break;
    }
    values.push_back(value.get<double>());
  }
  return values;
}

std::vector<std::string> JsonReader::Strings(const char* key) {
  std::vector<std::string> values;
  if (!Has(key)) return values;
  const json& member = At(key);
  if (!member.is_array()) Fail(key, StrCat("must be a list of strings, not ", Shown(member)));
  for (const json& value : member) {
    if (!value.is_string()) {
      Fail(key, StrCat("must be a list of strings, but holds ", Shown(value)));
      break;
    }
    values.push_back(value.get<std::string>());
  }
  return values;
}

}  // namespace tessera
