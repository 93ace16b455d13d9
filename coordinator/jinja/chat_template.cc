#include "coordinator/jinja/chat_template.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>

#include "coordinator/jinja/interpreter.h"
#include "coordinator/jinja/parser.h"
#include "coordinator/jinja/values/runtime.h"
#include "coordinator/jinja/values/status.h"
#include "coordinator/jinja/values/unicode.h"
#include "proto/model/gguf_config.h"
#include "proto/model/gguf_header.h"
#include "third_party/absl/str_cat.h"

namespace tessera::coordinator {
namespace {

using jinja::Dict;
using jinja::Int;
using jinja::Runtime;
using jinja::Text;
using jinja::Value;

constexpr size_t kMaxFileBytes = 64 << 20;

// The file's bytes; nothing where there is no such file.
absl::StatusOr<std::optional<std::string>> ReadFile(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    return std::optional<std::string>();
  }
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (error || size > kMaxFileBytes) {
    return absl::InvalidArgumentError(StrCat(
        path.string(), ": cannot read it, or it is beyond the limit of ", kMaxFileBytes, " bytes"));
  }
  std::ifstream file(path, std::ios::binary);
  std::string bytes(static_cast<size_t>(size), '\0');
  if (!file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()))) {
    return absl::UnavailableError(StrCat(path.string(), ": reading failed"));
  }
  return std::optional<std::string>(std::move(bytes));
}

// The file as a JSON object; an empty one where there is no such file.
absl::StatusOr<nlohmann::json> ReadJson(const std::filesystem::path& path) {
  JINJA_ASSIGN_OR_RETURN(const std::optional<std::string> bytes, ReadFile(path));
  if (!bytes.has_value()) {
    return nlohmann::json::object();
  }
  nlohmann::json document = nlohmann::json::parse(*bytes, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object()) {
    return absl::InvalidArgumentError(StrCat(path.string(), " is not a JSON object"));
  }
  return document;
}

// Where a folder keeps its templates, by name; "default" is the one without a name.
// tokenizer_config.json, or what a GGUF file says of the same.
absl::StatusOr<nlohmann::json> ReadTokenizerConfig(const std::filesystem::path& model) {
  if (!HasGgufName(model.string())) return ReadJson(model / "tokenizer_config.json");
  const absl::StatusOr<GgufHeader> header = ReadGgufHeader(model);
  if (!header.ok()) return header.status();
  return GgufTokenizerConfig(*header);
}

struct Source {
  std::string name;
  std::string text;
  std::string file;
};

