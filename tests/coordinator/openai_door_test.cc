// Errors, keys, clients that leave, and bodies that mean harm.

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/api/served_models.h"
#include "tests/coordinator/door.h"

namespace tessera::coordinator {
namespace {

using Json = nlohmann::json;
using Catch::Matchers::Contains;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;

constexpr char kCompletions[] = "/v1/completions";
constexpr char kChat[] = "/v1/chat/completions";
constexpr char kBody[] = R"({"prompt": "What"})";

std::string Fill(const std::string& open, const std::string& filler, size_t bytes,
                 const std::string& close) {
  std::string text = open;
  while (text.size() < bytes) text += filler;
  return text + close;
}

double ResidentMebibytes() {
  std::ifstream status("/proc/self/statm");
  double size = 0;
  double resident = 0;
  status >> size >> resident;
  return resident * 4096 / (1 << 20);
}

}  // namespace

TEST_CASE("unknown paths, methods and models") {
  Door door;
  CHECK_THAT(Door::ErrorOf(door.Get("/v1/nothing")),
             StartsWith("404 - ") && Contains("/v1/nothing"));
  const HttpReply method = door.Get(kChat);
  CHECK_THAT(Door::ErrorOf(method), StartsWith("405 - ") && Contains("POST"));
  CHECK_THAT(method.head, Contains("Allow: POST"));
  CHECK_THAT(Door::ErrorOf(door.Post("/v1/models", "{}")), StartsWith("405 - "));
  CHECK_THAT(door.Error(kCompletions, {{"model", "gpt-9"}, {"prompt", "x"}}),
             StartsWith("404 model ") && Contains("gpt-9") && Contains("org/demo"));
  CHECK_THAT(Door::ErrorOf(door.Get("/v1/models/gpt-9")), StartsWith("404 model "));
}

TEST_CASE("the error for a base URL with one /v1 too few or too many says what it must be") {
  Door door;
  CHECK_THAT(Door::ErrorOf(door.Post("/chat/completions", kBody)),
             StartsWith("404 - ") && EndsWith("must end with /v1"));
  CHECK_THAT(Door::ErrorOf(door.Get("/v1/v1/models")),
             StartsWith("404 - ") && EndsWith("must be without /v1"));
  CHECK_THAT(Door::ErrorOf(door.Get("/v1/nothing")),
             EndsWith("no endpoint /v1/nothing; GET /openapi.json lists those that there are"));
}

TEST_CASE("of several models the one that a request names answers it") {
  FakeGenerationService other;
  other.SetScript(Say({{"other", 40}}));
  HttpApiOptions options;
  options.keys = KeyRing(std::vector<ApiKey>{{.key = "all", .name = "all"},
                                             {.key = "one", .name = "one", .models = {"second"}}});
  auto second = std::make_shared<ServedModel>(*DoorModel());
  second->name = "second";
  second->other_names.clear();
  Door door(std::move(options), {}, DoorModel(), {{.model = second, .service = &other}});
  const auto post = [&](const char* path, Json body, const char* key = "all") {
    return door.Post(path, body.dump(), absl::StrCat("Authorization: Bearer ", key, "\r\n"));
  };
  const auto text = [](const HttpReply& reply) {
    const Json body = Json::parse(reply.body);
    return absl::StrCat(body["model"].get<std::string>(), ": ",
                        body["choices"][0]["text"].get<std::string>());
  };
  CHECK(text(post(kCompletions, {{"model", "second"}, {"prompt", "x"}})) == "second: other");
  CHECK(text(post(kCompletions, {{"model", "org/demo"}, {"prompt", "x"}})) == "org/demo: one two");
  CHECK_THAT(Door::ErrorOf(post(kCompletions, {{"model", "third"}, {"prompt", "x"}})),
             StartsWith("404 model ") && Contains("served: 'org/demo', 'second-name', 'second'"));
  CHECK_THAT(
      Door::ErrorOf(post(kCompletions, {{"prompt", "x"}})),
      StartsWith("400 model ") && Contains("name one of 'org/demo', 'second-name', 'second'"));
  const auto names = [&](const char* key) {
    std::string all;
    const Json models = Json::parse(
        door.Get("/v1/models", absl::StrCat("Authorization: Bearer ", key, "\r\n")).body);
    for (const Json& model : models["data"]) all += model["id"].get<std::string>() + " ";
    return all;
  };
  CHECK(names("all") == "org/demo second-name second ");
  // A key that may use one model knows of no other.
  CHECK(names("one") == "second ");
  CHECK(text(post(kCompletions, {{"prompt", "x"}}, "one")) == "second: other");
  CHECK_THAT(Door::ErrorOf(post(kCompletions, {{"model", "org/demo"}, {"prompt", "x"}}, "one")),
             StartsWith("404 model ") && !Contains("served: 'org/demo'"));
}

TEST_CASE("error.code is what OpenAI's clients branch on, or null") {
  HttpApiOptions options;
  options.keys = KeyRing(std::vector<ApiKey>{{"key", ""}});
  Door keyed(std::move(options));
  const auto code = [](const HttpReply& reply) { return Json::parse(reply.body)["error"]["code"]; };
  CHECK(code(keyed.Post(kCompletions, kBody)) == "invalid_api_key");
  Door door;
  CHECK(code(door.Post(kCompletions, R"({"prompt": "x", "model": "gpt-9"})")) == "model_not_found");
  CHECK(code(door.Get("/v1/models/gpt-9")) == "model_not_found");
  const HttpReply large = door.Post(kCompletions, R"({"prompt": "x", "max_tokens": 500})");
  CHECK(code(large) == "context_length_exceeded");
  CHECK_THAT(large.body, Contains("maximum context length is 200 tokens"));
  CHECK(code(door.Post(kCompletions, "{")).is_null());
  CHECK(code(door.Get("/v1/nothing")).is_null());
  CHECK(code(door.Get(kChat)).is_null());
}

TEST_CASE("a deadline comes in headers, and a wrong one is refused by name") {
  Door door;
  const HttpReply reply = door.Post(kCompletions, kBody,
                                    "x-request-deadline: 2.5\r\nx-workflow-id: flow-1\r\n"
                                    "x-workflow-stages-left: 3\r\n");
  CHECK(reply.status == 200);
  CHECK(door.service.last_request().deadline_seconds == 2.5);
  CHECK(door.service.last_request().workflow == "flow-1");
  CHECK(door.service.last_request().workflow_stages_left == 3);
  door.Post(kCompletions, kBody);
  CHECK_FALSE(door.service.last_request().deadline_seconds.has_value());
  for (const char* wrong : {"soon", "", "-1", "0", "0x10", "5\r\nx-request-deadline: 6"}) {
    INFO(wrong);
    const std::string header = std::string("x-request-deadline: ") + wrong + "\r\n";
    CHECK_THAT(Door::ErrorOf(door.Post(kCompletions, kBody, header)),
               StartsWith("400 ") && Contains("x-request-deadline") && Contains("above 0 (2.5"));
  }
}

TEST_CASE("answers say what is left of their client's limits, refusals too") {
  HttpApiOptions options;
  options.keys = KeyRing(std::vector<ApiKey>{{"secret", "me"}});
  Door door(std::move(options));
  door.limits = [](const std::string& client) {
    return HttpHeaders{{"x-ratelimit-remaining-requests", client}};
  };
  const char* key = "Authorization: Bearer secret\r\n";
  CHECK_THAT(door.Post(kCompletions, kBody, key).head,
             Contains("x-ratelimit-remaining-requests: me\r\n"));
  CHECK_THAT(door.Post(kCompletions, R"({"prompt": "What", "stream": true})", key).head,
             Contains("x-ratelimit-remaining-requests: me\r\n"));
  door.service.Refuse(absl::ResourceExhaustedError("enough"));
  const HttpReply refused = door.Post(kCompletions, kBody, key);
  CHECK(refused.status == 429);
  CHECK_THAT(refused.head, Contains("x-ratelimit-remaining-requests: me\r\n"));
}

TEST_CASE("no error text names a library") {
  Door door;
  for (const char* body : {"{", "{\"prompt\": }", "\xff", "[1,", "{\"prompt\": \"\\ud800\"}",
                           "{\"temperature\": 1e999, \"prompt\": \"a\"}"}) {
    for (const char* path : {kCompletions, kChat, "/tokenize", "/detokenize"}) {
      const std::string error = Door::ErrorOf(door.Post(path, body));
      INFO(error);
      for (const char* name : {"json.exception", "nlohmann", "boost", "beast", "protobuf", "absl"})
        CHECK(error.find(name) == std::string::npos);
    }
  }
}

TEST_CASE("each name of the model is taken and listed, the first is reported") {
  Door door;
  CHECK(door.Ask(kCompletions, {{"prompt", "x"}, {"model", "second-name"}})["model"] == "org/demo");
  for (const char* path : {"/v1/models", "/v1/models/"}) {
    const Json models = Json::parse(door.Get(path).body)["data"];
    REQUIRE(models.size() == 2);
    CHECK(models[0]["id"] == "org/demo");
    CHECK(models[1]["id"] == "second-name");
  }
  CHECK(Json::parse(door.Get("/v1/models/second-name").body)["id"] == "second-name");
}

TEST_CASE("an unknown field is ignored and named in a header, whatever its name is made of") {
  Door door;
  const HttpReply reply =
      door.Post(kCompletions, R"({"prompt": "x", "id_slot": 1, "a,b\r\nc": 2, "stream": true,
                        "stream_options": {"include_usage": true, "odd": 1}})");
  CHECK(reply.status == 200);
  CHECK_THAT(reply.head,
             Contains("x-tessera-ignored-fields: a?b??c, id_slot, stream_options.odd\r\n"));
  const HttpReply known = door.Post(kCompletions, R"({"prompt": "x", "user": "u"})");
  CHECK(known.head.find("x-tessera-ignored-fields") == std::string::npos);
  CHECK_THAT(door.Post("/tokenize", R"({"prompt": "x", "more": 1})").head,
             Contains("x-tessera-ignored-fields: more\r\n"));
  CHECK_THAT(door.Post("/detokenize", R"({"tokens": [7], "more": 1})").head,
             Contains("x-tessera-ignored-fields: more\r\n"));
}

