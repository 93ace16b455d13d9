// Objects and arrays of SchemaWriter.
#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "coordinator/grammar/object_grammar.h"
#include "coordinator/grammar/pattern_grammar.h"
#include "coordinator/grammar/schema_merge.h"
#include "coordinator/grammar/schema_writer.h"

namespace tessera::coordinator {
namespace {

using Schema = nlohmann::ordered_json;

// Names of an object's properties, together, that other keys are kept apart from; where they are
// longer, an output has no other keys.
constexpr size_t kMaxNameBytes = 4096;

// Whether a key of a pattern may be a declared name.
bool MayDeclare(const Schema& patterns, const Schema& properties) {
  for (const auto& [name, schema] : properties.items()) {
    for (const auto& [pattern, also] : patterns.items()) {
      if (MayMatch(pattern, name)) return true;
    }
  }
  return false;
}

// Characters of which a pattern has every text but, perhaps, the empty one. Nothing: not known.
std::optional<CodePoints> CharactersOfKeys(std::string_view pattern) {
  const bool begins = pattern.starts_with('^'), ends = pattern.ends_with('$');
  if (begins) pattern.remove_prefix(1);
  if (ends) pattern.remove_suffix(1);
  if (begins && ends) {
    if (!pattern.ends_with('*') && !pattern.ends_with('+')) return std::nullopt;
    const bool is_group = pattern.starts_with('(');  // which may hold anchors of its own
    const auto of_one = CharacterOfPattern(pattern.substr(0, pattern.size() - 1));
    const bool is_writable = of_one.has_value() && of_one->CountWaysInJsonString() > 0;
    return is_writable && !is_group ? of_one : std::nullopt;
  }
  const bool has_all = pattern.empty() || pattern == "." || pattern == ".*" || pattern == ".+";
  return has_all ? CharacterOfPattern(".") : std::nullopt;
}

std::vector<std::string> NamesOf(const Schema& properties) {
  std::vector<std::string> names;
  for (const auto& [name, schema] : properties.items()) names.push_back(name);
  return names;
}

// The text that each key of the pattern begins with, as far as that is plain.
std::string PrefixOf(const std::string& pattern) {
  const bool plain = std::all_of(pattern.begin(), pattern.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x80 && c != '|';
  });
  if (!pattern.starts_with('^') || !plain) return "";
  const size_t end = std::min(pattern.find_first_of("\\^$.[]()*+?{}", 1), pattern.size());
  const bool counted =
      end < pattern.size() && std::string_view("*?{").find(pattern[end]) != std::string_view::npos;
  return pattern.substr(1, end - 1 - (counted && end > 1 ? 1 : 0));
}

// Whether no key is of two patterns whose schemas differ.
bool KeysApart(const Schema& patterns) {
  for (auto a = patterns.begin(); a != patterns.end(); ++a) {
    for (auto b = std::next(a); b != patterns.end(); ++b) {
      const std::string of_a = PrefixOf(a.key()), of_b = PrefixOf(b.key());
      if (*a != *b && (of_a.starts_with(of_b) || of_b.starts_with(of_a))) return false;
    }
  }
  return true;
}

bool IsOpen(const Schema& flat, const Schema& properties) {
  const auto others = flat.find("additionalProperties");
  if (others != flat.end()) return *others != Schema(false);
  if (flat.value("unevaluatedProperties", Schema(true)) != Schema(true)) return false;
  return properties.empty() && !flat.contains("patternProperties");
}

}  // namespace

// Declared ones, and those that are only required.
absl::StatusOr<Schema> SchemaWriter::AllProperties(const Schema& flat, const std::string& place) {
  Schema all = flat.value("properties", Schema::object());
  if (!all.is_object()) return Invalid(place, "properties", "must be an object");
  const Schema patterns = flat.value("patternProperties", Schema::object());
  if (!patterns.is_object()) return Invalid(place, "patternProperties", "must be an object");
  const Schema required = flat.value("required", Schema::array());
  if (!required.is_array()) return Invalid(place, "required", "must be an array of names");
  for (const Schema& name : required) {
    if (!name.is_string()) return Invalid(place, "required", "must be an array of names");
    if (all.contains(name.get<std::string>())) continue;
    if (!patterns.empty()) {
      absl::Status s =
          Refuse(place, "required", "of a name that only patternProperties may declare");
      if (!s.ok()) return s;
    }
    all[name.get<std::string>()] = flat.value("additionalProperties", Schema(true));
  }
  for (auto& [name, schema] : all.items()) {
    Schema both = Schema::array({schema});
    for (const auto& [pattern, also] : patterns.items()) {
      if (MayMatch(pattern, name)) both.push_back(also);
    }
    if (both.size() > 1) schema = Schema{{"allOf", std::move(both)}};
  }
  return all;
}

