#include "tests/coordinator/door.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <iterator>
#include <utility>

#include "proto/file_text.h"
#include "tests/temporary_folder.h"

namespace tessera::coordinator {
namespace {

constexpr char kModelFolder[] = "deploy/demo_model/tessera-demo";

constexpr char kToolTemplate[] =
    "{%- for tool in tools or [] %}{{ tool | tojson }}\n{% endfor %}"
    "{%- for m in messages %}[{{ m.role }}]{{ m.content or '' }}"
    "{%- for call in m.tool_calls or [] %}<tool_call>\n{{ call.function | tojson }}\n</tool_call>"
    "{%- endfor %}{% endfor %}"
    "{%- if add_generation_prompt %}[assistant]"
    "{%- if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n"
    "{% elif open_thinking %}<think>\n{% endif %}{% endif %}";

}  // namespace

std::shared_ptr<const ServedModel> ToolModel(const char* chat_template) {
  auto model = std::make_shared<ServedModel>(*DoorModel());
  model->max_model_len_tokens = 4000;
  model->chat_template =
      ChatTemplate::Parse(chat_template == nullptr ? kToolTemplate : chat_template).value();
  REQUIRE(FindAnswerFormats("", *model).ok());
  return model;
}

std::shared_ptr<const ServedModel> DoorModel() {
  auto model = std::make_shared<ServedModel>();
  model->name = "org/demo";
  model->other_names = {"second-name"};
  model->system_fingerprint->Set("fp_of_the_door");
  model->folder = kModelFolder;
  model->max_model_len_tokens = 200;
  model->embedding_width = 3;
  model->created_unix_seconds = 1700000000;
  model->tokenizer = Tokenizer::Load(kModelFolder).value();
  model->chat_template = ChatTemplate::Load(kModelFolder).value();
  model->defaults.temperature = 0.25;
  model->defaults.top_k = 7;
  return model;
}

std::shared_ptr<const ServedModel> ModelWithTokens(const std::string& name,
                                                   const std::vector<std::string>& tokens) {
  auto model = std::make_shared<ServedModel>(*DoorModel());
  model->name = name;
  model->max_model_len_tokens = 4000;
  nlohmann::json tokenizer = nlohmann::json::parse(
      ReadFileText(std::string(kModelFolder) + "/tokenizer.json", 1 << 20).value());
  int32_t id = model->tokenizer->vocabulary_size();
  for (const std::string& token : tokens) {
    nlohmann::json added = tokenizer["added_tokens"][0];
    added["id"] = id++;
    added["content"] = token;
    tokenizer["added_tokens"].push_back(added);
  }
  const tests::TemporaryFolder folder;
  folder.Write("tokenizer.json", tokenizer.dump());
  model->tokenizer = Tokenizer::Load(folder.path()).value();
  return model;
}

Door::Door(HttpApiOptions options, HttpServerOptions server_options,
           std::shared_ptr<const ServedModel> model, std::vector<ServedEntry> others) {
  service.SetScript(Say({{"one", 40}, {" two", 41}}));
  if (!options.readiness) options.readiness = [this] { return readiness; };
  if (!options.metrics) options.metrics = [] { return std::string("a_metric 1\n"); };
  if (!options.load) options.load = [] { return int64_t{3}; };
  options.version = "1.2.3+00aa11bb22cc";
  options.now_unix_seconds = [] { return int64_t{1700000001}; };
  std::vector<ServedEntry> doors = {
      {.model = std::move(model), .service = &service, .limits = [this](const std::string& client) {
         return limits ? limits(client) : HttpHeaders();
       }}};
  std::move(others.begin(), others.end(), std::back_inserter(doors));
  api_ = HttpApi::Make(std::move(options), ServedModels(std::move(doors)));
  server_options.admit = [this](const HttpRequest& header) {
    return HttpAdmission{api_->Admit(header), {}};
  };
  server_ = HttpServer::Start(server_options, [this](std::shared_ptr<HttpExchange> exchange) {
              api_->Handle(std::move(exchange));
            }).value();
}

Door::~Door() { server_->Stop(); }

HttpReply Door::Get(std::string_view path, std::string_view headers) {
  HttpClient client(port());
  REQUIRE(client.SendRequest("GET", path, "", headers));
  return client.Receive();
}

HttpReply Door::Post(std::string_view path, std::string_view body, std::string_view headers) {
  HttpClient client(port());
  REQUIRE(client.SendRequest("POST", path, body, headers));
  return client.Receive();
}

nlohmann::json Door::Ask(std::string_view path, const nlohmann::json& body) {
  const HttpReply reply = Post(path, body.dump());
  INFO(reply.body);
  REQUIRE(reply.status == 200);
  return nlohmann::json::parse(reply.body);
}

std::vector<nlohmann::json> Door::Stream(std::string_view path, nlohmann::json body) {
  body["stream"] = true;
  const HttpReply reply = Post(path, body.dump());
  INFO(reply.body);
  REQUIRE(reply.status == 200);
  REQUIRE(reply.head.find("text/event-stream") != std::string::npos);
  return EventsOf(reply.body);
}

std::string Door::ErrorOf(const HttpReply& reply) {
  const auto json = nlohmann::json::parse(reply.body, nullptr, false);
  INFO(reply.body);
  REQUIRE(json.is_object());
  const nlohmann::json& error = json.at("error");
  CHECK((error.at("code").is_null() || error.at("code").is_string()));
  CHECK(error.at("type").is_string());
  const std::string param = error.at("param").is_null() ? "-" : std::string(error.at("param"));
  return std::to_string(reply.status) + " " + param + " " + std::string(error.at("message"));
}

std::string Door::Error(std::string_view path, const nlohmann::json& body) {
  return ErrorOf(Post(path, body.dump()));
}

std::vector<nlohmann::json> EventsOf(const std::string& body) {
  constexpr std::string_view kData = "data: ";
  std::vector<nlohmann::json> events;
  bool done = false;
  for (size_t at = 0; at < body.size();) {
    const size_t end = body.find("\n\n", at);
    REQUIRE(end != std::string::npos);
    const std::string_view event(body.data() + at, end - at);
    at = end + 2;
    if (event.starts_with(":")) continue;
    REQUIRE(event.starts_with(kData));
    CHECK_FALSE(done);
    done = event.substr(kData.size()) == "[DONE]";
    if (!done) events.push_back(nlohmann::json::parse(event.substr(kData.size())));
  }
  CHECK(done);
  return events;
}

std::vector<std::pair<std::string, nlohmann::ordered_json>> NamedEventsOf(const std::string& body) {
  std::vector<std::pair<std::string, nlohmann::ordered_json>> events;
  for (size_t at = 0; at < body.size();) {
    const size_t end = body.find("\n\n", at);
    REQUIRE(end != std::string::npos);
    const std::string event = body.substr(at, end - at);
    at = end + 2;
    if (event.starts_with(":")) continue;
    const size_t line = event.find("\ndata: ");
    REQUIRE(event.starts_with("event: "));
    REQUIRE(line != std::string::npos);
    const std::string name = event.substr(7, line - 7);
    events.emplace_back(name, nlohmann::ordered_json::parse(event.substr(line + 7)));
    CHECK(events.back().second["type"] == name);
  }
  return events;
}

FakeGenerationService::Script Says(const std::string& text, Finish finish, size_t piece_bytes) {
  std::vector<Piece> pieces;
  for (size_t at = 0; at < text.size(); at += piece_bytes)
    pieces.push_back({text.substr(at, piece_bytes), 40});
  return Say(std::move(pieces), finish);
}

std::string PromptOf(const Door& door) {
  return DoorModel()->tokenizer->Decode(door.service.last_request().prompt_token_ids, false);
}

}  // namespace tessera::coordinator
