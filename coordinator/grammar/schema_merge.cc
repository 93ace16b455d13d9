#include "coordinator/grammar/schema_merge.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/tokenizer/text/regex.h"

namespace tessera::coordinator {
namespace {

using Schema = nlohmann::ordered_json;

constexpr int kMaxFlattenDepth = 32;

constexpr std::string_view kKeywords[] = {"$dynamicRef",
                                          "$recursiveRef",
                                          "$ref",
                                          "additionalItems",
                                          "additionalProperties",
                                          "allOf",
                                          "anyOf",
                                          "const",
                                          "contains",
                                          "dependencies",
                                          "dependentRequired",
                                          "dependentSchemas",
                                          "else",
                                          "enum",
                                          "exclusiveMaximum",
                                          "exclusiveMinimum",
                                          "format",
                                          "if",
                                          "items",
                                          "maxContains",
                                          "maxItems",
                                          "maxLength",
                                          "maxProperties",
                                          "maximum",
                                          "minContains",
                                          "minItems",
                                          "minLength",
                                          "minProperties",
                                          "minimum",
                                          "multipleOf",
                                          "not",
                                          "oneOf",
                                          "pattern",
                                          "patternProperties",
                                          "prefixItems",
                                          "properties",
                                          "propertyNames",
                                          "required",
                                          "then",
                                          "type",
                                          "unevaluatedItems",
                                          "unevaluatedProperties",
                                          "uniqueItems"};

absl::Status Invalid(std::string_view keyword, std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(std::string(keyword), " ", std::string(what)));
}

Schema BothOf(const Schema& a, const Schema& b) {
  if (a == b) return a;
  return Schema{{"allOf", Schema::array({a, b})}};
}

// "%41" and "~1" of a JSON pointer's token.
std::optional<std::string> Decoded(std::string_view token) {
  std::string decoded;
  for (size_t i = 0; i < token.size(); ++i) {
    if (token[i] != '%') {
      decoded.push_back(token[i]);
      continue;
    }
    int byte = 0;
    if (i + 2 >= token.size()) return std::nullopt;
    const char* const end = token.data() + i + 3;
    if (std::from_chars(token.data() + i + 1, end, byte, 16).ptr != end) return std::nullopt;
    decoded.push_back(static_cast<char>(byte));
    i += 2;
  }
  for (const auto& [escape, c] : {std::pair("~1", '/'), std::pair("~0", '~')}) {
    for (size_t at = 0; (at = decoded.find(escape, at)) != decoded.npos; ++at) {
      decoded.replace(at, 2, 1, c);
    }
  }
  return decoded;
}

Schema AsList(const Schema& one_or_more) {
  return one_or_more.is_array() ? one_or_more : Schema::array({one_or_more});
}

bool Includes(const Schema& list, const Schema& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

Schema CommonTypes(const Schema& a, const Schema& b) {
  Schema common = Schema::array();
  for (const Schema& type : AsList(a)) {
    if (Includes(AsList(b), type) || (type == "integer" && Includes(AsList(b), "number"))) {
      common.push_back(type);
    }
  }
  const Schema first = AsList(a);
  if (Includes(first, "number") && Includes(AsList(b), "integer") && !Includes(common, "integer")) {
    common.push_back("integer");
  }
  return common;
}

Schema CommonValues(const Schema& a, const Schema& b) {
  Schema common = Schema::array();
  for (const Schema& value : a) {
    if (Includes(b, value)) common.push_back(value);
  }
  return common;
}

// The schema that `schema` has for a property `name` without one of its own.
Schema OtherProperty(const Schema& schema, const std::string& name) {
  const auto patterns = schema.find("patternProperties");
  if (patterns != schema.end() && patterns->is_object()) {
    Schema all = Schema::array();
    for (const auto& [pattern, member] : patterns->items()) {
      if (MayMatch(pattern, name)) all.push_back(member);
    }
    if (!all.empty()) return all.size() == 1 ? all[0] : Schema{{"allOf", all}};
  }
  return schema.value("additionalProperties", Schema(true));
}

// Properties of both; a name that only one declares is among the other's others.
absl::Status MergeProperties(const Schema& a, const Schema& b, Schema& merged) {
  if (!a.contains("properties") && !b.contains("properties")) return absl::OkStatus();
  const Schema none = Schema::object();
  const Schema of_a = a.value("properties", none), of_b = b.value("properties", none);
  if (!of_a.is_object() || !of_b.is_object()) return Invalid("properties", "must be an object");
  Schema all = Schema::object();
  const auto add = [&](const Schema& own, const Schema& others, const Schema& other) {
    for (const auto& [name, schema] : own.items()) {
      if (all.contains(name)) continue;
      const auto twin = others.find(name);
      const Schema also = twin != others.end() ? *twin : OtherProperty(other, name);
      all[name] = also == Schema(true) ? schema : BothOf(schema, also);
    }
  };
  add(of_a, of_b, b);
  add(of_b, of_a, a);
  merged["properties"] = std::move(all);
  return absl::OkStatus();
}

// What is refused by one of two that are refused.
Schema Neither(const Schema& a, const Schema& b) {
  const auto values = [](const Schema& denied) {
    return denied.is_object() && denied.size() == 1 && denied.contains("enum");
  };
  if (!values(a) || !values(b)) return Schema{{"anyOf", Schema::array({a, b})}};
  Schema all = a;
  for (const Schema& value : b.at("enum")) {
    if (!Includes(all.at("enum"), value)) all["enum"].push_back(value);
  }
  return all;
}

// A keyword that both have and whose values differ.
absl::Status MergeKeyword(const std::string& keyword, const Schema& a, const Schema& b,
                          Schema& merged) {
  constexpr auto kLargerWins =
      std::to_array<std::string_view>({"minLength", "minItems", "minProperties", "minimum"});
  constexpr auto kSmallerWins =
      std::to_array<std::string_view>({"maxLength", "maxItems", "maxProperties", "maximum"});
  const auto among = [&](const auto& list) {
    return std::find(list.begin(), list.end(), keyword) != list.end();
  };
  if (among(kLargerWins) || among(kSmallerWins)) {
    if (!a.is_number() || !b.is_number()) return Invalid(keyword, "must be a number");
    const bool a_larger = a.get<double>() > b.get<double>();
    merged[keyword] = a_larger == among(kLargerWins) ? a : b;
  } else if (keyword.starts_with("exclusiveM") && a.is_number() && b.is_number()) {
    const bool a_larger = a.get<double>() > b.get<double>();
    merged[keyword] = a_larger == keyword.ends_with("Minimum") ? a : b;
  } else if (keyword == "type") {
    merged[keyword] = CommonTypes(a, b);
  } else if (keyword == "enum") {
    merged[keyword] = CommonValues(a, b);
  } else if (keyword == "required") {
    for (const Schema& name : b) {
      if (!Includes(merged[keyword], name)) merged[keyword].push_back(name);
    }
  } else if (keyword == "items" && !a.is_array() && !b.is_array()) {
    merged[keyword] = BothOf(a, b);
  } else if (keyword == "additionalProperties" || keyword == "propertyNames" ||
             keyword == "additionalItems") {
    merged[keyword] = BothOf(a, b);
  } else if (keyword == "uniqueItems" || keyword == "unevaluatedProperties") {
    merged[keyword] = a == Schema(true) || b == Schema(true);
    if (keyword == "unevaluatedProperties") merged[keyword] = false;
  } else if (keyword == "anyOf" && a.is_array() && b.is_array()) {
    merged[keyword] = Schema::array();
    for (const Schema& way : a) merged[keyword].push_back(BothOf(way, Schema{{"anyOf", b}}));
  } else if (keyword == "not") {
    merged[keyword] = Neither(a, b);
  } else if (keyword == "patternProperties" && a.is_object() && b.is_object()) {
    for (const auto& [pattern, schema] : b.items()) {
      merged[keyword][pattern] = a.contains(pattern) ? BothOf(a.at(pattern), schema) : schema;
    }
  } else if (keyword == "const") {
    merged["enum"] = Schema::array();  // no value is both
    merged.erase(keyword);
  } else {
    return Invalid(keyword,
                   "is given twice, in allOf or beside $ref or anyOf, which is not enforced");
  }
  return absl::OkStatus();
}

absl::StatusOr<Schema> Merge(const Schema& a, const Schema& b) {
  if (a == Schema(false) || b == Schema(false)) return Schema(false);
  if (a == Schema(true)) return b;
  if (b == Schema(true)) return a;
  if (!a.is_object() || !b.is_object())
    return absl::InvalidArgumentError("a schema must be an object, true or false");
  // Which items and properties are meant depends on what stands beside them.
  const bool has_tuple = a.contains("prefixItems") || b.contains("prefixItems");
  if (has_tuple && (a.contains("items") || a.contains("prefixItems")) &&
      (b.contains("items") || b.contains("prefixItems"))) {
    return Invalid("prefixItems", "in several schemas of one value is not enforced");
  }
  Schema merged = a;
  for (const auto& [keyword, value] : b.items()) {
    if (IsAnnotation(keyword) || keyword == "properties") continue;
    const auto twin = a.find(keyword);
    if (twin == a.end()) {
      merged[keyword] = value;
    } else if (*twin != value) {
      absl::Status status = MergeKeyword(keyword, *twin, value, merged);
      if (!status.ok()) return status;
    }
  }
  absl::Status status = MergeProperties(a, b, merged);
  if (!status.ok()) return status;
  return merged;
}

absl::StatusOr<Schema> Flatten(const Schema& root, const Schema& schema, int depth) {
  if (depth > kMaxFlattenDepth)
    return Invalid("$ref", "leads to itself, or allOf nests too deeply");
  if (schema.is_boolean()) return schema;
  if (!schema.is_object())
    return absl::InvalidArgumentError("a schema must be an object, true or false");
  Schema flat = schema;
  flat.erase("$ref");
  flat.erase("allOf");
  std::vector<const Schema*> parts;
  if (const auto ref = schema.find("$ref"); ref != schema.end()) {
    if (!ref->is_string()) return Invalid("$ref", "must be a string");
    auto target = ResolveRef(root, ref->get<std::string>());
    if (!target.ok()) return target.status();
    parts.push_back(*target);
  }
  if (const auto all = schema.find("allOf"); all != schema.end()) {
    if (!all->is_array()) return Invalid("allOf", "must be an array");
    for (const Schema& part : *all) parts.push_back(&part);
  }
  for (const Schema* part : parts) {
    absl::StatusOr<Schema> flattened = Flatten(root, *part, depth + 1);
    if (!flattened.ok() || (flat.empty() && parts.size() == 1)) return flattened;
    // A part of an allOf has evaluated what it declares, the schema around it also what its parts
    // do.
    const bool counts = flattened->is_object() && flattened->contains("unevaluatedProperties");
    if (counts && !flattened->contains("additionalProperties"))
      (*flattened)["additionalProperties"] = flattened->at("unevaluatedProperties");
    if (counts) flattened->erase("unevaluatedProperties");
    absl::StatusOr<Schema> merged = Merge(flat, *flattened);
    if (!merged.ok()) return merged;
    flat = *std::move(merged);
    if (!flat.is_object()) return flat;
  }
  return flat;
}

}  // namespace

bool MayMatch(const std::string& pattern, const std::string& name) {
  const absl::StatusOr<Regex> regex = Regex::Compile(pattern);
  if (!regex.ok() || name.empty()) return true;
  std::vector<ByteSpan> found;
  return !regex->FindAll(name, &found).ok() || !found.empty();
}

bool IsAnnotation(std::string_view keyword) {
  return std::find(std::begin(kKeywords), std::end(kKeywords), keyword) == std::end(kKeywords);
}

absl::StatusOr<const Schema*> ResolveRef(const Schema& root, const std::string& ref) {
  if (ref != "#" && !ref.starts_with("#/")) {
    return Invalid(
        "$ref",
        absl::StrCat("to ", Schema(ref).dump(-1, ' ', false, Schema::error_handler_t::replace),
                     " is not enforced: only those within the schema, as "
                     "\"#/$defs/NAME\", are"));
  }
  const Schema* at = &root;
  std::string_view rest = std::string_view(ref).substr(1);
  while (!rest.empty()) {
    rest.remove_prefix(1);
    const size_t end = std::min(rest.find('/'), rest.size());
    const std::optional<std::string> token = Decoded(rest.substr(0, end));
    rest.remove_prefix(end);
    const Schema* next = nullptr;
    if (token.has_value() && at->is_object()) {
      const auto member = at->find(*token);
      if (member != at->end()) next = &*member;
    } else if (token.has_value() && at->is_array()) {
      size_t index = 0;
      const char* const last = token->data() + token->size();
      const auto read = std::from_chars(token->data(), last, index);
      if (read.ec == std::errc() && read.ptr == last && index < at->size()) next = &(*at)[index];
    }
    if (next == nullptr) return Invalid("$ref", absl::StrCat("names nothing: ", ref));
    at = next;
  }
  return at;
}

absl::StatusOr<Schema> FlattenSchema(const Schema& root, const Schema& schema) {
  return Flatten(root, schema, 0);
}

}  // namespace tessera::coordinator
