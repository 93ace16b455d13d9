#include "coordinator/api/openai_api.h"

#include <charconv>
#include <list>
#include <mutex>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/api/body_reader.h"
#include "coordinator/api/openai_call.h"
#include "coordinator/api/openai_reply.h"
#include "coordinator/api/openai_request.h"
#include "coordinator/tokenizer/json_fields.h"
#include "proto/protocol.h"

namespace tessera::coordinator {
namespace {

using Json = nlohmann::ordered_json;

// A prompt of token ids has many values, a logit_bias some hundred thousand names, but nothing has
// many objects. Keeps what a body becomes in memory below some 200 MB.
constexpr JsonLimits kBodyLimits = {.values = 4 << 20, .containers = 100'000, .strings = 500'000};

// "%2F" and its like, as clients write a name with a slash into a path. What is not an escape
// stays.
std::string UrlDecoded(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    int byte = 0;
    const bool escape = text[i] == '%' && i + 2 < text.size() &&
                        std::from_chars(text.data() + i + 1, text.data() + i + 3, byte, 16).ptr ==
                            text.data() + i + 3;
    decoded.push_back(escape ? static_cast<char>(byte) : text[i]);
    if (escape) i += 2;
  }
  return decoded;
}

HttpResponse JsonResponse(const Json& json, const std::string& request_id) {
  HttpResponse response;
  response.headers = {{"X-Request-Id", request_id}};
  response.body = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  return response;
}

class Api final : public OpenAiApi {
 public:
  Api(OpenAiApiOptions options, std::shared_ptr<const ServedModel> model,
      GenerationService& service)
      : options_(std::move(options)), model_(std::move(model)), service_(service) {}

  void Handle(std::shared_ptr<HttpExchange> exchange) override {
    const HttpRequest& request = exchange->request();
    const std::string request_id = RequestIdOr(request.request_id);
    const Route* route = Find(request.path);
    if (route == nullptr) {
      RespondError(*exchange,
                   absl::NotFoundError(absl::StrCat("there is nothing at ", request.path)),
                   request_id);
      return;
    }
    const bool head = request.method == "HEAD" && std::string_view(route->method) == "GET";
    if (request.method != route->method && !head) {
      RefuseMethod(*exchange, *route, request_id);
      return;
    }
    if (route->needs_key && !KeyFits(request.authorization)) {
      RespondError(*exchange,
                   absl::UnauthenticatedError(
                       "the API key is missing or wrong (header Authorization: Bearer KEY)"),
                   request_id);
      return;
    }
    const absl::Status taken = large_bodies_.Read(
        request.body.size(),
        [this, route, exchange, request_id] { (this->*route->handle)(exchange, request_id); });
    if (!taken.ok()) RespondError(*exchange, taken, request_id);
  }

  void Tick() override {
    std::vector<std::shared_ptr<RunningCall>> running;
    {
      std::lock_guard lock(mutex_);
      for (auto it = running_.begin(); it != running_.end();) {
        if (auto call = it->lock()) {
          running.push_back(std::move(call));
          ++it;
        } else {
          it = running_.erase(it);
        }
      }
    }
    for (const auto& call : running) call->Tick(options_.ping_interval_ticks);
  }

 private:
  using Handler = void (Api::*)(std::shared_ptr<HttpExchange>, const std::string& request_id);
  struct Route {
    const char* method;
    const char* path;  // one that ends in / takes what follows too
    bool needs_key;
    Handler handle;
  };

  static const Route* Find(std::string_view path) {
    static constexpr Route kRoutes[] = {
        {"POST", "/v1/chat/completions", true, &Api::Chat},
        {"POST", "/v1/completions", true, &Api::Complete},
        {"GET", "/v1/models", true, &Api::ListModels},
        {"GET", "/v1/models/", true, &Api::GetModel},
        {"POST", "/tokenize", true, &Api::Tokenize},
        {"POST", "/detokenize", true, &Api::Detokenize},
        {"GET", "/health", false, &Api::Health},
        {"GET", "/ping", false, &Api::Health},
        {"GET", "/ready", false, &Api::Ready},
        {"GET", "/version", false, &Api::Version},
        {"GET", "/metrics", false, &Api::Metrics},
    };
    for (const Route& route : kRoutes) {
      const std::string_view known = route.path;
      if (path == known || (known.ends_with('/') && path.starts_with(known))) return &route;
    }
    return nullptr;
  }

