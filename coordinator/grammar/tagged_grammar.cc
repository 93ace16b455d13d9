#include "coordinator/grammar/tagged_grammar.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "coordinator/grammar/code_points.h"
#include "coordinator/grammar/raw_text_grammar.h"
#include "coordinator/grammar/schema_merge.h"
#include "coordinator/grammar/schema_writer.h"

namespace tessera::coordinator {
namespace {

using Schema = nlohmann::ordered_json;

// Members of an object's schema that these rules hold.
constexpr auto kHeld = std::to_array<std::string_view>(
    {"type", "properties", "required", "additionalProperties", "unevaluatedProperties"});

std::string Member(const TaggedForm& form, const std::string& key, const std::string& value) {
  return absl::StrCat(GrammarText::Quoted(form.key_opening), " ", key, " ", value, " ",
                      GrammarText::Quoted(form.behind_value));
}

std::string AnyKey() {
  CodePoints set = CodePoints::Of(0, ' ');
  for (const char c : std::string_view("<>\"")) set.Add(c, c);
  return absl::StrCat(set.Complement().AsClass(), "{1,64}");
}

bool CanBeKey(const std::string& name) {
  return !name.empty() && name.find_first_of("<>\"\n\r\t") == name.npos && name.front() != ' ' &&
         name.back() != ' ';
}

class TaggedWriter {
 public:
  TaggedWriter(const Schema& root, SchemaMode mode, const TaggedForm& form, GrammarText* text)
      : mode_(mode),
        form_(form),
        text_(*text),
        raw_(form.value_closing, form.other_closing, text),
        texts_(root, mode, text, &raw_),
        values_(root, mode, text) {
    // What is left of such schemas may be strings beside other values: where one that stands in a
    // tag ends, no reader could tell.
    texts_.RefuseCommonValues();
    values_.RefuseCommonValues();
  }

  absl::StatusOr<std::string> Arguments(
      const Schema& flat, const std::function<bool(const std::string&)>& reads_as_text) {
    if (absl::Status s = CheckKeywords(flat); !s.ok()) return s;
    const Schema properties = flat.value("properties", Schema::object());
    const Schema required = flat.value("required", Schema::array());
    if (!properties.is_object() || !required.is_array())
      return Invalid("properties and required must be an object and an array");
    Schema all = properties;
    for (const Schema& name : required) {
      if (!name.is_string()) return Invalid("required must be an array of names");
      if (!all.contains(name.get<std::string>()))
        all[name.get<std::string>()] = flat.value("additionalProperties", Schema(true));
    }
    std::vector<std::string> members;
    for (const auto& [name, schema] : all.items()) {
      const bool needed = std::find(required.begin(), required.end(), name) != required.end();
      absl::StatusOr<std::string> value = Value(name, schema, reads_as_text(name));
      if (value.ok() && !CanBeKey(name))
        value = absl::NotFoundError(absl::StrCat("no tag can hold the name ", name));
      if (absl::IsNotFound(value.status()) && !needed) continue;
      if (!value.ok()) return value;
      const std::string member = Member(form_, GrammarText::Quoted(name), *value);
      members.push_back(needed ? member : absl::StrCat("(", text_.Add(member), ")?"));
    }
    const absl::StatusOr<std::string> others = Others(flat, all.empty());
    if (!others.ok()) return others;
    if (!others->empty()) members.push_back(absl::StrCat("(", *others, ")*"));
    return members.empty() ? std::string("\"\"") : absl::StrJoin(members, " ");
  }

  std::vector<std::string> TakeLeftOut() {
    for (SchemaWriter* const writer : {&texts_, &values_}) {
      for (std::string& what : writer->TakeLeftOut()) left_out_.push_back(std::move(what));
    }
    return std::move(left_out_);
  }

 private:
  static absl::Status Invalid(std::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("the schema of $: ", std::string(what)));
  }