TEST_CASE("requests to generate that the door refuses are counted by their reason") {
  std::vector<absl::StatusCode> refused;
  HttpApiOptions options;
  options.keys = KeyRing(std::vector<ApiKey>{{"key", ""}});
  options.refused = [&](absl::StatusCode code) { refused.push_back(code); };
  Door door(std::move(options));
  const char* const key = "Authorization: Bearer key\r\n";
  door.Post(kCompletions, kBody);
  door.Post(kCompletions, "{", key);
  door.Post(kChat, R"({"messages": 5})", key);
  door.Post(kCompletions, R"({"prompt": "x", "model": "gpt-9"})", key);
  door.Post("/tokenize", "{", key);
  door.Get("/v1/nothing");
  CHECK(door.Post(kCompletions, kBody, key).status == 200);
  CHECK(refused == std::vector{absl::StatusCode::kUnauthenticated,
                               absl::StatusCode::kInvalidArgument,
                               absl::StatusCode::kInvalidArgument, absl::StatusCode::kNotFound});
}

TEST_CASE("a request names its client, by its key, and the client's user") {
  HttpApiOptions options;
  options.keys = KeyRing(std::vector<ApiKey>{{"first", "agents"}, {"second", ""}});
  Door door(std::move(options));
  const auto names = [&](const std::string& path, const std::string& body, const char* key) {
    REQUIRE(door.Post(path, body, std::string("Authorization: Bearer ") + key + "\r\n").status ==
            200);
    const GenerationRequest request = door.service.last_request();
    return request.client + " " + request.user;
  };
  CHECK(names(kCompletions, R"({"prompt": "x"})", "first") == "agents ");
  CHECK(names(kCompletions, R"({"prompt": "x", "user": "u"})", "second") == "key-2 u");
  CHECK(names(kChat, R"({"messages": [{"role": "user", "content": "x"}], "user": "u",
                         "safety_identifier": "s"})",
              "first") == "agents s");
  CHECK(names("/v1/messages", R"({"max_tokens": 5, "metadata": {"user_id": "m"},
                                  "messages": [{"role": "user", "content": "x"}]})",
              "first") == "agents m");
}