  static void RefuseMethod(HttpExchange& exchange, const Route& route,
                           const std::string& request_id) {
    HttpResponse response;
    response.status = 405;
    const Json error = {{"error",
                         {{"message", absl::StrCat(route.path, " takes ", route.method, ", not ",
                                                   exchange.request().method)},
                          {"type", "invalid_request_error"},
                          {"param", nullptr},
                          {"code", 405}}}};
    response.body = error.dump(-1, ' ', false, Json::error_handler_t::replace);
    response.headers = {{"Allow", route.method}, {"X-Request-Id", request_id}};
    exchange.Respond(std::move(response));
  }

  bool KeyFits(std::string_view authorization) const {
    if (options_.api_keys.empty()) return true;
    bool fits = false;
    for (const std::string& key : options_.api_keys)
      fits |= SecretsEqual(authorization, absl::StrCat("Bearer ", key));
    return fits;
  }

  // The body as JSON, and where `conversation` is not null, what of it a chat template sees;
  // answers the error itself. The text is freed: a stream does not carry its request along.
  std::optional<nlohmann::json> ReadBody(HttpExchange& exchange, const std::string& request_id,
                                         Json* conversation = nullptr) {
    const std::string text = std::exchange(exchange.request().body, std::string());
    absl::StatusOr<nlohmann::json> body = ParseJson(text, "the request body", kBodyLimits);
    absl::Status status = body.status();
    if (body.ok() && !body->is_object())
      status = FieldError("", "the request body must be a JSON object");
    if (status.ok() && conversation != nullptr) {
      absl::StatusOr<Json> read = ReadConversation(text);
      status = read.status();
      if (read.ok()) *conversation = *std::move(read);
    }
    if (status.ok()) return *std::move(body);
    RespondError(exchange, status, request_id);
    return std::nullopt;
  }

  void Chat(std::shared_ptr<HttpExchange> exchange, const std::string& request_id) {
    Json conversation;
    const std::optional<nlohmann::json> body = ReadBody(*exchange, request_id, &conversation);
    if (!body.has_value()) return;
    Begin(ReadChatCall(*body, conversation, *model_, options_.now_unix_seconds()), exchange,
          request_id);
  }

  void Complete(std::shared_ptr<HttpExchange> exchange, const std::string& request_id) {
    const std::optional<nlohmann::json> body = ReadBody(*exchange, request_id);
    if (body.has_value()) Begin(ReadCompletionCall(*body, *model_), exchange, request_id);
  }

  void Begin(absl::StatusOr<OpenAiCall> call, std::shared_ptr<HttpExchange> exchange,
             const std::string& request_id) {
    if (!call.ok()) {
      RespondError(*exchange, call.status(), request_id);
      return;
    }
    const bool stream = call->stream;
    std::shared_ptr<RunningCall> running =
        StartOpenAiCall(*std::move(call), request_id, model_, service_, options_.now_unix_seconds(),
                        std::move(exchange));
    if (running == nullptr || !stream) return;
    std::lock_guard lock(mutex_);
    running_.push_back(running);
  }

  Json ModelJson() const {
    return {{"id", model_->name},
            {"object", "model"},
            {"created", model_->created_unix_seconds},
            {"owned_by", "tessera"},
            {"root", model_->folder},
            {"max_model_len", model_->max_model_len_tokens}};
  }

  void ListModels(std::shared_ptr<HttpExchange> exchange, const std::string& request_id) {
    exchange->Respond(
        JsonResponse({{"object", "list"}, {"data", Json::array({ModelJson()})}}, request_id));
  }

  void GetModel(std::shared_ptr<HttpExchange> exchange, const std::string& request_id) {
    const std::string asked =
        UrlDecoded(std::string_view(exchange->request().path).substr(sizeof("/v1/models/") - 1));
    if (absl::Status s = CheckModelName(*model_, asked); !s.ok() || asked.empty()) {
      RespondError(*exchange, s.ok() ? absl::NotFoundError("no model is named") : s, request_id);
      return;
    }
    exchange->Respond(JsonResponse(ModelJson(), request_id));
  }

  // vLLM's bodies: a prompt, or the messages of a chat.
  absl::StatusOr<std::vector<int32_t>> TokenizeBody(const nlohmann::json& body,
                                                    const Json& conversation) const {
    BodyReader reader(body);
    if (absl::Status s = CheckModelName(*model_, reader.String("model").value_or("")); !s.ok())
      return s;
    const std::optional<bool> add_special_tokens = reader.Bool("add_special_tokens");
    if (reader.Find("messages") != nullptr) {
      const bool add_generation_prompt = reader.Bool("add_generation_prompt").value_or(true);
      reader.Object("chat_template_kwargs");
      if (!reader.status().ok()) return reader.status();
      return EncodeChat(*model_, conversation, add_generation_prompt, options_.now_unix_seconds());
    }
    const std::optional<std::string> prompt = reader.String("prompt");
    if (!prompt.has_value()) reader.Fail("prompt", "missing");
    if (!reader.status().ok()) return reader.status();
    absl::StatusOr<std::vector<int32_t>> ids = model_->tokenizer->Encode(
        *prompt,
        {.add_special_tokens = add_special_tokens.value_or(true), .parse_special_tokens = true});
    if (!ids.ok()) return FieldError("prompt", std::string(ids.status().message()));
    return ids;
  }

