#include "coordinator/answer/tool_schemas.h"

#include "coordinator/answer/python_literal.h"
#include "coordinator/answer/trim.h"

namespace tessera::coordinator {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxReferences = 16;

// What "#/a/b" names within `root`; null where there is no such thing.
const Json* Referred(const Json& root, const Json& schema) {
  const auto found = schema.find("$ref");
  if (found == schema.end() || !found->is_string()) return nullptr;
  const auto& text = found->get_ref<const std::string&>();
  if (!text.starts_with('#')) return nullptr;
  try {
    const Json::json_pointer pointer(text.substr(1));
    return root.contains(pointer) ? &root.at(pointer) : nullptr;
  } catch (const Json::exception&) {
    return nullptr;
  }
}

std::string_view TypeOf(const Json& value) {
  if (value.is_string()) return "string";
  if (value.is_boolean()) return "boolean";
  if (value.is_number_integer()) return "integer";
  if (value.is_number()) return "number";
  if (value.is_null()) return "null";
  return value.is_array() ? "array" : "object";
}

// Adds the types that a schema names.
void CollectTypes(const Json& root, const Json& schema, int depth, std::set<std::string>& types) {
  if (!schema.is_object() || depth > kMaxReferences) return;
  if (const Json* referred = Referred(root, schema))
    CollectTypes(root, *referred, depth + 1, types);
  const auto add = [&](const Json& type) {
    if (type.is_string()) types.insert(type.get<std::string>());
  };
  if (const auto type = schema.find("type"); type != schema.end()) {
    if (type->is_array()) {
      for (const Json& one : *type) add(one);
    } else {
      add(*type);
    }
  } else {
    if (const auto one = schema.find("const"); one != schema.end())
      types.insert(std::string(TypeOf(*one)));
    if (const auto values = schema.find("enum"); values != schema.end() && values->is_array()) {
      for (const Json& value : *values) types.insert(std::string(TypeOf(value)));
    }
  }
  for (const char* several : {"anyOf", "oneOf", "allOf"}) {
    const auto found = schema.find(several);
    if (found == schema.end() || !found->is_array()) continue;
    for (const Json& one : *found) CollectTypes(root, one, depth + 1, types);
  }
}

bool IsOf(const Json& value, const std::set<std::string>& types) {
  const std::string type(TypeOf(value));
  return types.contains(type) || (type == "integer" && types.contains("number"));
}

}  // namespace

ToolSchemas::ToolSchemas(const Json& tools) {
  if (!tools.is_array()) return;
  for (const Json& tool : tools) {
    if (!tool.is_object() || !tool.contains("function")) continue;
    const Json& function = tool["function"];
    if (!function.is_object() || !function.contains("name") || !function["name"].is_string())
      continue;
    functions_[function["name"].get<std::string>()] = function.value("parameters", Json::object());
  }
}

std::set<std::string> ToolSchemas::TypesOf(std::string_view function,
                                           std::string_view argument) const {
  std::set<std::string> types;
  const auto found = functions_.find(std::string(function));
  if (found != functions_.end() && found->second.is_object()) {
    const Json& schema = found->second;
    const auto properties = schema.find("properties");
    if (properties != schema.end() && properties->is_object()) {
      const auto property = properties->find(std::string(argument));
      if (property != properties->end()) CollectTypes(schema, *property, 0, types);
    }
  }
  return types;
}

bool ToolSchemas::IsText(std::string_view function, std::string_view argument) const {
  const std::set<std::string> types = TypesOf(function, argument);
  return types.empty() || types.contains("string");
}

std::string ToolSchemas::ToJson(std::string_view function, std::string_view argument,
                                std::string_view text) const {
  const std::set<std::string> types = TypesOf(function, argument);
  if (types.empty() || types.contains("string")) return JsonString(text);
  std::string written(Trim(text));
  if (!IsJson(written)) written = PythonToJson(written).value_or("");
  const Json value = Json::parse(written, nullptr, /*allow_exceptions=*/false);
  return value.is_discarded() || !IsOf(value, types) ? JsonString(text) : written;
}

}  // namespace tessera::coordinator