TEST_CASE("the small endpoints") {
  Door door;
  const Json models = Json::parse(door.Get("/v1/models").body);
  CHECK(models["object"] == "list");
  CHECK(models["data"][0]["id"] == "org/demo");
  CHECK(models["data"][0]["max_model_len"] == 200);
  // As Anthropic's clients read them.
  CHECK(models["has_more"] == false);
  CHECK(models["data"][0]["type"] == "model");
  CHECK(models["data"][0]["display_name"] == "org/demo");
  CHECK(std::string(models["data"][0]["created_at"]).ends_with("Z"));
  CHECK(Json::parse(door.Get("/v1/models/org%2Fdemo").body)["id"] == "org/demo");
  CHECK(Json::parse(door.Get("/v1/models/org/demo").body)["id"] == "org/demo");
  CHECK(door.Get("/v1/models/org%2").status == 404);
  CHECK(door.Get("/health").status == 200);
  for (const char* path : {"/ping", "/healthz", "/livez", "/readyz"})
    CHECK(door.Get(path).status == 200);
  CHECK(Json::parse(door.Get("/load").body) == Json({{"server_load", 3}}));
  CHECK(Json::parse(door.Get("/version").body)["version"] == "1.2.3+00aa11bb22cc");
  const HttpReply metrics = door.Get("/metrics");
  CHECK_THAT(metrics.head, Contains("text/plain; version=0.0.4"));
  CHECK(metrics.body == "a_metric 1\n");
  CHECK(door.Get("/ready").status == 200);
  door.readiness = absl::UnavailableError("no replica is ready");
  const HttpReply not_ready = door.Get("/ready");
  CHECK_THAT(Door::ErrorOf(not_ready), StartsWith("503 - ") && Contains("no replica"));
  CHECK_THAT(not_ready.head, Contains("Retry-After: "));
  CHECK(door.Get("/readyz").status == 503);
  CHECK(door.Get("/health").status == 200);
}

