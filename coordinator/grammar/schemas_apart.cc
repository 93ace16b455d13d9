#include "coordinator/grammar/schemas_apart.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>

#include "coordinator/grammar/schema_merge.h"
#include "coordinator/grammar/schema_rewrite.h"

namespace tessera::coordinator {
namespace {

using Schema = nlohmann::ordered_json;

constexpr int kMaxDepth = 4;
constexpr size_t kMaxSchemas = 100;
constexpr size_t kMaxNarrowed = 8;  // each has a part for every other

// Types that a value may have; nothing: any.
std::optional<std::set<std::string>> TypesOf(const Schema& schema) {
  std::set<std::string> types;
  const auto add = [&types](const Schema& type) {
    if (type.is_string()) types.insert(type == "integer" ? "number" : type.get<std::string>());
  };
  if (const auto type = schema.find("type"); type != schema.end()) {
    if (type->is_array()) {
      std::for_each(type->begin(), type->end(), add);
    } else {
      add(*type);
    }
    return types;
  }
  return std::nullopt;
}

// The only values that it may have; nothing: others too.
std::optional<Schema> ValuesOf(const Schema& schema) {
  if (schema.contains("const")) return Schema::array({schema.at("const")});
  if (schema.contains("enum") && schema.at("enum").is_array()) return schema.at("enum");
  return std::nullopt;
}

bool Has(const Schema& list, const Schema& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

bool HaveNoCommonValue(const Schema& a, const Schema& b) {
  return std::none_of(a.begin(), a.end(), [&b](const Schema& value) { return Has(b, value); });
}

Schema ListOf(const Schema& schema, const char* name) {
  const auto found = schema.find(name);
  return found == schema.end() || !found->is_array() ? Schema::array() : *found;
}

Schema PropertiesOf(const Schema& schema) {
  const auto found = schema.find("properties");
  return found == schema.end() || !found->is_object() ? Schema::object() : *found;
}

// Whether texts of its grammar have only declared members.
bool WritesClosed(const Schema& schema) {
  if (schema.contains("patternProperties")) return false;
  const auto others = schema.find("additionalProperties");
  if (others != schema.end()) return *others == Schema(false);
  return !PropertiesOf(schema).empty();
}

// What it wants of a member of that name.
Schema MemberOf(const Schema& schema, const std::string& name) {
  const Schema properties = PropertiesOf(schema);
  if (const auto declared = properties.find(name); declared != properties.end()) return *declared;
  const auto patterns = schema.find("patternProperties");
  if (patterns != schema.end() && patterns->is_object()) {
    for (const auto& [pattern, member] : patterns->items()) {
      if (MayMatch(pattern, name)) return Schema(true);
    }
  }
  return schema.value("additionalProperties", Schema(true));
}

bool Apart(const Schema& root, const Schema& a, const Schema& b, int depth);

// Objects: whether no text of `a` is a value of `b`.
bool NeverWritten(const Schema& root, const Schema& a, const Schema& b, int depth) {
  const Schema of_a = PropertiesOf(a), required_a = ListOf(a, "required");
  Schema required = ListOf(b, "required");
  for (const Schema& name : required) {
    if (name.is_string() && WritesClosed(a) && !of_a.contains(name.get<std::string>()) &&
        !Has(required_a, name)) {
      return true;
    }
  }
  // A name that both have, or that one of them lacks while the other must have it.
  for (const Schema& name : required_a) required.push_back(name);
  return std::any_of(required.begin(), required.end(), [&](const Schema& name) {
    return name.is_string() && Apart(root, MemberOf(a, name.get<std::string>()),
                                     MemberOf(b, name.get<std::string>()), depth + 1);
  });
}

// Whether an array of both has no items.
bool OnlyEmptyInBoth(const Schema& root, const Schema& a, const Schema& b) {
  for (const Schema* one : {&a, &b}) {
    const bool plain = one->is_object() && one->value("type", Schema()) == Schema("array") &&
                       one->contains("items") && !one->at("items").is_array() &&
                       !one->contains("prefixItems");
    if (!plain) return false;
  }
  return Apart(root, a.at("items"), b.at("items"), 1);
}

bool Apart(const Schema& root, const Schema& a, const Schema& b, int depth) {
  if (depth > kMaxDepth) return false;
  const auto flat_a = FlattenSchema(root, a), flat_b = FlattenSchema(root, b);
  if (!flat_a.ok() || !flat_b.ok()) return false;
  if (*flat_a == Schema(false) || *flat_b == Schema(false)) return true;
  if (!flat_a->is_object() || !flat_b->is_object()) return false;
  for (const char* keyword : {"anyOf", "oneOf"}) {
    for (const auto& [with, other] : {std::pair(&*flat_a, &b), std::pair(&*flat_b, &a)}) {
      if (!with->contains(keyword) || !with->at(keyword).is_array()) continue;
      const Schema& ways = with->at(keyword);
      const bool all_apart = std::all_of(ways.begin(), ways.end(), [&](const Schema& way) {
        return Apart(root, way, *other, depth + 1);
      });
      if (all_apart) return true;
    }
  }
  const auto values_a = ValuesOf(*flat_a), values_b = ValuesOf(*flat_b);
  if (values_a.has_value() && values_b.has_value()) return HaveNoCommonValue(*values_a, *values_b);
  const auto types_a = TypesOf(*flat_a), types_b = TypesOf(*flat_b);
  if (!types_a.has_value() || !types_b.has_value()) return false;
  std::set<std::string> common;
  std::set_intersection(types_a->begin(), types_a->end(), types_b->begin(), types_b->end(),
                        std::inserter(common, common.end()));
  if (common.empty()) return true;
  return common == std::set<std::string>{"object"} && NeverWritten(root, *flat_a, *flat_b, depth) &&
         NeverWritten(root, *flat_b, *flat_a, depth);
}

}  // namespace

bool SchemasApart(const Schema& root, const std::vector<Schema>& schemas) {
  if (schemas.size() > kMaxSchemas) return false;
  for (size_t i = 0; i < schemas.size(); ++i) {
    for (size_t j = i + 1; j < schemas.size(); ++j) {
      if (!Apart(root, schemas[i], schemas[j], 0)) return false;
    }
  }
  return true;
}

std::optional<std::vector<Schema>> WithoutCommonValues(const Schema& root,
                                                       const std::vector<Schema>& schemas) {
  if (schemas.size() > kMaxNarrowed) return std::nullopt;
  std::vector<Schema> narrowed;
  for (const Schema& schema : schemas) {
    Schema parts = Schema::array({schema});
    for (const Schema& other : schemas) {
      if (&other == &schema || Apart(root, schema, other, 0)) continue;
      const auto flat = FlattenSchema(root, schema), flat_other = FlattenSchema(root, other);
      if (!flat.ok() || !flat_other.ok()) return std::nullopt;
      std::optional<Schema> rest = Schema{{"minItems", 1}};
      if (!OnlyEmptyInBoth(root, *flat, *flat_other)) rest = ComplementOf(*flat_other);
      if (!rest.has_value()) return std::nullopt;
      parts.push_back(*std::move(rest));
    }
    narrowed.push_back({{"allOf", std::move(parts)}});
  }
  return narrowed;
}

}  // namespace tessera::coordinator
