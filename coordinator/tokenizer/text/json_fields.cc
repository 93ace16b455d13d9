#include "coordinator/tokenizer/text/json_fields.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "coordinator/tokenizer/text/utf8.h"
#include "third_party/absl/str_cat.h"

namespace tessera::coordinator {
namespace {

constexpr int kMaxDepth = 64;

absl::Status WrongType(std::string_view where, const char* key, std::string_view expected,
                       const nlohmann::json& value) {
  return absl::InvalidArgumentError(
      StrCat(where, ": \"", key, "\" must be ", expected, ", not ", value.type_name()));
}

}  // namespace

// Counts strings, and brackets and commas outside of them, so that the parser never sees a text
// that nests without end or that grows many times over as values.
absl::Status CheckJsonShape(std::string_view text, std::string_view name,
                            const JsonLimits& limits) {
  int depth = 0;
  int64_t containers = 0;
  int64_t commas = 0;
  int64_t strings = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      ++strings;
      for (++i; i < text.size() && text[i] != '"'; ++i) {
        if (text[i] == '\\') ++i;
      }
    } else if (c == '{' || c == '[') {
      if (++depth > kMaxDepth) {
        return absl::InvalidArgumentError(
            StrCat(name, ": nested deeper than ", kMaxDepth, " levels"));
      }
      ++containers;
    } else if (c == '}' || c == ']') {
      --depth;
    } else if (c == ',') {
      ++commas;
    }
  }
  if (containers > limits.containers) {
    return absl::InvalidArgumentError(StrCat(
        name, ": ", containers, " objects and arrays; at most ", limits.containers, " are read"));
  }
  if (strings > limits.strings) {
    return absl::InvalidArgumentError(StrCat(name, ": ", strings, " strings and member names; at ",
                                             "most ", limits.strings, " are read"));
  }
  if (containers + commas > limits.values) {
    return absl::InvalidArgumentError(
        StrCat(name, ": more than ", limits.values, " values; so many are not read"));
  }
  return absl::OkStatus();
}

absl::Status NotJson(std::string_view name, std::string_view what) {
  // The library names itself in brackets, which says nothing to a client, and quotes the text it
  // stopped at; invalid UTF-8 there must not reach a log or a client.
  const size_t name_end = what.find("] ");
  if (what.starts_with('[') && name_end != std::string_view::npos) what.remove_prefix(name_end + 2);
  std::string message;
  DecodeUtf8(what, InvalidBytes::kOnePerSubpart, true, &message);
  return absl::InvalidArgumentError(StrCat(name, ": ", message));
}

absl::StatusOr<nlohmann::json> ParseJson(std::string_view text, std::string_view name,
                                         const JsonLimits& limits) {
  if (absl::Status shape = CheckJsonShape(text, name, limits); !shape.ok()) return shape;
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    return NotJson(name, error.what());
  }
}

absl::StatusOr<nlohmann::json> ReadJsonFile(const std::filesystem::path& path, size_t max_bytes) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  std::ifstream file(path, std::ios::binary);
  if (error || !file) {
    return absl::NotFoundError(StrCat(path.string(), ": cannot be read"));
  }
  if (size > max_bytes) {
    return absl::InvalidArgumentError(
        StrCat(path.string(), ": ", size, " bytes; at most ", max_bytes, " are read"));
  }
  std::string text(size, '\0');
  file.read(text.data(), static_cast<std::streamsize>(size));
  text.resize(static_cast<size_t>(file.gcount()));
  return ParseJson(text, path.string());
}

const nlohmann::json& FieldOrNull(const nlohmann::json& object, const char* key) {
  static const auto* const null = new nlohmann::json();
  if (!object.is_object()) return *null;
  const auto it = object.find(key);
  return it == object.end() ? *null : *it;
}

absl::StatusOr<bool> BoolField(const nlohmann::json& object, std::string_view where,
                               const char* key, bool default_value) {
  const nlohmann::json& value = FieldOrNull(object, key);
  if (value.is_null()) return default_value;
  if (!value.is_boolean()) return WrongType(where, key, "true or false", value);
  return value.get<bool>();
}

absl::StatusOr<std::string> StringField(const nlohmann::json& object, std::string_view where,
                                        const char* key, std::string_view default_value) {
  const nlohmann::json& value = FieldOrNull(object, key);
  if (value.is_null()) return std::string(default_value);
  if (!value.is_string()) return WrongType(where, key, "a string", value);
  return value.get<std::string>();
}

absl::StatusOr<std::string> RequiredString(const nlohmann::json& object, std::string_view where,
                                           const char* key) {
  const nlohmann::json& value = FieldOrNull(object, key);
  if (!value.is_string()) return WrongType(where, key, "a string", value);
  return value.get<std::string>();
}

absl::StatusOr<int64_t> RequiredInteger(const nlohmann::json& object, std::string_view where,
                                        const char* key, int64_t min, int64_t max) {
  const nlohmann::json& value = FieldOrNull(object, key);
  if (!value.is_number_integer()) return WrongType(where, key, "an integer", value);
  const bool huge =
      value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX);
  if (huge || value.get<int64_t>() < min || value.get<int64_t>() > max) {
    return absl::InvalidArgumentError(
        StrCat(where, ": \"", key, "\" is ", value.dump(), "; allowed is ", min, " to ", max));
  }
  return value.get<int64_t>();
}

absl::Status OnlyFields(const nlohmann::json& object, std::string_view where,
                        std::initializer_list<std::string_view> known) {
  if (!object.is_object()) {
    return absl::InvalidArgumentError(
        StrCat(where, " must be an object, not ", object.type_name()));
  }
  for (const auto& item : object.items()) {
    if (std::find(known.begin(), known.end(), item.key()) == known.end()) {
      return absl::InvalidArgumentError(StrCat(where, ": \"", item.key(), "\" is not supported"));
    }
  }
  return absl::OkStatus();
}

}  // namespace tessera::coordinator