TEST_CASE("what the service refuses becomes the status that clients act on") {
  Door door;
  const std::vector<std::pair<absl::Status, const char*>> refusals = {
      {absl::InvalidArgumentError("a"), "400 - a"}, {absl::ResourceExhaustedError("b"), "429 - b"},
      {absl::UnavailableError("c"), "503 - c"},     {absl::UnimplementedError("d"), "501 - d"},
      {absl::InternalError("e"), "500 - e"},
  };
  for (const auto& [status, error] : refusals) {
    door.service.Refuse(status);
    for (const char* stream : {"", R"(, "stream": true)"}) {
      const HttpReply reply =
          door.Post(kCompletions, std::string(R"({"prompt": "What")") + stream + "}");
      CHECK(Door::ErrorOf(reply) == error);
      const bool again = reply.status == 429 || reply.status == 503;
      CHECK((reply.head.find("Retry-After: ") != std::string::npos) == again);
    }
  }
  door.service.Refuse(absl::OkStatus());
  CHECK(door.Post(kCompletions, kBody).status == 200);
}

TEST_CASE("an error after the stream began is its last event") {
  Door door;
  door.service.SetScript([](const GenerationRequest&, GenerationSink& sink, const auto&) {
    ChoiceEvent event;
    event.text = "so far";
    sink.OnChoice(event);
    sink.OnEnd(absl::InternalError("a step failed"), {}, "r0");
  });
  const HttpReply reply = door.Post(kChat, R"({"stream": true, "messages":
      [{"role": "user", "content": "What"}]})");
  CHECK(reply.status == 200);
  const size_t error = reply.body.find("data: {\"error\":");
  REQUIRE(error != std::string::npos);
  CHECK_THAT(reply.body.substr(error), Contains("a step failed"));
  CHECK(reply.body.find("[DONE]") == std::string::npos);
  CHECK_THAT(reply.body, Contains("so far"));
  // The same before anything was sent is a plain error.
  CHECK_THAT(Door::ErrorOf(door.Post(kCompletions, kBody)), StartsWith("500 - a step failed"));
}