// The rule of a member that is not declared; empty: there is none.
absl::StatusOr<std::string> SchemaWriter::OtherMember(const Schema& flat, const Schema& properties,
                                                      const std::string& place) {
  const std::string colon = absl::StrCat(" \":\" ", json_.space(), " ");
  const Schema patterns = flat.value("patternProperties", Schema::object());
  std::vector<std::string> names = NamesOf(properties);
  const size_t name_bytes = absl::StrJoin(names, "").size();
  if (MayDeclare(patterns, properties)) {
    // A key that stands twice is read as its last one, which has the pattern's schema alone.
    const auto characters = CharactersOfKeys(patterns.items().begin().key());
    // Nor are there others where their number or their names are bounded.
    if (patterns.size() > 1 || !characters.has_value() || name_bytes > kMaxNameBytes ||
        flat.contains("maxProperties") || flat.contains("propertyNames"))
      return std::string();
    const Body value = RuleOf(*patterns.begin(), absl::StrCat(place, ".*"));
    if (absl::IsNotFound(value.status())) return std::string();
    if (!value.ok()) return value;
    names.emplace_back();
    return text_.Add(absl::StrCat(KeyBeside(names, &text_, *characters), colon, *value));
  }
  std::vector<std::string> ways;
  const bool keys_apart = KeysApart(patterns);
  for (const auto& [pattern, schema] : patterns.items()) {
    if (!keys_apart && schema != *patterns.begin()) {
      absl::Status s = Refuse(place, "patternProperties", "of several schemas");
      if (!s.ok()) return s;
      continue;
    }
    const auto key = PatternBody(pattern, json_.characters(), std::nullopt, &text_);
    if (!key.ok()) {
      absl::Status s = Refuse(place, "patternProperties", std::string(key.status().message()));
      if (!s.ok()) return s;
      continue;
    }
    const Body value = RuleOf(schema, absl::StrCat(place, ".*"));
    if (absl::IsNotFound(value.status())) continue;
    if (!value.ok()) return value;
    ways.push_back(absl::StrCat("\"\\\"\" (", *key, ") \"\\\"\"", colon, *value));
  }
  if (!patterns.empty()) {
    if (ways.empty()) return std::string();
    std::string all = ways[0];
    for (size_t i = 1; i < ways.size(); ++i) absl::StrAppend(&all, " | ", ways[i]);
    return text_.Add(all);
  }
  if (!IsOpen(flat, properties)) return std::string();
  std::string key = json_.string();
  if (flat.contains("propertyNames")) {
    const Schema names = {
        {"allOf", Schema::array({Schema{{"type", "string"}}, flat.at("propertyNames")})}};
    Body rule = RuleOf(names, absl::StrCat(place, ".*"));
    if (absl::IsNotFound(rule.status())) return std::string();
    if (!rule.ok()) return rule;
    key = *std::move(rule);
  } else if (!properties.empty()) {
    if (name_bytes > kMaxNameBytes) return std::string();
    key = KeyBeside(names, &text_);
  }
  const Body value =
      RuleOf(flat.value("additionalProperties", Schema(true)), absl::StrCat(place, ".*"));
  if (absl::IsNotFound(value.status())) return std::string();
  if (!value.ok()) return value;
  return text_.Add(absl::StrCat(key, colon, *value));
}

