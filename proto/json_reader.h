// Reading JSON files of unknown origin: parsing within limits, and typed members whose errors name
// file, key and reason.
//
// Thread rule: functions are pure; a JsonReader belongs to one thread. A JsonReader borrows the
// document. Its first failure sticks: members may be read one after the other and status() asked
// once, values read after a failure are defaults.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tessera {

inline constexpr int64_t kMaxJsonBytes = int64_t{4} << 20;
inline constexpr int kMaxJsonDepth = 64;

// The document's top-level object. InvalidArgument, naming `file`, for more than max_bytes, nesting
// beyond kMaxJsonDepth, text that is not JSON or not UTF-8, and a top level that is no object.
absl::StatusOr<nlohmann::json> ParseJsonObject(std::string_view text, std::string_view file,
                                               int64_t max_bytes = kMaxJsonBytes);

class JsonReader {
 public:
  // `place` stands before keys in errors: "" at the top level, "rope_scaling." inside of it.
  JsonReader(const nlohmann::json& object, std::string_view file, std::string_view place = "");

  bool HasKey(const char* key) const;  // null counts
  // Present and not null.
  bool Has(const char* key) const;
  const nlohmann::json& At(const char* key) const;  // requires Has

  // Required members; both bounds are allowed values.
  int64_t Integer(const char* key, int64_t min, int64_t max);
  double Number(const char* key, double min, double max);
  // Absent or null members give the default.
  int64_t IntegerOr(const char* key, int64_t default_value, int64_t min, int64_t max);
  double NumberOr(const char* key, double default_value, double min, double max);
  bool BoolOr(const char* key, bool default_value);
  std::string StringOr(const char* key, std::string_view default_value);
  // An integer or a list of them (token ids); empty where absent.
  std::vector<int64_t> Integers(const char* key, int64_t min, int64_t max);
  std::vector<std::string> Strings(const char* key);
  std::vector<double> Numbers(const char* key, double min, double max);  // empty where absent

  // A reader of the object at `key`, which must be one; failures are to be adopted.
  JsonReader Nested(const char* key) const;
  // Says that what a member holds does not matter, as another one decides.
  void Pass(const char* key) const { asked_.emplace(key); }
  // Members that none of the functions above was asked for, in the order of their names.
  std::vector<std::string> Unread() const;

  // Records "<file>: <place><key> <reason>" unless something failed before.
  void Fail(std::string_view key, std::string_view reason);
  // Takes over the failure of a reader of a nested object.
  void Adopt(const absl::Status& status) { status_.Update(status); }
  bool ok() const { return status_.ok(); }
  const absl::Status& status() const { return status_; }
  const std::string& file() const { return file_; }
  const std::string& place() const { return place_; }

 private:
  bool CheckInteger(const char* key, const nlohmann::json& value, int64_t min, int64_t max);

  const nlohmann::json& object_;
  std::string file_;
  std::string place_;
  mutable std::set<std::string, std::less<>> asked_;
  absl::Status status_;
};

}  // namespace tessera