  void Tokenize(std::shared_ptr<HttpExchange> exchange, const std::string& request_id) {
    Json conversation;
    const std::optional<nlohmann::json> body = ReadBody(*exchange, request_id, &conversation);
    if (!body.has_value()) return;
    absl::StatusOr<std::vector<int32_t>> ids = TokenizeBody(*body, conversation);
    if (!ids.ok()) {
      RespondError(*exchange, ids.status(), request_id);
      return;
    }
    Json answer = {
        {"count", ids->size()}, {"max_model_len", model_->max_model_len_tokens}, {"tokens", *ids}};
    if (body->value("return_token_strs", nlohmann::json()) == true) {
      answer["token_strs"] = Json::array();
      for (int32_t id : *ids) answer["token_strs"].push_back(model_->tokenizer->TokenText(id));
    }
    exchange->Respond(JsonResponse(answer, request_id));
  }

  void Detokenize(std::shared_ptr<HttpExchange> exchange, const std::string& request_id) {
    const std::optional<nlohmann::json> body = ReadBody(*exchange, request_id);
    if (!body.has_value()) return;
    BodyReader reader(*body);
    absl::Status status = CheckModelName(*model_, reader.String("model").value_or(""));
    if (reader.Find("tokens") == nullptr) reader.Fail("tokens", "missing");
    const std::vector<int32_t> ids = reader.TokenIds("tokens");
    for (int32_t id : ids) {
      if (id >= model_->tokenizer->vocabulary_size()) {
        reader.Fail("tokens", absl::StrCat("id ", id, " is not in the vocabulary of ",
                                           model_->tokenizer->vocabulary_size(), " tokens"));
        break;
      }
    }
    if (status.ok()) status = reader.status();
    if (!status.ok()) {
      RespondError(*exchange, status, request_id);
      return;
    }
    exchange->Respond(JsonResponse(
        {{"prompt", model_->tokenizer->Decode(ids, /*skip_special_tokens=*/false)}}, request_id));
  }

  // Shallow on purpose: the process answers. /ready says whether it serves.
  void Health(std::shared_ptr<HttpExchange> exchange, const std::string& request_id) {
    exchange->Respond(JsonResponse({{"status", "ok"}}, request_id));
  }

  void Ready(std::shared_ptr<HttpExchange> exchange, const std::string& request_id) {
    const absl::Status ready = options_.readiness();
    if (!ready.ok()) {
      RespondError(*exchange, ready, request_id);
      return;
    }
    nlohmann::json body = {{"status", "ready"}};
    const std::vector<std::string> stalled =
        options_.stalled ? options_.stalled() : std::vector<std::string>();
    if (!stalled.empty()) body["stalled"] = stalled;
    const std::vector<std::string> waiting =
        options_.waiting ? options_.waiting() : std::vector<std::string>();
    if (!waiting.empty()) body["waiting"] = waiting;
    exchange->Respond(JsonResponse(body, request_id));
  }

  void Version(std::shared_ptr<HttpExchange> exchange, const std::string& request_id) {
    exchange->Respond(JsonResponse({{"version", options_.version}}, request_id));
  }

  void Metrics(std::shared_ptr<HttpExchange> exchange, const std::string& request_id) {
    HttpResponse response;
    response.headers = {{"X-Request-Id", request_id}};
    response.content_type = "text/plain; version=0.0.4; charset=utf-8";
    response.body = options_.metrics();
    exchange->Respond(std::move(response));
  }

  const OpenAiApiOptions options_;
  const std::shared_ptr<const ServedModel> model_;
  GenerationService& service_;
  std::mutex mutex_;
  std::list<std::weak_ptr<RunningCall>> running_;    // streams
  LargeBodies large_bodies_{options_.large_bodies};  // last: its thread uses what stands above
};

}  // namespace

std::unique_ptr<OpenAiApi> OpenAiApi::Make(OpenAiApiOptions options,
                                           std::shared_ptr<const ServedModel> model,
                                           GenerationService& service) {
  return std::make_unique<Api>(std::move(options), std::move(model), service);
}

}  // namespace tessera::coordinator