absl::Status AddFromJson(const nlohmann::json& document, const std::string& file,
                         std::vector<Source>& sources) {
  const auto found = document.find("chat_template");
  if (found == document.end() || found->is_null()) {
    return absl::OkStatus();
  }
  if (found->is_string()) {
    sources.push_back({"default", found->get<std::string>(), file});
    return absl::OkStatus();
  }
  const auto malformed = [&file] {
    return absl::InvalidArgumentError(
        StrCat(file, ": chat_template must be a string or a list of {\"name\", \"template\"}"));
  };
  if (!found->is_array()) {
    return malformed();
  }
  for (const nlohmann::json& entry : *found) {
    if (!entry.is_object() || !entry.contains("name") || !entry["name"].is_string() ||
        !entry.contains("template") || !entry["template"].is_string()) {
      return malformed();
    }
    sources.push_back(
        {entry["name"].get<std::string>(), entry["template"].get<std::string>(), file});
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Source>> FindSources(const std::filesystem::path& folder,
                                                const nlohmann::json& tokenizer_config) {
  std::vector<Source> sources;
  const std::filesystem::path main_file = folder / "chat_template.jinja";
  JINJA_ASSIGN_OR_RETURN(std::optional<std::string> text, ReadFile(main_file));
  if (text.has_value()) {
    sources.push_back({"default", *std::move(text), main_file.string()});
    std::error_code error;
    for (const auto& entry :
         std::filesystem::directory_iterator(folder / "additional_chat_templates", error)) {
      if (entry.path().extension() == ".jinja") {
        JINJA_ASSIGN_OR_RETURN(text, ReadFile(entry.path()));
        sources.push_back({entry.path().stem().string(), text.value_or(""), entry.path().string()});
      }
    }
    return sources;
  }
  const std::filesystem::path json_file = folder / "chat_template.json";
  JINJA_ASSIGN_OR_RETURN(const nlohmann::json document, ReadJson(json_file));
  JINJA_RETURN_IF_ERROR(AddFromJson(document, json_file.string(), sources));
  if (sources.empty()) {
    JINJA_RETURN_IF_ERROR(
        AddFromJson(tokenizer_config, (folder / "tokenizer_config.json").string(), sources));
  }
  return sources;
}

const Source* FindNamed(const std::vector<Source>& sources, std::string_view name) {
  const auto found = std::find_if(sources.begin(), sources.end(),
                                  [name](const Source& source) { return source.name == name; });
  return found == sources.end() ? nullptr : &*found;
}

absl::StatusOr<std::shared_ptr<const jinja::Template>> ParseNamed(const Source* found) {
  if (found == nullptr) {
    return std::shared_ptr<const jinja::Template>();
  }
  auto parsed = jinja::ParseTemplate(found->text);
  if (!parsed.ok()) {
    return absl::Status(parsed.status().code(),
                        StrCat(found->file, ": ", StdView(parsed.status().message())));
  }
  return parsed;
}

bool IsTokenName(std::string_view name) { return name.ends_with("_token"); }

// bos_token and its like: a string, or an object with its content.
void AddSpecialTokens(const nlohmann::json& document,
                      std::vector<std::pair<std::string, std::string>>& tokens) {
  for (const auto& [name, value] : document.items()) {
    const nlohmann::json& content =
        value.is_object() && value.contains("content") ? value["content"] : value;
    const bool known = std::any_of(tokens.begin(), tokens.end(), [&name = name](const auto& token) {
      return token.first == name;
    });
    if (IsTokenName(name) && content.is_string() && !known) {
      tokens.emplace_back(name, content.get<std::string>());
    }
  }
}

// JSON as values whose strings are all the template's or all the client's.
template <typename Json>
class Converter {
 public:
  Converter(Runtime& runtime, bool from_template)
      : runtime_(runtime), from_template_(from_template) {}

  absl::StatusOr<Value> Convert(const Json& json, int depth = 0) const {
    if (depth > jinja::kMaxValueDepth) {
      return absl::InvalidArgumentError(
          StrCat("the messages nest deeper than the limit of ", jinja::kMaxValueDepth, " levels"));
    }
    switch (json.type()) {
      case Json::value_t::boolean: return Value::Bool(json.template get<bool>());
      case Json::value_t::number_integer:
        return Value::Integer(static_cast<Int>(json.template get<int64_t>()));
      case Json::value_t::number_unsigned:
        return Value::Integer(static_cast<Int>(json.template get<uint64_t>()));
      case Json::value_t::number_float: return Value::Float(json.template get<double>());
      case Json::value_t::string: return ConvertString(json.template get_ref<const std::string&>());
      case Json::value_t::array: {
        std::vector<Value> items;
        items.reserve(json.size());
        for (const Json& item : json) {
          JINJA_ASSIGN_OR_RETURN(Value value, Convert(item, depth + 1));
          items.push_back(std::move(value));
        }
        return runtime_.NewList(std::move(items));
      }
      case Json::value_t::object: {
        Dict dict;
        for (const auto& [key, item] : json.items()) {
          JINJA_ASSIGN_OR_RETURN(const Value name, ConvertString(key));
          JINJA_ASSIGN_OR_RETURN(Value value, Convert(item, depth + 1));
          dict.Set(name, std::move(value));
        }
        return runtime_.NewDict(std::move(dict));
      }
      default: return Value::None();
    }
  }

 private:
  absl::StatusOr<Value> ConvertString(const std::string& text) const {
    if (FindInvalidUtf8(text) != std::string_view::npos) {
      return absl::InvalidArgumentError("a message holds text that is not valid UTF-8");
    }
    return runtime_.NewString(Text(text, from_template_));
  }

  Runtime& runtime_;
  bool from_template_;
};

// The variables a template sees: defaults, the context, and last the client's own.
template <typename Json>
absl::StatusOr<Dict> MakeContext(Runtime& runtime, const Json& context,
                                 const std::vector<std::pair<std::string, std::string>>& tokens) {
  const Converter<Json> client(runtime, false);
  const Converter<Json> trusted(runtime, true);
  Dict variables;
  variables.Set(Value::Literal("tools"), Value::None());
  variables.Set(Value::Literal("documents"), Value::None());
  variables.Set(Value::Literal("add_generation_prompt"), Value::Bool(false));
  for (const auto& [name, text] : tokens) {
    variables.Set(Value::Literal(name), Value::Literal(text));
  }
  const Json* own = nullptr;
  for (const auto& [name, value] : context.items()) {
    if (name == "chat_template_kwargs") {
      own = &value;
    } else if (!IsTokenName(name) || !value.is_null()) {  // a token that is null is none at all
      JINJA_ASSIGN_OR_RETURN(Value converted,
                             (IsTokenName(name) ? trusted : client).Convert(value));
      variables.Set(Value::Literal(name), std::move(converted));
    }
  }
  if (own == nullptr || own->is_null()) {
    return variables;
  }
  if (!own->is_object()) {
    return absl::InvalidArgumentError("chat_template_kwargs must be an object");
  }
  for (const auto& [name, value] : own->items()) {
    if (name == "messages" || name == "tools") {
      return absl::InvalidArgumentError(
          StrCat("chat_template_kwargs cannot set '", name, "': use the request's own field"));
    }
    JINJA_ASSIGN_OR_RETURN(Value converted, client.Convert(value));
    variables.Set(Value::Literal(name), std::move(converted));
  }
  return variables;
}

}  // namespace

absl::StatusOr<ChatTemplate> ChatTemplate::Load(const std::filesystem::path& model_folder,
                                                std::string_view name) {
  JINJA_ASSIGN_OR_RETURN(const nlohmann::json config, ReadTokenizerConfig(model_folder));
  JINJA_ASSIGN_OR_RETURN(const nlohmann::json map,
                         ReadJson(model_folder / "special_tokens_map.json"));
  JINJA_ASSIGN_OR_RETURN(const std::vector<Source> sources, FindSources(model_folder, config));
  ChatTemplate loaded;
  const Source* const source = FindNamed(sources, name.empty() ? "default" : name);
  JINJA_ASSIGN_OR_RETURN(loaded.template_, ParseNamed(source));
  if (source == nullptr) {
    return absl::NotFoundError(StrCat(
        model_folder.string(), ": no chat template", name.empty() ? "" : StrCat(" '", name, "'"),
        "; add a chat_template.jinja, or use completions instead of chat"));
  }
  loaded.source_ = source->text;
  if (name.empty()) {
    const Source* const tool_source = FindNamed(sources, "tool_use");
    auto for_tools = ParseNamed(tool_source);
    loaded.tool_status_ = for_tools.status();
    if (tool_source != nullptr) loaded.tool_source_ = tool_source->text;
    if (for_tools.ok()) loaded.tool_template_ = *std::move(for_tools);
  }
  AddSpecialTokens(config, loaded.special_tokens_);
  AddSpecialTokens(map, loaded.special_tokens_);
  return loaded;
}

absl::StatusOr<ChatTemplate> ChatTemplate::LoadFile(const std::filesystem::path& file,
                                                    const std::filesystem::path& model_folder) {
  JINJA_ASSIGN_OR_RETURN(const nlohmann::json config, ReadTokenizerConfig(model_folder));
  JINJA_ASSIGN_OR_RETURN(const nlohmann::json map,
                         ReadJson(model_folder / "special_tokens_map.json"));
  JINJA_ASSIGN_OR_RETURN(std::optional<std::string> text, ReadFile(file));
  if (!text.has_value()) {
    return absl::NotFoundError(StrCat(file.string(), ": there is no such file"));
  }
  const Source source = {"default", *std::move(text), file.string()};
  ChatTemplate loaded;
  JINJA_ASSIGN_OR_RETURN(loaded.template_, ParseNamed(&source));
  loaded.source_ = source.text;
  AddSpecialTokens(config, loaded.special_tokens_);
  AddSpecialTokens(map, loaded.special_tokens_);
  return loaded;
}

absl::StatusOr<ChatTemplate> ChatTemplate::Parse(std::string_view source) {
  ChatTemplate parsed;
  JINJA_ASSIGN_OR_RETURN(parsed.template_, jinja::ParseTemplate(source));
  parsed.source_ = std::string(source);
  return parsed;
}

template <typename Json>
absl::StatusOr<std::vector<TextSegment>> ChatTemplate::RenderJson(
    const Json& context, int64_t now_unix_seconds, const RenderLimits& limits) const {
  if (!context.is_object()) {
    return absl::InvalidArgumentError("a chat template's context must be an object");
  }
  const bool with_tools = context.contains("tools") && !context["tools"].empty();
  if (with_tools) JINJA_RETURN_IF_ERROR(tool_status_);
  Runtime runtime(limits, now_unix_seconds);
  JINJA_ASSIGN_OR_RETURN(const Dict variables, MakeContext(runtime, context, special_tokens_));
  jinja::Interpreter interpreter(with_tools && tool_template_ ? *tool_template_ : *template_,
                                 runtime);
  JINJA_ASSIGN_OR_RETURN(const Text text, interpreter.Render(variables));
  return text.ToSegments();
}

absl::StatusOr<std::vector<TextSegment>> ChatTemplate::Render(const nlohmann::json& context,
                                                              int64_t now_unix_seconds,
                                                              const RenderLimits& limits) const {
  return RenderJson(context, now_unix_seconds, limits);
}

absl::StatusOr<std::vector<TextSegment>> ChatTemplate::RenderOrdered(
    const nlohmann::ordered_json& context, int64_t now_unix_seconds,
    const RenderLimits& limits) const {
  return RenderJson(context, now_unix_seconds, limits);
}

}  // namespace tessera::coordinator