absl::Status SchemaWriter::CheckCounts(const Schema& flat, size_t declared, bool open,
                                       const std::string& place) {
  const auto min = Count(flat, "minProperties", place), max = Count(flat, "maxProperties", place);
  if (!min.ok()) return min.status();
  if (!max.ok()) return max.status();
  const auto required = static_cast<int64_t>(flat.value("required", Schema::array()).size());
  const int64_t least = std::max<int64_t>(required, declared > 0 || open ? 1 : 0);
  if (min->value_or(0) > least) {
    if (absl::Status s = Refuse(place, "minProperties"); !s.ok()) return s;
  }
  const bool may_exceed =
      max->has_value() && (static_cast<int64_t>(declared) > **max || (open && declared > 0));
  if (may_exceed) {
    if (absl::Status s = Refuse(place, "maxProperties"); !s.ok()) return s;
  }
  for (const char* keyword : {"dependentRequired", "dependentSchemas", "dependencies"}) {
    if (!flat.contains(keyword)) continue;
    if (absl::Status s = Refuse(place, keyword); !s.ok()) return s;
  }
  if (flat.contains("propertyNames") && (declared > 0 || flat.contains("patternProperties")))
    return Refuse(place, "propertyNames", "beside properties");
  return absl::OkStatus();
}

SchemaWriter::Body SchemaWriter::ObjectBodyOf(const Schema& flat, const std::string& place) {
  const absl::StatusOr<Schema> properties = AllProperties(flat, place);
  if (!properties.ok()) return properties.status();
  const absl::StatusOr<std::string> other = OtherMember(flat, *properties, place);
  if (!other.ok()) return other.status();
  absl::Status counts = CheckCounts(flat, properties->size(), !other->empty(), place);
  if (!counts.ok()) return counts;
  const Schema required = flat.value("required", Schema::array());
  std::vector<ObjectMember> members;
  std::vector<std::string> needed;
  for (const auto& [name, schema] : properties->items()) {
    const bool is_required =
        std::find(required.begin(), required.end(), Schema(name)) != required.end();
    Body value = RuleOf(schema, absl::StrCat(place, ".", name));
    if (absl::IsNotFound(value.status()) && !is_required) continue;
    if (!value.ok()) return value;
    if (is_required) needed.push_back(*value);
    members.push_back({name, *std::move(value), is_required});
  }
  Need(std::move(needed));
  const bool needs_one = flat.value("minProperties", Schema(0)) != Schema(0);
  if (needs_one && members.empty() && other->empty())
    return absl::NotFoundError("no property is left");
  OtherMembers others = {.member = *other, .needs_one = needs_one};
  if (members.empty() && !other->empty()) {
    const auto max = Count(flat, "maxProperties", place);
    if (max.ok() && max->has_value())
      others.max = static_cast<int>(std::min<int64_t>(**max, kMaxItems));
    if (others.max == 0 && needs_one) return absl::NotFoundError("no property is left");
    if (others.max == 0) others.member.clear();
  }
  return ObjectBody(members, others, json_, &text_);
}

// Some of the values of an enum, in their order. Unimplemented for others.
SchemaWriter::Body SchemaWriter::DistinctItemsBody(const Schema& flat, int64_t min, int64_t max) {
  const absl::Status other = absl::UnimplementedError("the items are not counted up");
  for (const char* keyword : {"prefixItems", "contains", "unevaluatedItems"}) {
    if (flat.contains(keyword)) return other;
  }
  const auto items = FlattenSchema(root_, flat.value("items", Schema(true)));
  if (!items.ok() || !items->is_object() || !items->contains("enum") || min > 1) return other;
  const Schema& values = items->at("enum");
  if (!values.is_array() || std::ssize(values) > max) return other;
  const std::string comma = absl::StrCat(json_.space(), " \",\" ", json_.space(), " ");
  std::string behind = "\"\"", first;
  for (auto value = values.rbegin(); value != values.rend(); ++value) {
    Schema one = *items;
    one["enum"] = Schema::array({*value});
    Body rule = RuleOf(one, "$");
    if (absl::IsNotFound(rule.status())) continue;
    if (!rule.ok()) return rule;
    first = text_.Add(absl::StrCat(*rule, " ", behind, first.empty() ? "" : " | ", first));
    behind = text_.Add(absl::StrCat("(", comma, *rule, ")? ", behind));
  }
  if (first.empty()) return other;
  return absl::StrCat("\"[\" ", json_.space(), " ", first, min == 0 ? "? " : " ", json_.space(),
                      " \"]\"");
}

