// Typed reading of members of JSON objects in model files. Every error is InvalidArgument and names
// the place (`where`, such as "tokenizer.json: pre_tokenizer"), the key and what was expected.
// Pure functions, thread-safe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tessera::coordinator {

// Reads and parses a file. NotFound where there is none; InvalidArgument where it is larger than
// max_bytes, nested deeper than 64, not UTF-8 or not JSON.
absl::StatusOr<nlohmann::json> ReadJsonFile(const std::filesystem::path& path, size_t max_bytes);

// What a text may hold. In memory a value takes 16 bytes and more however few it was written with,
// a string or a member's name 64 and more.
struct JsonLimits {
  int64_t values = std::numeric_limits<int64_t>::max();
  int64_t containers = std::numeric_limits<int64_t>::max();  // objects and arrays among them
  int64_t strings = std::numeric_limits<int64_t>::max();     // members' names too
};

// The same for text that is already here; `name` is used in errors.
absl::StatusOr<nlohmann::json> ParseJson(std::string_view text, std::string_view name,
                                         const JsonLimits& limits = {});

// What ParseJson asks of a text before it is read: its limits, and that it nests at most 64 deep.
absl::Status CheckJsonShape(std::string_view text, std::string_view name, const JsonLimits& limits);
// What it answers for a text that is none; `what` is nlohmann's error.
absl::Status NotJson(std::string_view name, std::string_view what);

// A member or, where it is absent or null, the default.
absl::StatusOr<bool> BoolField(const nlohmann::json& object, std::string_view where,
                               const char* key, bool default_value);
absl::StatusOr<std::string> StringField(const nlohmann::json& object, std::string_view where,
                                        const char* key, std::string_view default_value);
// Members that must be there.
absl::StatusOr<std::string> RequiredString(const nlohmann::json& object, std::string_view where,
                                           const char* key);
// `min` and `max` are both allowed.
absl::StatusOr<int64_t> RequiredInteger(const nlohmann::json& object, std::string_view where,
                                        const char* key, int64_t min, int64_t max);

// Fails on a member that is not in `known`: a setting we do not understand may change ids.
absl::Status OnlyFields(const nlohmann::json& object, std::string_view where,
                        std::initializer_list<std::string_view> known);

// The member, or null where it is absent.
const nlohmann::json& FieldOrNull(const nlohmann::json& object, const char* key);

}  // namespace tessera::coordinator
