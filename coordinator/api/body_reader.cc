#include "coordinator/api/body_reader.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "coordinator/api/front_door.h"

namespace tessera::coordinator {

BodyReader::BodyReader(const nlohmann::json& object) : object_(object) {}

const nlohmann::json* BodyReader::Find(const char* name) const {
  auto it = object_.find(name);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

void BodyReader::Fail(const char* name, std::string_view message) {
  if (status_.ok()) status_ = FieldError(name, absl::StrCat(name, ": ", std::string(message)));
}

std::optional<bool> BodyReader::Bool(const char* name) {
  const nlohmann::json* field = Find(name);
  if (field == nullptr) return std::nullopt;
  if (field->is_boolean()) return field->get<bool>();
  Fail(name, absl::StrCat("true or false is expected, not ", field->type_name()));
  return std::nullopt;
}

std::optional<int64_t> BodyReader::Integer(const char* name, int64_t lowest, int64_t highest) {
  const nlohmann::json* field = Find(name);
  if (field == nullptr) return std::nullopt;
  double value = 0;
  if (field->is_number()) value = field->get<double>();
  if (!field->is_number() || value != std::floor(value)) {
    Fail(name, absl::StrCat("an integer is expected, not ",
                            field->is_number() ? "a fraction" : field->type_name()));
    return std::nullopt;
  }
  // Compared as a double first: a number beyond int64 has no integer to read.
  const bool within = value >= static_cast<double>(lowest) && value <= static_cast<double>(highest);
  if (within && field->is_number_integer()) {
    if (field->is_number_unsigned() && field->get<uint64_t>() > static_cast<uint64_t>(highest)) {
      Fail(name, absl::StrCat("must be within ", lowest, " and ", highest));
      return std::nullopt;
    }
    return field->get<int64_t>();
  }
  if (within && std::abs(value) < 9e15) return static_cast<int64_t>(value);
  Fail(name, absl::StrCat("must be within ", lowest, " and ", highest));
  return std::nullopt;
}

std::optional<double> BodyReader::Number(const char* name, double lowest, double highest) {
  const nlohmann::json* field = Find(name);
  if (field == nullptr) return std::nullopt;
  if (!field->is_number()) {
    Fail(name, absl::StrCat("a number is expected, not ", field->type_name()));
    return std::nullopt;
  }
  const double value = field->get<double>();
  if (value >= lowest && value <= highest) return value;
  Fail(name, absl::StrCat("must be within ", lowest, " and ", highest, ", it is ", value));
  return std::nullopt;
}

std::optional<std::string> BodyReader::String(const char* name) {
  const nlohmann::json* field = Find(name);
  if (field == nullptr) return std::nullopt;
  if (field->is_string()) return field->get<std::string>();
  Fail(name, absl::StrCat("a string is expected, not ", field->type_name()));
  return std::nullopt;
}

std::vector<std::string> BodyReader::Strings(const char* name, size_t most) {
  const nlohmann::json* field = Find(name);
  if (field == nullptr) return {};
  if (field->is_string()) return {field->get<std::string>()};
  if (!field->is_array() || field->size() > most) {
    Fail(name, absl::StrCat("a string or an array of at most ", most, " strings is expected"));
    return {};
  }
  std::vector<std::string> all;
  for (const nlohmann::json& item : *field) {
    if (!item.is_string()) {
      Fail(name, absl::StrCat("strings are expected, not ", item.type_name()));
      return {};
    }
    all.push_back(item.get<std::string>());
  }
  return all;
}

std::vector<int32_t> BodyReader::TokenIds(const char* name) {
  const nlohmann::json* field = Find(name);
  if (field == nullptr) return {};
  if (!field->is_array()) {
    Fail(name, absl::StrCat("an array of token ids is expected, not ", field->type_name()));
    return {};
  }
  std::vector<int32_t> ids;
  ids.reserve(field->size());
  for (const nlohmann::json& item : *field) {
    if (!item.is_number_unsigned() || item.get<uint64_t>() > std::numeric_limits<int32_t>::max()) {
      Fail(name, "token ids are integers from 0 up");
      return {};
    }
    ids.push_back(item.get<int32_t>());
  }
  return ids;
}

nlohmann::json BodyReader::Object(const char* name) {
  const nlohmann::json* field = Find(name);
  if (field == nullptr) return nlohmann::json::object();
  if (field->is_object()) return *field;
  Fail(name, absl::StrCat("an object is expected, not ", field->type_name()));
  return nlohmann::json::object();
}

void BodyReader::RefuseUnsupported(const char* name, std::string_view harmless) {
  const nlohmann::json* field = Find(name);
  if (field == nullptr) return;
  if (field->is_boolean() && !field->get<bool>()) return;
  if (field->is_array() && field->empty()) return;
  if (field->is_string() && field->get_ref<const std::string&>().empty()) return;
  if (!harmless.empty() && field->is_string() && field->get<std::string>() == harmless) return;
  Fail(name, "not supported yet");
}

}  // namespace tessera::coordinator
