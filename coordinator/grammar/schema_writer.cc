#include "coordinator/grammar/schema_writer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "coordinator/grammar/number_grammar.h"
#include "coordinator/grammar/object_grammar.h"
#include "coordinator/grammar/pattern_grammar.h"
#include "coordinator/grammar/schema_merge.h"
#include "coordinator/grammar/schema_rewrite.h"
#include "coordinator/grammar/schemas_apart.h"

namespace tessera::coordinator {
namespace {

using Schema = nlohmann::ordered_json;

constexpr auto kOfObjects = std::to_array<std::string_view>(
    {"properties", "required", "additionalProperties", "patternProperties", "propertyNames",
     "minProperties", "maxProperties", "unevaluatedProperties", "dependentRequired",
     "dependentSchemas", "dependencies"});
constexpr auto kOfArrays =
    std::to_array<std::string_view>({"items", "prefixItems", "minItems", "maxItems", "uniqueItems",
                                     "contains", "unevaluatedItems"});
constexpr auto kOfStrings =
    std::to_array<std::string_view>({"minLength", "maxLength", "pattern", "format"});
constexpr auto kOfNumbers = std::to_array<std::string_view>(
    {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"});
constexpr auto kTypes = std::to_array<std::string_view>(
    {"object", "array", "string", "number", "integer", "boolean", "null"});
// Multiples of more than this are found by no grammar of a sensible size.
constexpr int64_t kMaxMultiple = 100;

size_t CodePointCount(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

template <size_t N>
bool HasAny(const Schema& schema, const std::array<std::string_view, N>& keywords) {
  return std::any_of(keywords.begin(), keywords.end(), [&schema](std::string_view keyword) {
    return schema.contains(std::string(keyword));
  });
}

// "type", or what the keywords are about; empty: any value.
absl::StatusOr<std::vector<std::string>> TypesNamed(const Schema& schema) {
  std::vector<std::string> types;
  if (const auto type = schema.find("type"); type != schema.end()) {
    const Schema list = type->is_array() ? *type : Schema::array({*type});
    for (const Schema& one : list) {
      const bool known = one.is_string() && std::find(kTypes.begin(), kTypes.end(),
                                                      one.get<std::string>()) != kTypes.end();
      if (!known) return absl::InvalidArgumentError("names none of JSON Schema's types");
      types.push_back(one.get<std::string>());
    }
    if (types.empty()) return absl::NotFoundError("no type is left");
    return types;
  }
  if (HasAny(schema, kOfObjects)) types.push_back("object");
  if (HasAny(schema, kOfArrays)) types.push_back("array");
  if (HasAny(schema, kOfStrings)) types.push_back("string");
  if (HasAny(schema, kOfNumbers)) types.push_back("number");
  return types;
}

bool HasType(const Schema& value, std::string_view type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  if (type == "number") return value.is_number();
  return value.is_number_integer() ||
         (value.is_number_float() && std::floor(value.get<double>()) == value.get<double>());
}

// Whether what stands beside an enum allows its value; nothing: not known.
std::optional<bool> IsAllowed(const Schema& flat, const Schema& value) {
  const auto bound = [&flat](const char* keyword, double none) {
    const auto found = flat.find(keyword);
    return found != flat.end() && found->is_number() ? found->get<double>() : none;
  };
  if (value.is_object() && HasAny(flat, kOfObjects)) return std::nullopt;
  if (value.is_array() && HasAny(flat, kOfArrays)) return std::nullopt;
  if (value.is_number() && HasAny(flat, kOfNumbers)) {
    const double number = value.get<double>();
    if (flat.contains("multipleOf") || std::abs(number) > 1e15) return std::nullopt;
    return number >= bound("minimum", -INFINITY) && number <= bound("maximum", INFINITY) &&
           number > bound("exclusiveMinimum", -INFINITY) &&
           number < bound("exclusiveMaximum", INFINITY);
  }
  if (!value.is_string()) return true;
  const std::string text = value.get<std::string>();
  if (flat.contains("pattern")) return std::nullopt;
  const auto length = static_cast<double>(CodePointCount(text));
  return length >= bound("minLength", 0) && length <= bound("maxLength", INFINITY);
}

// The values that "not" refuses, where it says no more than that; else null.
Schema DeniedValues(const Schema& flat) {
  const auto denied = flat.find("not");
  const bool counted = denied != flat.end() && denied->is_object() && denied->size() == 1 &&
                       denied->contains("enum") && denied->at("enum").is_array();
  return counted ? denied->at("enum") : Schema();
}

bool Has(const Schema& list, const Schema& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

std::string Dumped(const Schema& schema) {
  return schema.dump(-1, ' ', false, Schema::error_handler_t::replace);
}

// Decimal texts whose value is a multiple of `step`: a rule for each remainder.
std::string MultiplesBody(int64_t step, GrammarText* text) {
  std::vector<std::string> rules;
  for (int64_t i = 0; i < step; ++i) rules.push_back(text->Declare());
  const auto ways = [&](int64_t remainder, char first) {
    std::vector<std::string> next;
    for (char digit = first; digit <= '9'; ++digit) {
      next.push_back(absl::StrCat("\"", std::string(1, digit), "\" ",
                                  rules[(remainder * 10 + (digit - '0')) % step]));
    }
    return absl::StrJoin(next, " | ");
  };
  for (int64_t i = 0; i < step; ++i) {
    text->Define(rules[i], absl::StrCat(i == 0 ? "\"\" | " : "", ways(i, '0')));
  }
  return absl::StrCat("\"0\" | \"-\"? (", ways(0, '1'), ")");
}

}  // namespace

SchemaWriter::SchemaWriter(const Schema& root, SchemaMode mode, GrammarText* text,
                           RawTextGrammar* raw)
    : root_(root), mode_(mode), text_(*text), json_(text), raw_(raw) {}

absl::Status SchemaWriter::Invalid(const std::string& place, std::string_view keyword,
                                   std::string_view what) const {
  return absl::InvalidArgumentError(
      absl::StrCat("the schema of ", place, ": ", std::string(keyword), " ", std::string(what)));
}

absl::Status SchemaWriter::Refuse(const std::string& place, std::string_view keyword,
                                  std::string_view why) {
  const absl::Status refusal = Invalid(
      place, keyword, absl::StrCat("is not enforced", why.empty() ? "" : " ", std::string(why)));
  if (mode_ == SchemaMode::kStrict) return refusal;
  left_out_.emplace_back(refusal.message());
  return absl::OkStatus();
}

void SchemaWriter::Need(std::vector<std::string> rules) {
  needs_[open_.back()].push_back(std::move(rules));
}

SchemaWriter::Body SchemaWriter::RuleOf(const Schema& schema, const std::string& place) {
  if (schema == Schema(true)) return AnyValue();
  if (schema == Schema(false)) return absl::NotFoundError("false allows no value");
  const std::string key = Dumped(schema);
  if (const auto known = rules_.find(key); known != rules_.end()) return known->second;
  if (++nodes_ > kMaxSchemaNodes)
    return Invalid(place, "all of it", absl::StrCat("has more than ", kMaxSchemaNodes, " parts"));
  if (open_.size() >= kMaxSchemaDepth)
    return Invalid(place, "all of it", absl::StrCat("nests deeper than ", kMaxSchemaDepth));
  const absl::StatusOr<Schema> flat = FlattenSchema(root_, schema);
  if (!flat.ok()) return Invalid(place, "", std::string(flat.status().message()));
  if (flat->is_boolean()) return RuleOf(*flat, place);
  if (const std::optional<Schema> rewritten = RewriteSchema(*flat))
    return RuleOf(*rewritten, place);
  const std::string rule = text_.Declare();
  rules_[key] = rule;
  open_.push_back(rule);
  Body body = BodyOf(*flat, place);
  open_.pop_back();
  if (!body.ok()) {
    rules_.erase(key);
    return body;
  }
  if (text_.size_bytes() + body->size() > kMaxGrammarBytes)
    return Invalid(place, "all of it", "makes too large a grammar");
  text_.Define(rule, *body);
  return rule;
}

absl::Status SchemaWriter::CheckEnds(const std::string& rule) const {
  std::set<std::string> endless;
  for (const auto& [name, ways] : needs_) endless.insert(name);
  for (bool changed = true; changed;) {
    changed = false;
    for (auto it = endless.begin(); it != endless.end();) {
      const auto& ways = needs_.at(*it);
      const bool ends = std::any_of(ways.begin(), ways.end(), [&](const auto& way) {
        return std::none_of(way.begin(), way.end(),
                            [&](const std::string& needed) { return endless.contains(needed); });
      });
      changed |= ends;
      it = ends ? endless.erase(it) : std::next(it);
    }
  }
  if (!endless.contains(rule)) return absl::OkStatus();
  return absl::InvalidArgumentError("the schema demands itself for ever: no value is finite");
}

// Where only strings are written, they are what is left of the types.
absl::StatusOr<std::vector<std::string>> SchemaWriter::TypesOf(const Schema& flat,
                                                               const std::string& place) const {
  auto types = TypesNamed(flat);
  if (absl::IsInvalidArgument(types.status()))
    return Invalid(place, "type", std::string(types.status().message()));
  if (!types.ok() || raw_ == nullptr) return types;
  if (flat.contains("type") && std::find(types->begin(), types->end(), "string") == types->end())
    return absl::NotFoundError("it has no string");
  return std::vector<std::string>{"string"};
}

SchemaWriter::Body SchemaWriter::BodyOf(const Schema& flat, const std::string& place) {
  for (const char* keyword : {"not", "if", "$dynamicRef", "$recursiveRef"}) {
    if (!flat.contains(keyword) || !DeniedValues(flat).is_null()) continue;
    if (absl::Status s = Refuse(place, keyword); !s.ok()) return s;
  }
  for (const char* keyword : {"anyOf", "oneOf"}) {
    if (flat.contains(keyword)) return WaysBody(flat, keyword, place);
  }
  if (flat.contains("enum") || flat.contains("const")) return ValuesBody(flat, place);
  auto types = TypesOf(flat, place);
  if (!types.ok()) return types.status();
  if (types->empty() && DeniedValues(flat).empty()) {
    Need({});
    return AnyValue();
  }
  if (types->empty()) types->assign(kTypes.begin(), kTypes.end());
  std::vector<std::string> bodies;
  for (const std::string& type : *types) {
    const bool wider = std::find(types->begin(), types->end(), "number") != types->end();
    if (type == "integer" && wider) continue;
    Body body = TypeBody(type, flat, place);
    if (absl::IsNotFound(body.status())) continue;
    if (!body.ok()) return body;
    bodies.push_back(absl::StrCat("(", *body, ")"));
  }
  if (bodies.empty()) return absl::NotFoundError("no type has a value");
  return absl::StrJoin(bodies, " | ");
}

SchemaWriter::Body SchemaWriter::TypeBody(const std::string& type, const Schema& flat,
                                          const std::string& place) {
  if (const Schema denied = DeniedValues(flat); !denied.empty()) {
    if (type == "boolean" || type == "null") {
      Schema left = flat;
      left["enum"] = type == "null" ? Schema::array({nullptr}) : Schema::array({true, false});
      return ValuesBody(left, place);
    }
    const bool counts = std::any_of(denied.begin(), denied.end(), [&](const Schema& value) {
      return type != "string" && HasType(value, type == "integer" ? "number" : type);
    });
    if (counts) {
      if (absl::Status s = Refuse(place, "not"); !s.ok()) return s;
    }
  }
  if (type == "object") return ObjectBodyOf(flat, place);
  if (type == "array") return ArrayBodyOf(flat, place);
  Need({});
  if (type == "string") return StringBody(flat, place);
  if (type == "boolean") return "\"true\" | \"false\"";
  if (type == "null") return "\"null\"";
  return NumberBodyOf(flat, type == "integer", place);
}

// anyOf and oneOf: each way with what stands beside it.
SchemaWriter::Body SchemaWriter::WaysBody(const Schema& flat, const char* keyword,
                                          const std::string& place) {
  const Schema& ways = flat.at(keyword);
  if (!ways.is_array() || ways.empty()) return Invalid(place, keyword, "must be an array");
  Schema beside = Schema::object();
  for (const auto& [name, value] : flat.items()) {
    if (name != keyword && !IsAnnotation(name)) beside[name] = value;
  }
  std::vector<Schema> wholes;
  const auto with_beside = [&](const Schema& way) {
    if (beside.empty()) return way;
    Schema whole = beside;
    whole["allOf"] = Schema::array({way});
    return whole;
  };
  for (const Schema& way : ways) wholes.push_back(with_beside(way));
  if (std::string_view(keyword) == "anyOf" || SchemasApart(root_, wholes))
    return AnyBody(wholes, place);
  // What only keeps values apart does not count as evaluated.
  const bool counts = flat.contains("unevaluatedProperties") || flat.contains("unevaluatedItems");
  auto narrowed = counts || !narrows_
                      ? std::nullopt
                      : WithoutCommonValues(root_, std::vector<Schema>(ways.begin(), ways.end()));
  if (narrowed.has_value()) {
    for (Schema& way : *narrowed) way = with_beside(way);
    Body body = AnyBody(*narrowed, place);
    if (body.ok() || absl::IsNotFound(body.status())) return body;
    needs_.erase(open_.back());
  }
  absl::Status s = Refuse(place, keyword, "where its schemas may accept the same value");
  if (!s.ok()) return s;
  return AnyBody(wholes, place);
}

SchemaWriter::Body SchemaWriter::AnyBody(const std::vector<Schema>& ways,
                                         const std::string& place) {
  std::vector<std::string> rules;
  for (const Schema& way : ways) {
    Body rule = RuleOf(way, place);
    if (absl::IsNotFound(rule.status())) continue;
    if (!rule.ok()) return rule;
    Need({*rule});
    rules.push_back(*std::move(rule));
  }
  if (rules.empty()) return absl::NotFoundError("no way has a value");
  return absl::StrJoin(rules, " | ");
}

SchemaWriter::Body SchemaWriter::ValuesBody(const Schema& flat, const std::string& place) {
  Schema values = Schema::array();
  if (flat.contains("enum")) {
    values = flat.at("enum");
    if (!values.is_array()) return Invalid(place, "enum", "must be an array");
    if (flat.contains("const")) {
      const bool among = std::find(values.begin(), values.end(), flat.at("const")) != values.end();
      values = among ? Schema::array({flat.at("const")}) : Schema::array();
    }
  } else {
    values.push_back(flat.at("const"));
  }
  const auto types = TypesOf(flat, place);
  if (!types.ok()) return types.status();
  const Schema denied = DeniedValues(flat);
  std::vector<std::string> bodies;
  for (const Schema& value : values) {
    const bool fits = !flat.contains("type") ||
                      std::any_of(types->begin(), types->end(),
                                  [&](const std::string& type) { return HasType(value, type); });
    if (!fits || Has(denied, value)) continue;
    const std::optional<bool> allowed = IsAllowed(flat, value);
    if (allowed == false) continue;
    if (!allowed.has_value()) {
      if (absl::Status s = Refuse(place, "enum", "beside other keywords"); !s.ok()) return s;
    }
    if (raw_ == nullptr) {
      bodies.push_back(GrammarText::Quoted(Dumped(value)));
    } else if (value.is_string()) {
      const std::string exactly = raw_->Exactly(value.get<std::string>());
      if (!exactly.empty()) bodies.push_back(exactly);
    }
  }
  if (bodies.empty()) return absl::NotFoundError("no value is left");
  Need({});
  return absl::StrJoin(bodies, " | ");
}

absl::StatusOr<std::optional<int64_t>> SchemaWriter::Count(const Schema& flat, const char* keyword,
                                                           const std::string& place) const {
  const auto found = flat.find(keyword);
  if (found == flat.end()) return std::nullopt;
  const bool whole = found->is_number() && HasType(*found, "integer") && found->get<double>() >= 0;
  if (!whole) return Invalid(place, keyword, "must be a whole number, 0 or more");
  return static_cast<int64_t>(std::min(found->get<double>(), 1e9));
}

SchemaWriter::Body SchemaWriter::StringBody(const Schema& flat, const std::string& place) {
  std::vector<std::string> denied;
  for (const Schema& value : DeniedValues(flat)) {
    if (value.is_string()) denied.push_back(value.get<std::string>());
  }
  if (!denied.empty()) {
    Schema other = flat;
    if (flat.value("minLength", Schema()) == Schema(1)) {
      denied.emplace_back();
      other.erase("minLength");
    }
    if (!HasAny(other, kOfStrings) && raw_ == nullptr) return KeyBeside(denied, &text_);
    if (absl::Status s = Refuse(place, "not", "beside other keywords"); !s.ok()) return s;
  }
  const auto min = Count(flat, "minLength", place), max = Count(flat, "maxLength", place);
  if (!min.ok()) return min.status();
  if (!max.ok()) return max.status();
  std::optional<PatternLengths> lengths;
  if (min->has_value() || max->has_value()) lengths = {min->value_or(0), max->value_or(-1)};
  if (lengths.has_value() && lengths->max >= 0 && lengths->min > lengths->max)
    return absl::NotFoundError("no string is so long");
  std::optional<std::string> pattern;
  const char* keyword = "pattern";
  if (flat.contains("pattern")) {
    if (!flat.at("pattern").is_string()) return Invalid(place, keyword, "must be a string");
    pattern = flat.at("pattern").get<std::string>();
  } else if (flat.contains("format") && flat.at("format").is_string()) {
    keyword = "format";
    pattern = PatternOfFormat(flat.at("format").get<std::string>());
  }
  if (pattern.has_value()) {
    const auto body = raw_ != nullptr ? raw_->Matching(*pattern, lengths)
                                      : PatternBody(*pattern, json_.characters(), lengths, &text_);
    if (body.ok()) return raw_ != nullptr ? *body : absl::StrCat("\"\\\"\" (", *body, ") \"\\\"\"");
    // A format is a remark in most dialects: a length beside it counts more.
    const bool is_remark = std::string_view(keyword) == "format";
    if (!is_remark) {
      absl::Status s = Refuse(
          place, keyword,
          absl::StrCat(Dumped(Schema(*pattern)), ": ", std::string(body.status().message())));
      if (!s.ok()) return s;
    }
  }
  if (!lengths.has_value()) return raw_ == nullptr ? json_.string() : raw_->string();
  return BoundedStringBody(*lengths, place);
}

SchemaWriter::Body SchemaWriter::BoundedStringBody(PatternLengths lengths,
                                                   const std::string& place) {
  const int64_t max_length = raw_ == nullptr ? kMaxLength : RawTextGrammar::kMaxCounted;
  if (lengths.max > max_length) {
    absl::Status s = Refuse(place, "maxLength", absl::StrCat("above ", max_length));
    if (!s.ok()) return s;
    lengths.max = -1;
  }
  if (lengths.min > kMaxMinLength) {
    absl::Status s = Refuse(place, "minLength", absl::StrCat("above ", kMaxMinLength));
    if (!s.ok()) return s;
    lengths.min = kMaxMinLength;
  }
  if (raw_ != nullptr) return raw_->StringOf(lengths.min, lengths.max);
  return json_.StringOf(lengths.min, lengths.max);
}

SchemaWriter::Body SchemaWriter::NumberBodyOf(const Schema& flat, bool integer,
                                              const std::string& place) {
  struct Given {
    std::string number;
    bool excluded;
    bool lowest;
  };
  std::vector<Given> given;
  int decimals = 0;
  for (const char* keyword : {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}) {
    const auto found = flat.find(keyword);
    if (found == flat.end() || found->is_boolean()) continue;
    if (!found->is_number()) return Invalid(place, keyword, "must be a number");
    const std::string_view name = keyword;
    const bool lowest = name.ends_with("inimum");
    // Draft 4 says with true that the bound itself is excluded.
    const char* const flag = lowest ? "exclusiveMinimum" : "exclusiveMaximum";
    const bool excluded =
        name.starts_with("exclusive") || flat.value(flag, Schema()) == Schema(true);
    given.push_back({Dumped(*found), excluded, lowest});
    const std::optional<int> needed = DecimalsOf(given.back().number);
    if (!needed.has_value()) {
      if (absl::Status s = Refuse(place, keyword, "with so many decimals"); !s.ok()) return s;
      given.pop_back();
    } else {
      decimals = std::max(decimals, *needed);
    }
  }
  DecimalBounds bounds = {.decimals = decimals};
  for (const Given& one : given) {
    DecimalBound bound = *ParseDecimal(one.number, decimals);
    bound.excluded = one.excluded;
    std::optional<DecimalBound>& kept = one.lowest ? bounds.lowest : bounds.highest;
    const int64_t sign = one.lowest ? 1 : -1;
    const bool tighter = !kept.has_value() || sign * bound.units > sign * kept->units ||
                         (bound.units == kept->units && bound.excluded);
    if (tighter) kept = bound;
  }
  if (flat.contains("multipleOf")) {
    const Schema& step = flat.at("multipleOf");
    const bool whole =
        HasType(step, "integer") && step.get<double>() >= 1 && step.get<double>() <= kMaxMultiple;
    if (whole && given.empty() && step.get<double>() > 1)
      return MultiplesBody(step.get<int64_t>(), &text_);
    if (!whole || step.get<double>() > 1) {
      absl::Status s =
          Refuse(place, "multipleOf", whole ? "beside bounds" : "beyond whole numbers up to 100");
      if (!s.ok()) return s;
    } else {
      integer = true;
    }
  }
  return integer ? IntegerWithin(bounds) : NumberBody(bounds);
}

absl::StatusOr<SchemaGrammar> AddSchema(const Schema& schema, SchemaMode mode, GrammarText* text) {
  if (Dumped(schema).size() > kMaxSchemaBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the schema is larger than ", kMaxSchemaBytes, " bytes"));
  }
  SchemaWriter writer(schema, mode, text);
  absl::StatusOr<std::string> rule = writer.RuleOf(schema, "$");
  if (absl::IsNotFound(rule.status())) {
    return absl::InvalidArgumentError("no value satisfies the schema");
  }
  if (!rule.ok()) return rule.status();
  if (absl::Status s = writer.CheckEnds(*rule); !s.ok()) return s;
  return SchemaGrammar{*std::move(rule), writer.TakeLeftOut()};
}

}  // namespace tessera::coordinator
