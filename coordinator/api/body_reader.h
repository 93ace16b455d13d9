// Typed reading of a request body's fields, as their table says. The first field of a wrong type or
// range is remembered with its name; later reads go on and return nothing, so that a parser reads
// straight through and asks once at its end. Reading a field that the table lacks is an error too:
// the table is what the OpenAPI document says.
//
// Thread rule: one thread. Borrows body and table.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/api/request_fields.h"

namespace tessera::coordinator {

// Integers from 0 up; `name` is used in errors.
absl::StatusOr<std::vector<int32_t>> TokenIdsOf(const nlohmann::json& value, const char* name);

// The value of an object's member; null where it is absent, or `object` is none.
const nlohmann::ordered_json& Member(const nlohmann::ordered_json& object, const std::string& name);

class BodyReader {
 public:
  BodyReader(const nlohmann::json& object, std::span<const RequestField> fields);

  // Absent and null are no value. Ranges are the table's.
  std::optional<bool> Bool(const char* name);
  std::optional<int64_t> Integer(const char* name);
  std::optional<double> Number(const char* name);
  std::optional<std::string> String(const char* name);
  std::vector<std::string> Strings(const char* name);
  std::vector<int32_t> TokenIds(const char* name);
  // Empty where absent.
  nlohmann::json Object(const char* name);
  const nlohmann::json* Find(const char* name);  // null where absent or null

  // Refuses the table's kRefused fields that ask for something, and checks the types of those
  // without effect.
  void CheckUnread();
  void Fail(std::string_view name, std::string_view message);
  const absl::Status& status() const { return status_; }

  // Fields of the body that the table lacks, at most kMaxIgnoredNames.
  static constexpr size_t kMaxIgnoredNames = 32;
  std::vector<std::string> Ignored() const;

 private:
  const RequestField* Row(const char* name);

  const nlohmann::json& object_;
  const std::span<const RequestField> fields_;
  absl::Status status_;
};

}  // namespace tessera::coordinator
