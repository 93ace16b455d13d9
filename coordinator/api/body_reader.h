// Typed reading of a request body's fields. The first field of a wrong type or range is remembered
// with its name; later reads go on and return nothing, so that a parser reads straight through and
// asks once at its end.
//
// Thread rule: one thread. Borrows the body.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace tessera::coordinator {

class BodyReader {
 public:
  explicit BodyReader(const nlohmann::json& object);

  // Absent and null are no value. Ranges include both ends.
  std::optional<bool> Bool(const char* name);
  std::optional<int64_t> Integer(const char* name, int64_t lowest, int64_t highest);
  std::optional<double> Number(const char* name, double lowest, double highest);
  std::optional<std::string> String(const char* name);
  // A string, or an array of at most `most` strings.
  std::vector<std::string> Strings(const char* name, size_t most);
  // An array of integers >= 0.
  std::vector<int32_t> TokenIds(const char* name);
  // Empty where absent.
  nlohmann::json Object(const char* name);
  const nlohmann::json* Find(const char* name) const;  // null where absent or null

  // "not supported yet" where the field is there and neither false, null, empty nor `harmless`.
  void RefuseUnsupported(const char* name, std::string_view harmless = "");
  void Fail(const char* name, std::string_view message);
  const absl::Status& status() const { return status_; }

 private:
  const nlohmann::json& object_;
  absl::Status status_;
};

}  // namespace tessera::coordinator
