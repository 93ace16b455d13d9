#include "coordinator/http_door/openapi.h"

#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/ascii.h"

namespace tessera::coordinator {
namespace {

using Json = nlohmann::ordered_json;

std::string Lower(std::string_view text) { return absl::AsciiStrToLower(std::string(text)); }

// A schema of one type, or null: an absent field and null are the same.
Json Nullable(const char* type) { return {{"type", {type, "null"}}}; }

Json TokenIdsSchema() {
  return {{"type", "array"},
          {"items", {{"type", "integer"}, {"minimum", 0}, {"maximum", 2147483647}}}};
}

Json ObjectSchema(std::span<const RequestField> fields);

Json PromptSchema() {
  const Json texts = {{"type", "array"}, {"items", {{"type", "string"}}}, {"minItems", 1}};
  const Json many = {{"type", "array"}, {"items", TokenIdsSchema()}, {"minItems", 1}};
  return {{"anyOf", {{{"type", "string"}}, texts, TokenIdsSchema(), many}}};
}

Json MessagesSchema() {
  const Json part = {
      {"type", "object"},
      {"properties", {{"type", {{"const", "text"}}}, {"text", {{"type", "string"}}}}},
      {"required", {"type", "text"}}};
  const Json content = {
      {"anyOf", {{{"type", {"string", "null"}}}, {{"type", "array"}, {"items", part}}}}};
  const Json message = {{"type", "object"},
                        {"properties", {{"role", {{"type", "string"}}}, {"content", content}}},
                        {"required", Json::array({"role"})}};
  return {{"type", "array"}, {"items", message}, {"minItems", 1}};
}

Json ToolsSchema() {
  const Json function = {{"type", "object"},
                         {"properties",
                          {{"name", {{"type", "string"}, {"minLength", 1}}},
                           {"description", Nullable("string")},
                           {"parameters", Nullable("object")},
                           {"strict", Nullable("boolean")}}},
                         {"required", Json::array({"name"})}};
  const Json tool = {{"type", "object"},
                     {"properties", {{"type", {{"const", "function"}}}, {"function", function}}},
                     {"required", {"type", "function"}}};
  return {{"type", "array"}, {"items", tool}};
}

Json ToolChoiceSchema() {
  const Json function = {{"type", "object"},
                         {"properties", {{"name", {{"type", "string"}}}}},
                         {"required", Json::array({"name"})}};
  const Json chosen = {{"type", "object"},
                       {"properties", {{"type", {{"const", "function"}}}, {"function", function}}},
                       {"required", {"type", "function"}}};
  return {{"anyOf", {Json{{"enum", {"none", "auto", "required", nullptr}}}, chosen}}};
}

Json RefusedSchema(const RequestField& field) {
  Json values = {nullptr, false, "", Json::array()};
  if (!field.harmless.empty()) {
    values.push_back(std::string(field.harmless));
    values.push_back(Json::array({std::string(field.harmless)}));
  }
  return {{"enum", std::move(values)}, {"description", std::string(field.reason)}};
}

Json OrNull(Json schema) {
  return {{"anyOf", Json::array({std::move(schema), Json{{"type", "null"}}})}};
}

Json SchemaOf(const RequestField& field) {
  Json schema;
  switch (field.kind) {
    case FieldKind::kBool: return Nullable("boolean");
    case FieldKind::kString: return Nullable("string");
    case FieldKind::kObject: return Nullable("object");
    case FieldKind::kInteger:
      schema = Nullable("integer");
      schema["minimum"] = field.lowest;
      schema["maximum"] = field.highest;
      return schema;
    case FieldKind::kNumber:
      schema = Nullable("number");
      schema[field.above_min ? "exclusiveMinimum" : "minimum"] = field.min;
      schema["maximum"] = field.max;
      return schema;
    case FieldKind::kStrings:
      return {
          {"anyOf",
           {{{"type", {"string", "null"}}},
            {{"type", "array"}, {"items", {{"type", "string"}}}, {"maxItems", field.highest}}}}};
    case FieldKind::kTokenIds: return field.required ? TokenIdsSchema() : OrNull(TokenIdsSchema());
    case FieldKind::kLogitBias:
      schema = Nullable("object");
      schema["additionalProperties"] = {{"type", "number"}, {"minimum", -100}, {"maximum", 100}};
      return schema;
    case FieldKind::kPrompt: return OrNull(PromptSchema());
    case FieldKind::kMessages: return field.required ? MessagesSchema() : OrNull(MessagesSchema());
    case FieldKind::kTools: return OrNull(ToolsSchema());
    case FieldKind::kToolChoice: return ToolChoiceSchema();
    case FieldKind::kStreamOptions: return OrNull(ObjectSchema(StreamOptionFields()));
    case FieldKind::kResponseFormat:
      return OrNull({{"type", "object"},
                     {"properties",
                      {{"type", {{"enum", {"text", "json_object", "json_schema"}}}},
                       {"json_schema",
                        {{"type", "object"},
                         {"properties",
                          {{"name", {{"type", "string"}}},
                           {"schema", {{"type", "object"}}},
                           {"strict", Nullable("boolean")}}},
                         {"required", Json::array({"schema"})}}}}},
                     {"required", Json::array({"type"})}});
    case FieldKind::kJsonSchema: return {{"type", {"object", "boolean", "string", "null"}}};
    case FieldKind::kRefused: return RefusedSchema(field);
    case FieldKind::kDocument: return Json::object();
  }
  return Json::object();
}

Json ObjectSchema(std::span<const RequestField> fields) {
  Json schema = {{"type", "object"}, {"properties", Json::object()}};
  Json required = Json::array();
  for (const RequestField& field : fields) {
    schema["properties"][std::string(field.name)] = SchemaOf(field);
    if (field.required) required.push_back(std::string(field.name));
  }
  if (!required.empty()) schema["required"] = std::move(required);
  return schema;
}

Json ErrorSchema() {
  const Json error = {{"type", "object"},
                      {"properties",
                       {{"message", {{"type", "string"}}},
                        {"type", {{"type", "string"}}},
                        {"param", Nullable("string")},
                        {"code", Nullable("string")}}},
                      {"required", {"message", "type", "param", "code"}}};
  return {
      {"type", "object"}, {"properties", {{"error", error}}}, {"required", Json::array({"error"})}};
}

// Headers of a call that generates (fairness/asked_deadline.h, flow/resumption.h).
Json GeneratingParameters() {
  const auto header = [](const char* name, const char* description, Json schema) {
    return Json{{"name", name},
                {"in", "header"},
                {"required", false},
                {"description", description},
                {"schema", std::move(schema)}};
  };
  return Json::array(
      {header("x-request-deadline",
              "When the answer should be there: seconds from now, or a time (RFC 3339).",
              {{"type", "string"}, {"pattern", "^[0-9]{1,3}(\\.[0-9]{1,3})?s?$"}}),
       header("x-workflow-id", "Calls with one id share a deadline.",
              {{"type", "string"}, {"pattern", "^[A-Za-z0-9._:-]{1,128}$"}}),
       header("x-workflow-stages-left", "Calls that follow each other, this one included.",
              {{"type", "integer"}, {"minimum", 1}, {"maximum", 1000}}),
       header(
           "x-tessera-resume",
           "The id of a stream that broke within the last minute: with the same body and key its "
           "answer comes again from the first token, and goes on.",
           {{"type", "string"}, {"pattern", "^[A-Za-z0-9_-]{1,128}$"}})});
}

Json Operation(const ApiPath& path) {
  Json operation = {{"summary", std::string(path.summary)}};
  if (path.streams) operation["parameters"] = GeneratingParameters();
  if (path.path.ends_with("{model}")) {
    operation["parameters"] = Json::array({{{"name", "model"},
                                            {"in", "path"},
                                            {"required", true},
                                            {"schema", {{"type", "string"}, {"minLength", 1}}}}});
  }
  if (path.needs_key) operation["security"] = Json::array({{{"key", Json::array()}}});
  if (path.method == "POST") {
    operation["requestBody"] = {
        {"required", true},
        {"content", {{"application/json", {{"schema", ObjectSchema(path.body)}}}}}};
  }
  const bool json = path.reply_type == "application/json";
  Json content = {
      {std::string(path.reply_type), {{"schema", {{"type", json ? "object" : "string"}}}}}};
  // Readers of the document disagree on what an event is to them: its text, or its fields.
  if (path.streams) content["text/event-stream"] = {{"schema", Json::object()}};
  operation["responses"] = {
      {"200", {{"description", "the answer"}, {"content", std::move(content)}}},
      {"default",
       {{"description", "an error"},
        {"content",
         {{"application/json", {{"schema", {{"$ref", "#/components/schemas/Error"}}}}}}}}}};
  return operation;
}

}  // namespace

nlohmann::ordered_json OpenApiDocument(std::span<const ApiPath> paths, std::string_view version) {
  Json document = {{"openapi", "3.1.0"},
                   {"info", {{"title", "Tessera"}, {"version", std::string(version)}}},
                   {"paths", Json::object()}};
  for (const ApiPath& path : paths)
    document["paths"][std::string(path.path)][Lower(path.method)] = Operation(path);
  document["components"] = {
      {"schemas", {{"Error", ErrorSchema()}}},
      {"securitySchemes", {{"key", {{"type", "http"}, {"scheme", "bearer"}}}}}};
  return document;
}

}  // namespace tessera::coordinator