SchemaWriter::Body SchemaWriter::ArrayBodyOf(const Schema& flat, const std::string& place) {
  const auto min = Count(flat, "minItems", place), given_max = Count(flat, "maxItems", place);
  if (!min.ok()) return min.status();
  if (!given_max.ok()) return given_max.status();
  const int64_t least = min->value_or(0);
  const int64_t max = std::min(given_max->value_or(kMaxItems), kMaxItems);
  if (least > kMaxItems) return Invalid(place, "minItems", absl::StrCat("is at most ", kMaxItems));
  if (least > max) return absl::NotFoundError("no array is so long");
  const bool may_repeat = flat.value("uniqueItems", Schema()) == Schema(true) && max > 1;
  if (may_repeat) {
    Body distinct = DistinctItemsBody(flat, least, max);
    if (distinct.ok()) {
      Need({});
      return distinct;
    }
  }
  const bool may_lack = flat.contains("contains");
  const bool may_exceed = flat.value("unevaluatedItems", Schema(true)) != Schema(true);
  for (const auto& [keyword, asks] :
       {std::pair("uniqueItems", may_repeat), std::pair("contains", may_lack),
        std::pair("unevaluatedItems", may_exceed)}) {
    if (!asks) continue;
    if (absl::Status s = Refuse(place, keyword); !s.ok()) return s;
  }
  Schema prefix = flat.value("prefixItems", Schema::array());
  Schema rest = flat.value("items", Schema(true));
  if (rest.is_array()) {  // as drafts before 2020-12 have it
    prefix = std::exchange(rest, flat.value("additionalItems", Schema(true)));
  }
  if (!prefix.is_array()) return Invalid(place, "prefixItems", "must be an array");
  return ItemsBody(prefix, rest, least, max, place);
}

// From the last item to the first.
SchemaWriter::Body SchemaWriter::ItemsBody(const Schema& prefix, const Schema& rest, int64_t min,
                                           int64_t max, const std::string& place) {
  const std::string comma = absl::StrCat(json_.space(), " \",\" ", json_.space(), " ");
  const int64_t leading = std::min<int64_t>(std::ssize(prefix), max);
  std::vector<std::string> needed;
  std::string behind = "\"\"";
  int64_t possible = leading;  // items that arrays may have
  std::vector<std::string> rules;
  for (int64_t i = 0; i < leading; ++i) {
    Body item = RuleOf(prefix[i], absl::StrCat(place, "[", i, "]"));
    if (absl::IsNotFound(item.status())) {
      possible = i;
      break;
    }
    if (!item.ok()) return item;
    if (i < min) needed.push_back(*item);
    rules.push_back(*std::move(item));
  }
  if (possible == leading && max > leading) {
    Body item = RuleOf(rest, absl::StrCat(place, "[]"));
    if (!item.ok() && !absl::IsNotFound(item.status())) return item;
    if (item.ok()) {
      const int64_t low = std::max<int64_t>(0, min - leading), high = max - leading;
      possible = max;
      if (low > 0) needed.push_back(*item);
      if (leading == 0) {
        behind = absl::StrCat(*item, " (", comma, *item, "){", std::max<int64_t>(0, low - 1), ",",
                              high - 1, "}");
        if (low == 0) behind = absl::StrCat("(", behind, ")?");
      } else {
        behind = absl::StrCat("(", comma, *item, "){", low, ",", high, "}");
      }
      behind = text_.Add(behind);
    }
  }
  if (possible < min) return absl::NotFoundError("an item has no value");
  for (auto i = std::ssize(rules) - 1; i >= 0; --i) {
    const std::string item = absl::StrCat(i > 0 ? comma : "", rules[i], " ", behind);
    behind = text_.Add(i < min ? item : absl::StrCat("(", item, ")?"));
  }
  Need(std::move(needed));
  return absl::StrCat("\"[\" ", json_.space(), " ", behind, " ", json_.space(), " \"]\"");
}

}  // namespace tessera::coordinator