TEST_CASE("with API keys, nothing but health is open") {
  HttpApiOptions options;
  options.keys = KeyRing(std::vector<ApiKey>{{"first", ""}, {"second", ""}});
  Door door(std::move(options));
  const HttpReply none = door.Post(kCompletions, kBody);
  CHECK_THAT(Door::ErrorOf(none), StartsWith("401 - "));
  CHECK_THAT(none.head, Contains("WWW-Authenticate: Bearer"));
  for (const char* wrong : {"Bearer third", "Bearer ", "first", "Bearer first ", "Bearer firs"}) {
    const std::string header = std::string("Authorization: ") + wrong + "x\r\n";
    CHECK(door.Post(kCompletions, kBody, header).status == 401);
  }
  for (const char* path : {"/v1/models", "/v1/models/org/demo"})
    CHECK(door.Get(path).status == 401);
  for (const char* path : {"/tokenize", "/detokenize", kChat}) {
    CHECK(door.Post(path, "{}").status == 401);
  }
  for (const char* path : {"/health", "/ready", "/version", "/metrics"}) {
    CHECK(door.Get(path).status == 200);
  }
  CHECK(door.Post(kCompletions, kBody, "Authorization: Bearer second\r\n").status == 200);
  for (const char* scheme : {"bearer", "BEARER", "bEaReR "}) {
    const std::string header = std::string("Authorization: ") + scheme + " second\r\n";
    CHECK(door.Post(kCompletions, kBody, header).status == 200);
  }
}

TEST_CASE("a request's id is taken, or drawn, and echoed everywhere") {
  Door door;
  const HttpReply given = door.Post(kCompletions, kBody, "X-Request-Id: mine-1\r\n");
  CHECK_THAT(given.head, Contains("X-Request-Id: mine-1\r\n"));
  CHECK(door.service.last_request().request_id == "mine-1");
  CHECK_THAT(door.Post(kCompletions, kBody).head, Contains("X-Request-Id: "));
  CHECK_THAT(door.Post(kCompletions, "{", "X-Request-Id: mine-2\r\n").head,
             Contains("X-Request-Id: mine-2\r\n"));
  const HttpReply stream =
      door.Post(kCompletions, R"({"prompt": "What", "stream": true})", "X-Request-Id: mine-3\r\n");
  CHECK_THAT(stream.head, Contains("X-Request-Id: mine-3\r\n"));
  for (const char* path : {"/v1/models", "/v1/models/org/demo", "/health", "/ready", "/version",
                           "/metrics", "/none"}) {
    INFO(path);
    CHECK_THAT(door.Get(path, "X-Request-Id: mine-4\r\n").head,
               Contains("X-Request-Id: mine-4\r\n"));
  }
  for (const auto& [path, body] :
       {std::pair("/tokenize", R"({"prompt": "What"})"), {"/detokenize", R"({"tokens": [7]})"}}) {
    CHECK_THAT(door.Post(path, body, "X-Request-Id: mine-5\r\n").head,
               Contains("X-Request-Id: mine-5\r\n"));
  }
  // What does not belong into logs and headers is replaced.
  const HttpReply odd = door.Post(kCompletions, kBody, "X-Request-Id: a b\r\n");
  CHECK(odd.head.find("a b") == std::string::npos);
}