  absl::Status CheckKeywords(const Schema& flat) {
    for (const auto& [keyword, value] : flat.items()) {
      if (IsAnnotation(keyword) || std::find(kHeld.begin(), kHeld.end(), keyword) != kHeld.end())
        continue;
      const absl::Status refusal =
          Invalid(absl::StrCat(keyword, " is not enforced where arguments are tags"));
      if (mode_ == SchemaMode::kStrict) return refusal;
      left_out_.emplace_back(refusal.message());
    }
    return absl::OkStatus();
  }

  // What stands between a key and the next.
  absl::StatusOr<std::string> Value(const std::string& name, const Schema& schema, bool is_text) {
    const std::string place = absl::StrCat("$.", name);
    SchemaWriter& writer = is_text ? texts_ : values_;
    absl::StatusOr<std::string> rule = writer.RuleOf(schema, place);
    if (!rule.ok()) return rule;
    if (absl::Status s = writer.CheckEnds(*rule); !s.ok()) return s;
    if (is_text) return absl::StrCat(GrammarText::Quoted(form_.before_text), " ", *rule);
    return absl::StrCat(GrammarText::Quoted(form_.before_json), " (", *rule, InPython(schema), ") ",
                        GrammarText::Quoted(form_.value_closing));
  }

  // As templates write some values, where tags do not say that a value is JSON.
  std::string InPython(const Schema& schema) const {
    if (form_.before_text != form_.before_json) return "";
    if (!schema.is_object() || schema.contains("enum") || schema.contains("const")) return "";
    const Schema type = schema.value("type", Schema());
    if (type == "boolean") return R"( | "True" | "False")";
    return type == "null" ? R"( | "None")" : "";
  }

  // A member that is not declared; empty: there is none.
  absl::StatusOr<std::string> Others(const Schema& flat, bool none_declared) {
    const Schema schema = flat.value("additionalProperties", Schema(none_declared));
    if (!none_declared || schema == Schema(false) ||
        flat.value("unevaluatedProperties", Schema(true)) == Schema(false)) {
      return std::string();
    }
    const absl::StatusOr<std::string> value = Value("*", schema, /*is_text=*/true);
    if (absl::IsNotFound(value.status())) return std::string();
    if (!value.ok()) return value;
    return text_.Add(Member(form_, AnyKey(), *value));
  }

  const SchemaMode mode_;
  const TaggedForm& form_;
  GrammarText& text_;
  RawTextGrammar raw_;
  SchemaWriter texts_, values_;
  std::vector<std::string> left_out_;
};

}  // namespace

absl::StatusOr<SchemaGrammar> AddTaggedArguments(
    const Schema& schema, SchemaMode mode, const TaggedForm& form,
    const std::function<bool(const std::string& property)>& reads_as_text, GrammarText* text) {
  if (schema.dump(-1, ' ', false, Schema::error_handler_t::replace).size() > kMaxSchemaBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the schema is larger than ", kMaxSchemaBytes, " bytes"));
  }
  const absl::StatusOr<Schema> flat = FlattenSchema(schema, schema);
  if (!flat.ok()) return flat.status();
  if (!flat->is_object() && *flat != Schema(true))
    return absl::InvalidArgumentError("no arguments satisfy the schema");
  TaggedWriter writer(schema, mode, form, text);
  const Schema object = flat->is_object() ? *flat : Schema::object();
  absl::StatusOr<std::string> body = writer.Arguments(object, reads_as_text);
  if (absl::IsNotFound(body.status()))
    return absl::InvalidArgumentError("no arguments satisfy the schema");
  if (!body.ok()) return body.status();
  return SchemaGrammar{text->Add(*body), writer.TakeLeftOut()};
}

std::string AnyTaggedArguments(const TaggedForm& form, GrammarText* text) {
  const RawTextGrammar raw(form.value_closing, form.other_closing, text);
  const std::string value = absl::StrCat(GrammarText::Quoted(form.before_text), " ", raw.string());
  return text->Add(absl::StrCat("(", Member(form, AnyKey(), value), ")*"));
}

}  // namespace tessera::coordinator
