#include "coordinator/api/openai_api.h"

#include <charconv>
#include <list>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/api/body_reader.h"
#include "coordinator/api/chat_prompt.h"
#include "coordinator/api/chat_tools.h"
#include "coordinator/api/messages_request.h"
#include "coordinator/api/openai_call.h"
#include "coordinator/api/openai_reply.h"
#include "coordinator/api/openai_request.h"
#include "coordinator/api/responses_request.h"
#include "coordinator/tokenizer/json_fields.h"
#include "proto/protocol.h"
#include "third_party/spdlog/log.h"

namespace tessera::coordinator {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kModelParameter = "{model}";

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

  std::optional<HttpResponse> Admit(const HttpRequest& header) const override {
    const std::string request_id = RequestIdOr(header.request_id);
    const Route* route = Find(header.path);
    if (route == nullptr) {
      return ErrorResponse(absl::NotFoundError(absl::StrCat("there is no endpoint ", header.path)),
                           request_id);
    }
    const bool head = header.method == "HEAD" && route->method == "GET";
    if (header.method != route->method && !head) return WrongMethod(*route, header, request_id);
    if (!route->needs_key || KeyFits(header.authorization)) return std::nullopt;
    const absl::Status status = absl::UnauthenticatedError(
        "the API key is missing or wrong (header Authorization: Bearer KEY, or x-api-key: KEY)");
    if (route->generates()) CountRefusal(status);
    return ErrorResponse(status, request_id, route->form);
  }

  void Handle(std::shared_ptr<HttpExchange> exchange) override {
    const HttpRequest& request = exchange->request();
    const std::string request_id = RequestIdOr(request.request_id);
    const Route* route = Find(request.path);
    const absl::Status taken = large_bodies_.Read(
        request.body.size(),
        [this, route, exchange, request_id] { (this->*route->handle)(exchange, request_id); });
    if (!taken.ok()) Refuse(*route, *exchange, taken, request_id);
  }