TEST_CASE("a client that leaves cancels its work, streaming or not") {
  Door door;
  door.service.SetScript(
      [](const GenerationRequest& request, GenerationSink& sink, const auto& cancelled) {
        for (int i = 0; i < 1000 && !cancelled(); ++i) {
          if (request.max_tokens == 1) {
            ChoiceEvent event;
            event.text = "x";
            sink.OnChoice(event);
          }
          std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
      });
  {
    HttpClient streaming(door.port());
    REQUIRE(streaming.SendRequest("POST", kCompletions,
                                  R"({"prompt": ["a", "b"], "max_tokens": 1, "stream": true})"));
    REQUIRE(streaming.ReadUntil("\"x\""));
  }
  CHECK(door.service.WaitForCancelled(2));
  {
    HttpClient waiting(door.port());
    REQUIRE(waiting.SendRequest("POST", kCompletions, kBody));
    while (door.service.requests().size() < 3) std::this_thread::yield();
  }
  CHECK(door.service.WaitForCancelled(3));
}

TEST_CASE("generations that end on other threads while their clients come and go") {
  Door door;
  std::atomic<int> turn = 0;
  door.service.SetScript(
      [&](const GenerationRequest& request, GenerationSink& sink, const auto& cancelled) {
        // Some end before Start's caller goes on, some after.
        if (turn++ % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
        Say({{"x", 40}})(request, sink, cancelled);
      });
  std::atomic<int> answered = 0;
  std::vector<std::thread> clients;
  for (int i = 0; i < 4; ++i) {
    clients.emplace_back([&, i] {
      for (int k = 0; k < 50; ++k) {
        HttpClient client(door.port());
        client.SendRequest("POST", kCompletions,
                           i % 2 == 0 ? kBody : R"({"prompt": "What", "stream": true})");
        if (k % 5 == 4) continue;  // leaves at once
        answered += client.Receive().status == 200;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  CHECK(answered == 160);
  CHECK(door.Post(kCompletions, kBody).status == 200);
}

TEST_CASE("a large answer and a large piece of a stream reach a client that reads") {
  Door door;
  const std::string large(300'000, 'x');
  door.service.SetScript(Say({{large, 40}, {large, 41}, {large, 42}}));
  CHECK(door.Ask(kCompletions, {{"prompt", "What"}, {"n", 3}})["choices"][2]["text"] ==
        large + large + large);
  std::string text;
  for (const Json& chunk : door.Stream(kCompletions, {{"prompt", "What"}})) {
    text += chunk["choices"][0]["text"];
  }
  CHECK(text == large + large + large);
}

TEST_CASE("bodies that are no JSON, or no text, are refused and the next one is served") {
  Door door;
  const std::vector<std::string> bodies = {"",
                                           "{",
                                           "[]",
                                           "null",
                                           "5",
                                           "\"text\"",
                                           "{\"prompt\": }",
                                           "{\"prompt\": NaN}",
                                           "{} {}",
                                           "{\"prompt\": \"\xff\"}",
                                           "{\"prompt\": \"\\ud800\"}",
                                           "{\"prompt\": \"a\nb\"}",
                                           std::string("{\"prompt\": \"a\0b\"}", 17),
                                           "\xef\xbb\xbf{\"prompt\": 5}",
                                           "{\"temperature\": 1e999, \"prompt\": \"a\"}",
                                           std::string(100'000, '['),
                                           Fill("{\"a\": ", "[", 100'000, ""),
                                           Fill("", "{\"a\":", 100'000, "")};
  for (const std::string& body : bodies) {
    INFO(body.substr(0, 60));
    for (const char* path : {kCompletions, kChat, "/tokenize", "/detokenize"}) {
      CHECK_THAT(Door::ErrorOf(door.Post(path, body)), StartsWith("400 "));
    }
  }
  CHECK(door.Post(kCompletions, kBody).status == 200);
}

TEST_CASE("a JSON bomb is refused before it grows") {
  Door door;
  door.Post(kCompletions, Fill("{\"prompt\": \"", "a", 1 << 20, "\"}"));  // warms the allocator
  const double before = ResidentMebibytes();
  constexpr size_t kBytes = 30 << 20;
  CHECK_THAT(Door::ErrorOf(door.Post(kCompletions, Fill("{\"prompt\": [0", ",[]", kBytes, "]}"))),
             StartsWith("400 ") && Contains("objects and arrays"));
  CHECK_THAT(Door::ErrorOf(door.Post(kCompletions, Fill("{\"prompt\": [0", ",1", kBytes, "]}"))),
             StartsWith("400 ") && Contains("values"));
  for (const char* bomb : {",\"\":0", ",\"\""}) {
    const bool members = std::string_view(bomb).ends_with('0');
    const std::string body =
        Fill(members ? "{\"prompt\": 0" : "{\"prompt\": [0", bomb, kBytes, members ? "}" : "]}");
    CHECK_THAT(Door::ErrorOf(door.Post(kCompletions, body)),
               StartsWith("400 ") && Contains("strings and member names"));
  }
  CHECK(ResidentMebibytes() - before < 250);
  CHECK(door.Post(kCompletions, kBody).status == 200);
}

TEST_CASE("a body over the limit is 413, and large ones in number are 503") {
  HttpServerOptions server;
  server.max_body_bytes = 1000;
  HttpApiOptions options;
  options.large_bodies = {.from_bytes = 100, .max_waiting = 0};
  Door door(std::move(options), server);
  CHECK_THAT(Door::ErrorOf(door.Post(kCompletions, Fill("{\"prompt\": \"", "a", 2000, "\"}"))),
             StartsWith("413 - ") && Contains("1000"));
  CHECK_THAT(Door::ErrorOf(door.Post(kCompletions, Fill("{\"prompt\": \"", "a", 200, "\"}"))),
             StartsWith("503 - "));
  CHECK(door.Post(kCompletions, kBody).status == 200);
}

TEST_CASE("a silent stream is told that it waits") {
  HttpApiOptions options;
  options.ping_interval_ticks = 2;
  Door door(std::move(options));
  std::atomic<bool> go_on = false;
  door.service.SetScript(
      [&](const GenerationRequest& request, GenerationSink& sink, const auto& cancelled) {
        while (!go_on && !cancelled()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        Say({{"x", 40}})(request, sink, cancelled);
      });
  HttpClient client(door.port());
  REQUIRE(client.SendRequest("POST", kCompletions, R"({"prompt": "What", "stream": true})"));
  while (door.service.requests().empty()) std::this_thread::yield();
  std::atomic<bool> stop = false;
  std::thread clock([&] {
    while (!stop) {
      door.api().Tick();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  CHECK(client.ReadUntil(": waiting\n\n"));
  go_on = true;
  CHECK(client.ReadUntil("[DONE]"));
  stop = true;
  clock.join();
}

TEST_CASE("rows of others have their own admission, and both methods of a path are named") {
  HttpApiOptions options;
  const auto admit = [](const HttpRequest& header) -> std::optional<HttpResponse> {
    if (header.authorization == "Bearer admin") return std::nullopt;
    HttpResponse response;
    response.status = 401;
    return response;
  };
  const auto says = [](const std::string& what) {
    return [what](const std::shared_ptr<HttpExchange>& exchange) {
      HttpResponse response;
      response.body = what + exchange->request().body;
      exchange->Respond(std::move(response));
    };
  };
  options.other_routes = {{{"GET", "/x", "Reads.", true}, admit, says("read")},
                          {{"POST", "/x", "Writes.", true}, admit, says("written ")}};
  Door door(options);
  constexpr std::string_view kKey = "Authorization: Bearer admin\r\n";
  CHECK(door.Get("/x").status == 401);
  CHECK(door.Get("/x", kKey).body == "read");
  CHECK(door.Post("/x", "{}", kKey).body == "written {}");
  HttpClient client(door.port());
  REQUIRE(client.SendRequest("PUT", "/x", "{}", kKey));
  const HttpReply wrong = client.Receive();
  CHECK(wrong.status == 405);
  CHECK(wrong.head.find("Allow: GET, POST\r\n") != std::string::npos);
  CHECK(Door::ErrorOf(wrong) == "405 - /x takes GET and POST, not PUT");
  const Json paths = Json::parse(door.Get("/openapi.json").body)["paths"];
  CHECK(paths["/x"].size() == 2);
  CHECK(door.Get("/y").status == 404);
}

TEST_CASE("keys of one name may use the same models") {
  const std::vector<ServedEntry> doors = {{.model = DoorModel()}};
  const std::string served = doors[0].model->name;
  const auto check = [&](std::vector<std::string> models, const std::string& second) {
    return CheckModelNames(doors, KeyRing({{.key = "a", .name = "team", .models = {served}},
                                           {.key = "b", .name = second, .models = models}}));
  };
  CHECK(check({served}, "team").ok());
  CHECK(check({}, "others").ok());
  CHECK_THAT(std::string(check({}, "team").message()), Contains("two API keys are called team"));
}

}  // namespace tessera::coordinator
