// /openapi.json against the server that gives it: every field that is documented is read, and every
// field that is read is documented.

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "coordinator/api/body_reader.h"
#include "tests/coordinator/door.h"

namespace tessera::coordinator {
namespace {

using Json = nlohmann::json;
using Catch::Matchers::StartsWith;

Json Document(Door& door) { return Json::parse(door.Get("/openapi.json").body); }

// A body that the endpoint takes.
Json Minimal(const std::string& path) {
  if (path == "/detokenize") return {{"tokens", {7}}};
  if (path == "/v1/chat/completions" || path == "/apply-template")
    return {{"messages", {{{"role", "user"}, {"content", "What"}}}}};
  if (path.starts_with("/v1/messages")) {
    return {{"max_tokens", 5}, {"messages", {{{"role", "user"}, {"content", "What"}}}}};
  }
  if (path.ends_with("/rerank")) return {{"query", "What"}, {"documents", {"a"}}};
  if (path.ends_with("/score")) return {{"text_1", "What"}, {"text_2", "a"}};
  if (path.starts_with("/v1/responses") || path == "/v1/embeddings") return {{"input", "What"}};
  return {{"prompt", "What"}};
}

// "status field message" of an error in the endpoint's form; Anthropic's has no field apart.
std::string ErrorAt(Door& door, const std::string& path, const Json& body) {
  if (!path.starts_with("/v1/messages")) return door.Error(path, body);
  const HttpReply reply = door.Post(path, body.dump());
  const std::string message = Json::parse(reply.body)["error"]["message"];
  return std::to_string(reply.status) + " " + message.substr(0, message.find_first_of(":[")) + " " +
         message;
}

// A value that no type of `schema` allows.
Json Wrong(const Json& schema) {
  const std::string text = schema.dump();
  return text.find("\"object\"") == std::string::npos ? Json{{"odd", 1}} : Json(5);
}

}  // namespace

TEST_CASE("each documented field is read: a wrong type of it is refused by its name") {
  Door door;
  const Json document = Document(door);
  size_t fields = 0;
  for (const auto& [path, methods] : document["paths"].items()) {
    if (!methods.contains("post")) continue;
    const Json schema = methods["post"]["requestBody"]["content"]["application/json"]["schema"];
    const bool ranks = path.ends_with("/rerank") || path.ends_with("/score");
    CHECK(door.Post(path, Minimal(path).dump()).status == (ranks ? 400 : 200));
    for (const auto& [name, field] : schema["properties"].items()) {
      INFO(path << " " << name);
      Json body = Minimal(path);
      if (name == "stream_options") body["stream"] = true;
      if (path == "/tokenize" && name == "messages") body.erase("prompt");  // one of the two
      body[name] = Wrong(field);
      const std::string at = name == "model" ? "400 model " : "400 " + name + " ";
      CHECK_THAT(ErrorAt(door, path, body), StartsWith(at));
      ++fields;
    }
    for (const auto& name : schema.value("required", Json::array())) {
      Json body = Minimal(path);
      body.erase(std::string(name));
      CHECK_THAT(ErrorAt(door, path, body), StartsWith("400 " + std::string(name) + " "));
    }
  }
  CHECK(fields > 100);
}

TEST_CASE("a field that the table lacks cannot be read") {
  const Json body = {{"best", 5}};
  BodyReader reader(body, CompletionFields());
  CHECK_FALSE(reader.Integer("best").has_value());
  CHECK(absl::IsInternal(reader.status()));
}

TEST_CASE("ranges of the document are those of the server") {
  Door door;
  const Json schema = Document(door)["paths"]["/v1/completions"]["post"]["requestBody"]["content"]
                                    ["application/json"]["schema"]["properties"];
  for (const auto& [name, field] : schema.items()) {
    INFO(name);
    if (field.contains("exclusiveMinimum")) {
      const Json body = {{"prompt", "What"}, {name, field["exclusiveMinimum"]}};
      CHECK_THAT(door.Error("/v1/completions", body), StartsWith("400 " + name + " "));
    }
    if (!field.contains("minimum") || name == "best_of" || name == "min_tokens") continue;
    // The bound itself is allowed; what it asks for may be too much for this model's context.
    const HttpReply bound =
        door.Post("/v1/completions", Json{{"prompt", "What"}, {name, field["minimum"]}}.dump());
    CHECK(bound.status == 200);
    for (const double outside : {double(field["minimum"]) - 1, double(field["maximum"]) + 1}) {
      if (name == "seed") continue;  // all of 64 bits: nothing is outside
      const Json body = {{"prompt", "What"}, {name, outside}};
      CHECK_THAT(door.Error("/v1/completions", body), StartsWith("400 " + name + " "));
    }
  }
}

TEST_CASE("every route is documented, with its key") {
  Door door;
  const Json paths = Document(door)["paths"];
  for (const char* path : {"/v1/models", "/v1/models/{model}", "/health", "/ready", "/load",
                           "/metrics", "/version", "/openapi.json"}) {
    CHECK(paths[path].contains("get"));
  }
  CHECK_FALSE(paths["/v1/models"]["get"].contains("security"));
  HttpApiOptions options;
  options.keys = KeyRing(std::vector<ApiKey>{{"key", ""}});
  Door keyed(std::move(options));
  const Json with_keys = Document(keyed)["paths"];
  CHECK(with_keys["/v1/models"]["get"].contains("security"));
  CHECK_FALSE(with_keys["/health"]["get"].contains("security"));
}

}  // namespace tessera::coordinator
