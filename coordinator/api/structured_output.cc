#include "coordinator/api/structured_output.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/api/body_reader.h"
#include "coordinator/api/front_door.h"
#include "coordinator/tokenizer/text/split_json.h"
#include "third_party/spdlog/log.h"
#include "third_party/xgrammar/token_grammar.h"

namespace tessera::coordinator {
namespace {

using Ordered = nlohmann::ordered_json;
using Grammar = absl::StatusOr<AnswerGrammar>;

constexpr char kFormat[] = "response_format";
constexpr char kOutputs[] = "structured_outputs";

absl::Status Invalid(const std::string& field, std::string_view what) {
  const std::string top = field.substr(0, field.find('.'));
  return FieldError(top, absl::StrCat(field, ": ", std::string(what)));
}

// The schema itself, or a text that holds it.
absl::StatusOr<Ordered> SchemaOf(const Ordered& value, const std::string& field) {
  if (value.is_object() || value.is_boolean()) return value;
  if (!value.is_string()) return Invalid(field, "a JSON schema is expected: an object");
  const std::string text = absl::StrCat("{\"schema\":", value.get<std::string>(), "}");
  const absl::StatusOr<SplitJson> read = ParseSplit(text, field, JsonLimits(), {"schema"});
  // It begins with the field.
  if (!read.ok())
    return FieldError(field.substr(0, field.find('.')), std::string(read.status().message()));
  return Member(read->ordered, "schema");
}

Grammar OfSchema(const Ordered& value, const std::string& field, SchemaMode mode) {
  const absl::StatusOr<Ordered> schema = SchemaOf(value, field);
  if (!schema.ok()) return schema.status();
  Grammar grammar = AnswerGrammar::OfSchema(*schema, mode);
  if (!grammar.ok()) return Invalid(field, std::string(grammar.status().message()));
  return grammar;
}

Grammar OfText(const Ordered& value, const std::string& field,
               Grammar (*read)(const std::string& text)) {
  if (!value.is_string()) return Invalid(field, "a string is expected");
  Grammar grammar = read(value.get<std::string>());
  if (!grammar.ok()) return Invalid(field, std::string(grammar.status().message()));
  return grammar;
}

Grammar OfChoices(const Ordered& value, const std::string& field) {
  std::vector<std::string> choices;
  for (const Ordered& choice : value) {
    if (!value.is_array() || !choice.is_string())
      return Invalid(field, "an array of strings is expected");
    choices.push_back(choice.get<std::string>());
  }
  Grammar grammar = AnswerGrammar::OfChoices(choices);
  if (!grammar.ok()) return Invalid(field, std::string(grammar.status().message()));
  return grammar;
}

// The kinds of structured_outputs; guided_KIND is the same.
Grammar OfKind(const std::string& kind, const Ordered& value, const std::string& field) {
  if (kind == "json") return OfSchema(value, field, SchemaMode::kStrict);
  if (kind == "regex")
    return OfText(value, field, [](const std::string& s) { return AnswerGrammar::OfRegex(s); });
  if (kind == "grammar")
    return OfText(value, field, [](const std::string& s) { return AnswerGrammar::OfEbnf(s); });
  return OfChoices(value, field);
}

// A schema beside `strict`.
Grammar OfWrapped(const Ordered& described, const std::string& field) {
  const Ordered& strict = Member(described, "strict");
  if (!strict.is_null() && !strict.is_boolean())
    return Invalid(absl::StrCat(field, ".strict"), "true or false is expected");
  return OfSchema(Member(described, "schema"), absl::StrCat(field, ".schema"),
                  strict == false ? SchemaMode::kLoose : SchemaMode::kStrict);
}

Grammar OfResponseFormat(const Ordered& format) {
  const Ordered& type = Member(format, "type");
  // llama.cpp's: the schema without its wrapping. One that says nothing is no more than the type.
  if (const Ordered& schema = Member(format, "schema"); !schema.is_null()) {
    if (type == "json_object" && schema != true && schema != Ordered::object())
      return OfSchema(schema, absl::StrCat(kFormat, ".schema"), SchemaMode::kStrict);
    if (type == "json_schema" && !format.contains("json_schema")) return OfWrapped(format, kFormat);
  }
  if (type == "json_object") return AnswerGrammar::OfAnyObject();
  if (type != "json_schema") {
    return Invalid(
        kFormat,
        "{\"type\": \"text\"}, {\"type\": \"json_object\"} or {\"type\": "
        "\"json_schema\", \"json_schema\": {\"name\": ..., \"schema\": ...}} is expected");
  }
  const std::string field = absl::StrCat(kFormat, ".json_schema");
  const Ordered& described = Member(format, "json_schema");
  if (!Member(described, "schema").is_object())
    return Invalid(absl::StrCat(field, ".schema"), "an object is expected");
  return OfWrapped(described, field);
}

}  // namespace

absl::StatusOr<StructuredOutput> ReadStructuredOutput(BodyReader& reader, const Ordered& ordered) {
  StructuredOutput output;
  std::string given;  // the field that was read
  const auto take = [&](const std::string& field, Grammar grammar) -> absl::Status {
    if (!HasTokenGrammars()) return Invalid(field, std::string(NoTokenGrammars().message()));
    if (!given.empty()) return Invalid(field, absl::StrCat("not together with ", given));
    if (!grammar.ok()) return grammar.status();
    given = field;
    if (!grammar->left_out().empty()) {
      output.not_enforced.push_back(field);
      for (const std::string& what : grammar->left_out())
        Logger("api").info("{} without strict: {}", field, what);
    }
    output.grammar = *std::move(grammar);
    return absl::OkStatus();
  };
  const Ordered& format = Member(ordered, kFormat);
  if (reader.Find(kFormat) != nullptr && Member(format, "type") != "text") {
    if (absl::Status s = take(kFormat, OfResponseFormat(format)); !s.ok()) return s;
  }
  for (const char* kind : {"json", "regex", "choice", "grammar"}) {
    const std::string field = absl::StrCat("guided_", kind);
    if (reader.Find(field.c_str()) == nullptr) continue;
    absl::Status s = take(field, OfKind(kind, Member(ordered, field), field));
    if (!s.ok()) return s;
  }
  reader.Object(kOutputs);
  for (const auto& [kind, value] : Member(ordered, kOutputs).items()) {
    const std::string field = absl::StrCat(kOutputs, ".", kind);
    if (value.is_null() || value == false) continue;
    const bool known = kind == "json" || kind == "regex" || kind == "grammar" || kind == "choice";
    Grammar grammar = known                   ? OfKind(kind, value, field)
                      : kind == "json_object" ? Grammar(AnswerGrammar::OfAnyObject())
                                              : Invalid(field, "not supported yet");
    if (absl::Status s = take(field, std::move(grammar)); !s.ok()) return s;
  }
  return output;
}

}  // namespace tessera::coordinator
