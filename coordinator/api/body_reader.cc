#include "coordinator/api/body_reader.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "coordinator/api/front_door.h"

namespace tessera::coordinator {
namespace {

// Whether a refused field asks for nothing.
bool AsksForNothing(const nlohmann::json& value, std::string_view harmless) {
  if (value.is_null()) return true;
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_array()) return value.empty() || (value.size() == 1 && value[0] == harmless);
  if (!value.is_string()) return false;
  const auto& text = value.get_ref<const std::string&>();
  return text.empty() || (!harmless.empty() && text == harmless);
}

}  // namespace

const nlohmann::ordered_json& Member(const nlohmann::ordered_json& object,
                                     const std::string& name) {
  static const auto* const none = new nlohmann::ordered_json();
  if (!object.is_object()) return *none;
  const auto found = object.find(name);
  return found == object.end() ? *none : *found;
}

absl::StatusOr<std::vector<int32_t>> TokenIdsOf(const nlohmann::json& value, const char* name) {
  if (!value.is_array()) {
    return FieldError(
        name, absl::StrCat(name, ": an array of token ids is expected, not ", value.type_name()));
  }
  std::vector<int32_t> ids;
  ids.reserve(value.size());
  for (const nlohmann::json& item : value) {
    if (!item.is_number_unsigned() || item.get<uint64_t>() > std::numeric_limits<int32_t>::max()) {
      return FieldError(name, absl::StrCat(name, ": token ids are integers from 0 up"));
    }
    ids.push_back(item.get<int32_t>());
  }
  return ids;
}

BodyReader::BodyReader(const nlohmann::json& object, std::span<const RequestField> fields)
    : object_(object), fields_(fields) {}

const RequestField* BodyReader::Row(const char* name) {
  const RequestField* row = FindField(fields_, name);
  if (row == nullptr)
    status_ = absl::InternalError(absl::StrCat("the table of fields lacks ", name));
  return row;
}

const nlohmann::json* BodyReader::Find(const char* name) {
  if (Row(name) == nullptr) return nullptr;
  auto it = object_.find(name);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

void BodyReader::Fail(std::string_view name, std::string_view message) {
  if (status_.ok())
    status_ = FieldError(name, absl::StrCat(std::string(name), ": ", std::string(message)));
}

std::optional<bool> BodyReader::Bool(const char* name) {
  const nlohmann::json* field = Find(name);
  if (field == nullptr) return std::nullopt;
  if (field->is_boolean()) return field->get<bool>();
  Fail(name, absl::StrCat("true or false is expected, not ", field->type_name()));
  return std::nullopt;
}

std::optional<int64_t> BodyReader::Integer(const char* name) {
  const nlohmann::json* field = Find(name);
  if (field == nullptr) return std::nullopt;
  const auto [lowest, highest] = std::pair(Row(name)->lowest, Row(name)->highest);
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

std::optional<double> BodyReader::Number(const char* name) {
  const nlohmann::json* field = Find(name);
  if (field == nullptr) return std::nullopt;
  if (!field->is_number()) {
    Fail(name, absl::StrCat("a number is expected, not ", field->type_name()));
    return std::nullopt;
  }
  const double value = field->get<double>();
  const RequestField& row = *Row(name);
  if (row.above_min && value == row.min) {
    Fail(name, absl::StrCat("must be above ", row.min, " and at most ", row.max));
    return std::nullopt;
  }
  if (value >= row.min && value <= row.max) return value;
  Fail(name, absl::StrCat("must be within ", row.min, " and ", row.max, ", it is ", value));
  return std::nullopt;
}

std::optional<std::string> BodyReader::String(const char* name) {
  const nlohmann::json* field = Find(name);
  if (field == nullptr) return std::nullopt;
  if (field->is_string()) return field->get<std::string>();
  Fail(name, absl::StrCat("a string is expected, not ", field->type_name()));
  return std::nullopt;
}

std::vector<std::string> BodyReader::Strings(const char* name) {
  const nlohmann::json* field = Find(name);
  if (field == nullptr) return {};
  const auto most = static_cast<size_t>(Row(name)->highest);
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
  absl::StatusOr<std::vector<int32_t>> ids = TokenIdsOf(*field, name);
  if (ids.ok()) return *std::move(ids);
  if (status_.ok()) status_ = ids.status();
  return {};
}

nlohmann::json BodyReader::Object(const char* name) {
  const nlohmann::json* field = Find(name);
  if (field == nullptr) return nlohmann::json::object();
  if (field->is_object()) return *field;
  Fail(name, absl::StrCat("an object is expected, not ", field->type_name()));
  return nlohmann::json::object();
}

void BodyReader::CheckUnread() {
  for (const RequestField& row : fields_) {
    const auto found = object_.find(row.name);
    if (found == object_.end()) continue;
    if (row.kind == FieldKind::kRefused && !AsksForNothing(*found, row.harmless))
      Fail(row.name, row.reason);
    if (!row.no_effect) continue;
    const std::string name(row.name);
    if (row.kind == FieldKind::kString) String(name.c_str());
    if (row.kind == FieldKind::kBool) Bool(name.c_str());
    if (row.kind == FieldKind::kObject) Object(name.c_str());
  }
}

std::vector<std::string> BodyReader::Ignored() const {
  std::vector<std::string> names;
  for (const auto& [name, value] : object_.items()) {
    if (FindField(fields_, name) != nullptr) continue;
    if (names.size() == kMaxIgnoredNames) break;
    names.push_back(name);
  }
  return names;
}

}  // namespace tessera::coordinator
