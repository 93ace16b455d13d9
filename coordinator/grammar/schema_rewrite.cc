#include "coordinator/grammar/schema_rewrite.h"

#include <array>
#include <nlohmann/json.hpp>
#include <string>

#include "coordinator/grammar/schema_merge.h"

namespace tessera::coordinator {
namespace {

using Schema = nlohmann::ordered_json;

constexpr int kMaxDepth = 8;
// Each doubles the ways to have a value.
constexpr size_t kMaxDependencies = 4;

std::optional<Schema> Complement(const Schema& schema, int depth);

// {"KEYWORD": [...]} of the complements of all; nothing where one has none.
std::optional<Schema> AllComplements(const Schema& schemas, const char* keyword, int depth) {
  if (!schemas.is_array()) return std::nullopt;
  Schema complements = Schema::array();
  for (const Schema& schema : schemas) {
    std::optional<Schema> complement = Complement(schema, depth + 1);
    if (!complement.has_value()) return std::nullopt;
    complements.push_back(*std::move(complement));
  }
  return Schema{{keyword, std::move(complements)}};
}

std::optional<Schema> WithoutTypes(const Schema& types) {
  Schema rest = Schema::array();
  const Schema list = types.is_array() ? types : Schema::array({types});
  for (const Schema& type : list) {
    if (type == "integer") return std::nullopt;
  }
  for (const char* type : {"object", "array", "string", "number", "boolean", "null"}) {
    if (std::find(list.begin(), list.end(), Schema(type)) == list.end()) rest.push_back(type);
  }
  return Schema{{"type", std::move(rest)}};
}

// Objects that lack one of the names.
std::optional<Schema> WithoutOneOf(const Schema& names) {
  if (!names.is_array()) return std::nullopt;
  Schema ways = Schema::array();
  for (const Schema& name : names) {
    if (!name.is_string()) return std::nullopt;
    ways.push_back({{"type", "object"}, {"properties", {{name.get<std::string>(), false}}}});
  }
  return Schema{{"anyOf", std::move(ways)}};
}

// Objects with a property that is none of its schema's.
std::optional<Schema> WithOtherProperty(const Schema& properties, int depth) {
  if (!properties.is_object()) return std::nullopt;
  Schema ways = Schema::array();
  for (const auto& [name, schema] : properties.items()) {
    std::optional<Schema> other = Complement(schema, depth + 1);
    if (!other.has_value()) return std::nullopt;
    ways.push_back({{"type", "object"},
                    {"required", Schema::array({name})},
                    {"properties", {{name, *std::move(other)}}}});
  }
  return Schema{{"anyOf", std::move(ways)}};
}

std::optional<Schema> ComplementOfKeyword(const std::string& keyword, const Schema& value,
                                          int depth) {
  if (keyword == "not") return value;
  if (keyword == "type") return WithoutTypes(value);
  if (keyword == "const") return Schema{{"not", {{"enum", Schema::array({value})}}}};
  if (keyword == "enum") return Schema{{"not", {{"enum", value}}}};
  if (keyword == "anyOf") return AllComplements(value, "allOf", depth);
  if (keyword == "allOf") return AllComplements(value, "anyOf", depth);
  if (keyword == "required") return WithoutOneOf(value);
  if (keyword == "properties") return WithOtherProperty(value, depth);
  const std::pair<const char*, const char*> kBounds[] = {{"minimum", "exclusiveMaximum"},
                                                         {"maximum", "exclusiveMinimum"},
                                                         {"exclusiveMinimum", "maximum"},
                                                         {"exclusiveMaximum", "minimum"}};
  for (const auto& [bound, opposite] : kBounds) {
    if (keyword == bound && value.is_number()) return Schema{{"type", "number"}, {opposite, value}};
  }
  return std::nullopt;
}

std::optional<Schema> Complement(const Schema& schema, int depth) {
  if (schema.is_boolean()) return Schema(!schema.get<bool>());
  if (!schema.is_object() || depth > kMaxDepth) return std::nullopt;
  Schema ways = Schema::array();
  for (const auto& [keyword, value] : schema.items()) {
    if (IsAnnotation(keyword)) continue;
    std::optional<Schema> way = ComplementOfKeyword(keyword, value, depth);
    if (!way.has_value()) return std::nullopt;
    ways.push_back(*std::move(way));
  }
  if (ways.empty()) return Schema(false);
  return ways.size() == 1 ? ways[0] : Schema{{"anyOf", std::move(ways)}};
}

bool IsKept(const Schema& denied) {
  return denied.is_object() && denied.size() == 1 && denied.contains("enum") &&
         denied.at("enum").is_array();
}

// if, then, else.
std::optional<Schema> Conditional(const Schema& flat) {
  std::optional<Schema> other = ComplementOf(flat.at("if"));
  if (!other.has_value()) return std::nullopt;
  const Schema then = {{"allOf", Schema::array({flat.at("if"), flat.value("then", Schema(true))})}};
  const Schema otherwise = {
      {"allOf", Schema::array({*std::move(other), flat.value("else", Schema(true))})}};
  return Schema{{"anyOf", Schema::array({then, otherwise})}};
}

}  // namespace

std::optional<Schema> ComplementOf(const Schema& schema) { return Complement(schema, 0); }

std::optional<Schema> RewriteSchema(const Schema& flat) {
  // What a complement looks at is not evaluated.
  if (flat.contains("unevaluatedProperties") || flat.contains("unevaluatedItems"))
    return std::nullopt;
  Schema rewritten = flat;
  Schema added = Schema::array();
  if (flat.contains("not") && !IsKept(flat.at("not"))) {
    if (std::optional<Schema> rest = ComplementOf(flat.at("not"))) {
      rewritten.erase("not");
      added.push_back(*std::move(rest));
    }
  }
  if (flat.contains("if")) {
    if (std::optional<Schema> ways = Conditional(flat)) {
      for (const char* keyword : {"if", "then", "else"}) rewritten.erase(keyword);
      added.push_back(*std::move(ways));
    }
  }
  for (const char* keyword : {"dependencies", "dependentRequired", "dependentSchemas"}) {
    const auto given = flat.find(keyword);
    if (given == flat.end() || !given->is_object() || given->size() > kMaxDependencies) continue;
    for (const auto& [name, needed] : given->items()) {
      const Schema then = needed.is_array() ? Schema{{"required", needed}} : needed;
      const Schema absent = {{"properties", {{name, false}}}};
      added.push_back({{"anyOf", Schema::array({absent, then})}});
    }
    rewritten.erase(keyword);
  }
  if (added.empty()) return std::nullopt;
  rewritten["allOf"] = std::move(added);
  return rewritten;
}

}  // namespace tessera::coordinator