  static bool Generates(std::string_view path) {
    const Route* route = Find(path);
    return route != nullptr && route->generates();
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
  struct Route : ApiPath {
    Handler handle;
    AnswerForm form = AnswerForm::kOpenAi;  // of its errors too
    bool matches(std::string_view asked) const {
      if (!path.ends_with(kModelParameter)) return asked == path;
      return asked.starts_with(path.substr(0, path.size() - kModelParameter.size()));
    }
    bool generates() const { return streams; }
  };

  static std::span<const Route> Routes() {
    static const Route kRoutes[] = {
        {{"POST", "/v1/chat/completions", "Continues a conversation.", true, ChatFields(), true},
         &Api::Chat},
        {{"POST", "/v1/completions", "Continues a text.", true, CompletionFields(), true},
         &Api::Complete},
        {{"POST", "/v1/responses", "OpenAI's Responses, none of which is stored.", true,
          ResponsesFields(), true},
         &Api::Responses,
         AnswerForm::kResponses},
        {{"POST", "/v1/messages", "Anthropic's Messages.", true, MessagesFields(), true},
         &Api::Messages,
         AnswerForm::kMessages},
        {{"POST", "/v1/messages/count_tokens", "The tokens of such a request.", true,
          CountTokensFields()},
         &Api::CountTokens,
         AnswerForm::kMessages},
        {{"GET", "/v1/models", "The served model, once per name.", true}, &Api::ListModels},
        {{"GET", "/v1/models/{model}", "One name of the served model.", true}, &Api::GetModel},
        {{"POST", "/tokenize", "Text or messages to token ids.", true, TokenizeFields()},
         &Api::Tokenize},
        {{"POST", "/detokenize", "Token ids to text.", true, DetokenizeFields()}, &Api::Detokenize},
        {{"GET", "/health", "The process answers."}, &Api::Health},
        {{"GET", "/healthz", "The process answers."}, &Api::Health},
        {{"GET", "/livez", "The process answers."}, &Api::Health},
        {{"GET", "/ping", "The process answers."}, &Api::Health},
        {{"GET", "/ready", "Whether requests are served, else why not."}, &Api::Ready},
        {{"GET", "/readyz", "Whether requests are served, else why not."}, &Api::Ready},
        {{"GET", "/load", "Requests that run or wait."}, &Api::Load},
        {{"GET", "/version", "The version of this build."}, &Api::Version},
        {{"GET", "/metrics", "Prometheus text.", false, {}, false, "text/plain"}, &Api::Metrics},
        {{"GET", "/openapi.json", "This document."}, &Api::Description},
    };
    return kRoutes;
  }

  static const Route* Find(std::string_view path) {
    for (const Route& route : Routes()) {
      if (route.matches(path)) return &route;
    }
    return nullptr;
  }

  // Answers with an error; counted where the request was one to generate.
  void Refuse(const Route& route, HttpExchange& exchange, const absl::Status& status,
              const std::string& request_id) const {
    if (route.generates()) CountRefusal(status);
    RespondError(exchange, status, request_id, route.form);
  }
  void CountRefusal(const absl::Status& status) const {
    if (options_.refused) options_.refused(status.code());
  }

  static HttpResponse WrongMethod(const Route& route, const HttpRequest& header,
                                  const std::string& request_id) {
    HttpResponse response;
    response.status = 405;
    const Json error = {
        {"error",
         {{"message", absl::StrCat(std::string(route.path), " takes ", std::string(route.method),
                                   ", not ", header.method)},
          {"type", "invalid_request_error"},
          {"param", nullptr},
          {"code", nullptr}}}};
    response.body = error.dump(-1, ' ', false, Json::error_handler_t::replace);
    response.headers = {{"Allow", std::string(route.method)}, {"X-Request-Id", request_id}};
    return response;
  }

  bool KeyFits(std::string_view authorization) const {
    if (options_.api_keys.empty()) return true;
    return BearerFits(authorization, options_.api_keys);
  }

  // The body as JSON, and where `conversation` is not null, what of it a chat template sees;
  // answers the error itself. The text is freed: a stream does not carry its request along.
  // `generates`: a refusal is counted.
  std::optional<nlohmann::json> ReadBody(HttpExchange& exchange, const std::string& request_id,
                                         bool generates, Json* conversation = nullptr) {
    const AnswerForm form = Find(exchange.request().path)->form;
    const auto counted = std::exchange(exchange.request().body_share, nullptr);
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
    if (generates) CountRefusal(status);
    RespondError(exchange, status, request_id, form);
    return std::nullopt;
  }

  void Chat(std::shared_ptr<HttpExchange> exchange, const std::string& request_id) {
    Json conversation;
    const std::optional<nlohmann::json> body = ReadBody(*exchange, request_id, true, &conversation);
    if (!body.has_value()) return;
    Begin(ReadChatCall(*body, conversation, *model_, options_.now_unix_seconds()), exchange,
          request_id);
  }

  void Messages(std::shared_ptr<HttpExchange> exchange, const std::string& request_id) {
    Json conversation;
    const std::optional<nlohmann::json> body = ReadBody(*exchange, request_id, true, &conversation);
    if (!body.has_value()) return;
    Begin(ReadMessagesCall(*body, conversation, *model_, options_.now_unix_seconds()), exchange,
          request_id);
  }

  void Responses(std::shared_ptr<HttpExchange> exchange, const std::string& request_id) {
    Json conversation;
    const std::optional<nlohmann::json> body = ReadBody(*exchange, request_id, true, &conversation);
    if (!body.has_value()) return;
    Begin(ReadResponsesCall(*body, conversation, *model_, options_.now_unix_seconds()), exchange,
          request_id);
  }

  void CountTokens(std::shared_ptr<HttpExchange> exchange, const std::string& request_id) {
    Json conversation;
    const std::optional<nlohmann::json> body =
        ReadBody(*exchange, request_id, false, &conversation);
    if (!body.has_value()) return;
    const absl::StatusOr<int64_t> count =
        CountMessagesTokens(*body, conversation, *model_, options_.now_unix_seconds());
    if (count.ok()) {
      exchange->Respond(JsonResponse({{"input_tokens", *count}}, request_id));
    } else {
      RespondError(*exchange, count.status(), request_id, AnswerForm::kMessages);
    }
  }

  void Complete(std::shared_ptr<HttpExchange> exchange, const std::string& request_id) {
    Json ordered;
    const std::optional<nlohmann::json> body = ReadBody(*exchange, request_id, true, &ordered);
    if (!body.has_value()) return;
    Begin(ReadCompletionCall(*body, ordered, *model_), exchange, request_id);
  }

  void Begin(absl::StatusOr<OpenAiCall> call, std::shared_ptr<HttpExchange> exchange,
             const std::string& request_id) {
    if (!call.ok()) {
      CountRefusal(call.status());
      RespondError(*exchange, call.status(), request_id, Find(exchange->request().path)->form);
      return;
    }
    LogIgnored(exchange->request().path, call->ignored_fields);
    const bool stream = call->stream;
    std::shared_ptr<RunningCall> running =
        StartOpenAiCall(*std::move(call), request_id, model_, service_, options_.now_unix_seconds(),
                        std::move(exchange));
    if (running == nullptr || !stream) return;
    std::lock_guard lock(mutex_);
    running_.push_back(running);
  }

  // Once per endpoint and name, so that a client that always sends it does not fill the log.
  void LogIgnored(std::string_view path, const std::vector<std::string>& names) {
    constexpr size_t kMaxNames = 1000;
    for (const std::string& name : names) {
      {
        std::lock_guard lock(mutex_);
        if (logged_fields_.size() == kMaxNames) return;
        if (!logged_fields_.insert(absl::StrCat(std::string(path), " ", name)).second) continue;
      }
      Logger("coordinator")
          .debug("field {} is ignored: {} does not know it", PrintableField(name), path);
    }
  }

  Json ModelJson(const std::string& name) const {
    return {{"id", name},
            {"object", "model"},
            {"created", model_->created_unix_seconds},
            {"owned_by", "tessera"},
            {"root", model_->folder},
            {"max_model_len", model_->max_model_len_tokens}};
  }

  void ListModels(std::shared_ptr<HttpExchange> exchange, const std::string& request_id) {
    Json models = Json::array({ModelJson(model_->name)});
    for (const std::string& name : model_->other_names) models.push_back(ModelJson(name));
    exchange->Respond(JsonResponse({{"object", "list"}, {"data", std::move(models)}}, request_id));
  }

  void GetModel(std::shared_ptr<HttpExchange> exchange, const std::string& request_id) {
    const std::string asked =
        UrlDecoded(std::string_view(exchange->request().path).substr(sizeof("/v1/models/") - 1));
    if (asked.empty()) {
      ListModels(std::move(exchange), request_id);
    } else if (absl::Status s = CheckModelName(*model_, asked); !s.ok()) {
      RespondError(*exchange, s, request_id);
    } else {
      exchange->Respond(JsonResponse(ModelJson(asked), request_id));
    }
  }

  void Load(std::shared_ptr<HttpExchange> exchange, const std::string& request_id) {
    exchange->Respond(JsonResponse({{"server_load", options_.load()}}, request_id));
  }

  void Description(std::shared_ptr<HttpExchange> exchange, const std::string& request_id) {
    std::vector<ApiPath> paths(Routes().begin(), Routes().end());
    for (ApiPath& path : paths) path.needs_key = path.needs_key && !options_.api_keys.empty();
    paths.insert(paths.end(), options_.other_paths.begin(), options_.other_paths.end());
    exchange->Respond(JsonResponse(OpenApiDocument(paths, options_.version), request_id));
  }

  // vLLM's bodies: a prompt, or the messages of a chat.
  absl::StatusOr<std::vector<int32_t>> TokenizeBody(BodyReader& reader,
                                                    const Json& conversation) const {
    if (absl::Status s = CheckModelName(*model_, reader.String("model").value_or("")); !s.ok())
      return s;
    reader.CheckUnread();
    const std::optional<bool> add_special_tokens = reader.Bool("add_special_tokens");
    absl::StatusOr<ChatPromptOptions> how =
        ReadChatPromptOptions(reader.Bool("add_generation_prompt"),
                              reader.Bool("continue_final_message"), add_special_tokens);
    reader.Object("chat_template_kwargs");
    const absl::StatusOr<ChatTools> tools = ReadChatTools(*model_, conversation, std::nullopt);
    if (!tools.ok() && reader.status().ok()) return tools.status();
    const std::optional<std::string> prompt = reader.String("prompt");
    if (reader.Find("messages") != nullptr) {
      if (prompt.has_value()) reader.Fail("prompt", "give it or messages, not both");
      if (!reader.status().ok()) return reader.status();
      if (!how.ok()) return how.status();
      how->show_tools = tools->offered;
      absl::StatusOr<ChatPrompt> chat =
          EncodeChat(*model_, conversation, *how, options_.now_unix_seconds());
      if (!chat.ok()) return chat.status();
      return std::move(chat->token_ids);
    }
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
    const std::optional<nlohmann::json> body =
        ReadBody(*exchange, request_id, false, &conversation);
    if (!body.has_value()) return;
    BodyReader reader(*body, TokenizeFields());
    const bool spelled = reader.Bool("return_token_strs").value_or(false);
    absl::StatusOr<std::vector<int32_t>> ids = TokenizeBody(reader, conversation);
    if (!ids.ok()) {
      RespondError(*exchange, ids.status(), request_id);
      return;
    }
    Json answer = {
        {"count", ids->size()}, {"max_model_len", model_->max_model_len_tokens}, {"tokens", *ids}};
    if (spelled) {
      answer["token_strs"] = Json::array();
      for (int32_t id : *ids) answer["token_strs"].push_back(model_->tokenizer->TokenText(id));
    }
    HttpResponse response = JsonResponse(answer, request_id);
    AddFieldNames("x-tessera-ignored-fields", reader.Ignored(), response.headers);
    exchange->Respond(std::move(response));
  }

  void Detokenize(std::shared_ptr<HttpExchange> exchange, const std::string& request_id) {
    const std::optional<nlohmann::json> body = ReadBody(*exchange, request_id, false);
    if (!body.has_value()) return;
    BodyReader reader(*body, DetokenizeFields());
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
    HttpResponse response = JsonResponse(
        {{"prompt", model_->tokenizer->Decode(ids, /*skip_special_tokens=*/false)}}, request_id);
    AddFieldNames("x-tessera-ignored-fields", reader.Ignored(), response.headers);
    exchange->Respond(std::move(response));
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
  std::set<std::string> logged_fields_;              // ignored ones
  LargeBodies large_bodies_{options_.large_bodies};  // last: its thread uses what stands above
};

}  // namespace

bool OpenAiApi::Generates(std::string_view path) { return Api::Generates(path); }

std::unique_ptr<OpenAiApi> OpenAiApi::Make(OpenAiApiOptions options,
                                           std::shared_ptr<const ServedModel> model,
                                           GenerationService& service) {
  return std::make_unique<Api>(std::move(options), std::move(model), service);
}

}  // namespace tessera::coordinator
