#include "coordinator/http_door/http_api.h"

#include <charconv>
#include <list>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "coordinator/api/chat_prompt.h"
#include "coordinator/api/embeddings.h"
#include "coordinator/api/messages_request.h"
#include "coordinator/api/openai_reply.h"
#include "coordinator/api/openai_request.h"
#include "coordinator/api/ranking.h"
#include "coordinator/api/responses_request.h"
#include "coordinator/fairness/asked_deadline.h"
#include "coordinator/http_door/openai_call.h"
#include "coordinator/http_door/token_endpoints.h"
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

// For whom the client asks, under the names that OpenAI and Anthropic have had for it.
std::string UserOf(const nlohmann::json& body) {
  constexpr size_t kMaxBytes = 256;
  const auto text = [](const nlohmann::json& object, const char* name) {
    const auto member = object.find(name);
    return member == object.end() || !member->is_string() ? std::string()
                                                          : member->get<std::string>();
  };
  std::string user = text(body, "safety_identifier");
  if (user.empty()) user = text(body, "user");
  const auto metadata = body.find("metadata");
  if (user.empty() && metadata != body.end() && metadata->is_object())
    user = text(*metadata, "user_id");
  return user.substr(0, kMaxBytes);
}

class Api final : public HttpApi {
 public:
  Api(HttpApiOptions options, ServedModels models)
      : options_(std::move(options)), models_(std::move(models)) {}

  std::optional<HttpResponse> Admit(const HttpRequest& header) const override {
    const std::string request_id = RequestIdOr(header.request_id);
    const Route* route = Find(header.path);
    if (route == nullptr) return AdmitOther(header, request_id);
    if (!Takes(*route, header))
      return WrongMethod({std::string(route->method)}, header, request_id);
    if (!route->needs_key || options_.keys.ClientOf(header.authorization).has_value())
      return std::nullopt;
    const absl::Status status = absl::UnauthenticatedError(
        "the API key is missing or wrong (header Authorization: Bearer KEY, or x-api-key: KEY)");
    if (route->generates()) CountRefusal(status);
    return ErrorResponse(status, request_id, route->form);
  }

  void Handle(std::shared_ptr<HttpExchange> exchange) override {
    const HttpRequest& request = exchange->request();
    const std::string request_id = RequestIdOr(request.request_id);
    const Route* route = Find(request.path);
    if (route == nullptr) {
      FindOther(request)->handle(std::move(exchange));
      return;
    }
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
    bool generates() const {
      return streams || form == AnswerForm::kEmbeddings || form == AnswerForm::kRanking;
    }
  };

  static std::span<const Route> Routes() {
    static const Route kRoutes[] = {
        {{"POST", "/v1/chat/completions", "Continues a conversation.", true, ChatFields(), true},
         &Api::Chat},
        {{"POST", "/v1/completions", "Continues a text.", true, CompletionFields(), true},
         &Api::Complete},
        {{"POST", "/v1/fim/completions", "Mistral's: fills the middle of a text.", true,
          FimFields(), true},
         &Api::Fim},
        {{"POST", "/v1/responses", "OpenAI's Responses, none of which is stored.", true,
          ResponsesFields(), true},
         &Api::Responses,
         AnswerForm::kResponses},
        {{"POST", "/v1/responses/input_tokens", "The tokens of such a request.", true,
          ResponsesFields()},
         &Api::CountInputTokens},
        {{"POST", "/v1/messages", "Anthropic's Messages.", true, MessagesFields(), true},
         &Api::Messages,
         AnswerForm::kMessages},
        {{"POST", "/v1/messages/count_tokens", "The tokens of such a request.", true,
          CountTokensFields()},
         &Api::CountTokens,
         AnswerForm::kMessages},
        {{"POST", "/v1/embeddings", "Texts to vectors.", true, EmbeddingsFields()},
         &Api::Embed,
         AnswerForm::kEmbeddings},
        {{"POST", "/v1/rerank", "Documents by a query.", true, RerankFields()},
         &Api::Rerank,
         AnswerForm::kRanking},
        {{"POST", "/v2/rerank", "The same.", true, RerankFields()},
         &Api::Rerank,
         AnswerForm::kRanking},
        {{"POST", "/rerank", "The same.", true, RerankFields()},
         &Api::Rerank,
         AnswerForm::kRanking},
        {{"POST", "/v1/score", "Pairs of texts to scores.", true, ScoreFields()},
         &Api::Score,
         AnswerForm::kRanking},
        {{"POST", "/score", "The same.", true, ScoreFields()}, &Api::Score, AnswerForm::kRanking},
        {{"GET", "/v1/models", "The served models, once per name.", true}, &Api::ListModels},
        {{"GET", "/v1/models/{model}", "One name of a served model.", true}, &Api::GetModel},
        {{"POST", "/tokenize", "Text or messages to token ids.", true, TokenizeFields()},
         &Api::Tokenize},
        {{"POST", "/detokenize", "Token ids to text.", true, DetokenizeFields()}, &Api::Detokenize},
        {{"POST", "/apply-template", "The text of a chat's prompt.", true, ApplyTemplateFields()},
         &Api::ApplyTemplate},
        {{"GET", "/tokenizer_info", "The tokenizer's special tokens and chat template.", true},
         &Api::DescribeTokenizer},
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

  static bool Takes(const ApiPath& path, const HttpRequest& header) {
    return header.method == path.method || (header.method == "HEAD" && path.method == "GET");
  }

  // Null where there is no such row for the request's method.
  const OtherRoute* FindOther(const HttpRequest& header) const {
    for (const OtherRoute& route : options_.other_routes) {
      if (route.path == header.path && Takes(route, header)) return &route;
    }
    return nullptr;
  }

  std::optional<HttpResponse> AdmitOther(const HttpRequest& header,
                                         const std::string& request_id) const {
    std::vector<std::string> methods;
    for (const OtherRoute& route : options_.other_routes) {
      if (route.path != header.path) continue;
      if (methods.empty()) {
        if (std::optional<HttpResponse> refused = route.admit(header)) return refused;
      }
      methods.emplace_back(route.method);
    }
    if (methods.empty())
      return ErrorResponse(NoEndpoint(header.path), request_id, FormOf(header.path));
    if (FindOther(header) != nullptr) return std::nullopt;
    return WrongMethod(methods, header, request_id);
  }

  // Clients are often given a base URL with one /v1 too few or too many.
  static absl::Status NoEndpoint(const std::string& path) {
    constexpr std::string_view kVersion = "/v1";
    std::string hint;
    if (Find(absl::StrCat(std::string(kVersion), path)) != nullptr) {
      hint = ": the client's base URL must end with /v1";
    } else if (path.starts_with(kVersion) && Find(path.substr(kVersion.size())) != nullptr) {
      hint = ": the client's base URL must be without /v1";
    } else {
      hint = "; GET /openapi.json lists those that there are";
    }
    return absl::NotFoundError(absl::StrCat("there is no endpoint ", path, hint));
  }

  // The form of errors at that path.
  static AnswerForm FormOf(std::string_view path) {
    if (const Route* route = Find(path)) return route->form;
    return path.starts_with("/v1/messages") ? AnswerForm::kMessages : AnswerForm::kOpenAi;
  }

  static HttpResponse WrongMethod(const std::vector<std::string>& methods,
                                  const HttpRequest& header, const std::string& request_id) {
    const absl::Status status = absl::InvalidArgumentError(absl::StrCat(
        header.path, " takes ", absl::StrJoin(methods, " and "), ", not ", header.method));
    HttpResponse response = ErrorResponse(status, request_id, FormOf(header.path));
    response.status = 405;
    response.headers.emplace_back("Allow", absl::StrJoin(methods, ", "));
    return response;
  }

  // A body as JSON, and the model that it is for.
  struct Asked {
    SplitJson body;
    const ServedEntry* door = nullptr;
    const nlohmann::json& all() const { return body.all; }
    const ServedModel& model() const { return *door->model; }
  };

  // Answers the error itself. The text is freed: a stream does not carry its request along.
  std::optional<Asked> Read(HttpExchange& exchange, const std::string& request_id) {
    const auto counted = std::exchange(exchange.request().body_share, nullptr);
    const std::string text = std::exchange(exchange.request().body, std::string());
    absl::StatusOr<SplitJson> body = ReadChatBody(text, kBodyLimits);
    absl::Status taken = body.status();
    if (taken.ok()) {
      const auto name = body->all.find("model");
      const bool is_name = name != body->all.end() && name->is_string();
      const absl::StatusOr<const ServedEntry*> door = models_.Pick(
          is_name ? name->get_ref<const std::string&>() : "", options_.keys, ClientOf(exchange));
      if (door.ok()) return Asked{*std::move(body), *door};
      taken = door.status();
    }
    Refuse(*Find(exchange.request().path), exchange, taken, request_id);
    return std::nullopt;
  }

  // The client whose key it has; it was admitted.
  std::string ClientOf(HttpExchange& exchange) const {
    return options_.keys.ClientOf(exchange.request().authorization).value_or("");
  }

  void Chat(std::shared_ptr<HttpExchange> exchange, const std::string& request_id) {
    const std::optional<Asked> asked = Read(*exchange, request_id);
    if (!asked.has_value()) return;
    Begin(ReadChatCall(asked->all(), asked->body.ordered, asked->model(),
                       options_.now_unix_seconds()),
          *asked, exchange, request_id);
  }

  void Messages(std::shared_ptr<HttpExchange> exchange, const std::string& request_id) {
    const std::optional<Asked> asked = Read(*exchange, request_id);
    if (!asked.has_value()) return;
    Begin(ReadMessagesCall(asked->all(), asked->body.ordered, asked->model(),
                           options_.now_unix_seconds()),
          *asked, exchange, request_id);
  }

  void Responses(std::shared_ptr<HttpExchange> exchange, const std::string& request_id) {
    const std::optional<Asked> asked = Read(*exchange, request_id);
    if (!asked.has_value()) return;
    Begin(ReadResponsesCall(asked->all(), asked->body.ordered, asked->model(),
                            options_.now_unix_seconds()),
          *asked, exchange, request_id);
  }

  void Complete(std::shared_ptr<HttpExchange> exchange, const std::string& request_id) {
    const std::optional<Asked> asked = Read(*exchange, request_id);
    if (!asked.has_value()) return;
    Begin(ReadCompletionCall(asked->all(), asked->body.ordered, asked->model()), *asked, exchange,
          request_id);
  }

  void Fim(std::shared_ptr<HttpExchange> exchange, const std::string& request_id) {
    const std::optional<Asked> asked = Read(*exchange, request_id);
    if (!asked.has_value()) return;
    Begin(ReadFimCall(asked->all(), asked->body.ordered, asked->model()), *asked, exchange,
          request_id);
  }

  void Embed(std::shared_ptr<HttpExchange> exchange, const std::string& request_id) {
    const std::optional<Asked> asked = Read(*exchange, request_id);
    if (!asked.has_value()) return;
    Begin(ReadEmbeddingsCall(asked->all(), asked->model()), *asked, exchange, request_id);
  }

  void Rerank(std::shared_ptr<HttpExchange> exchange, const std::string& request_id) {
    const std::optional<Asked> asked = Read(*exchange, request_id);
    if (!asked.has_value()) return;
    Begin(ReadRerankCall(asked->all(), asked->model()), *asked, exchange, request_id);
  }

  void Score(std::shared_ptr<HttpExchange> exchange, const std::string& request_id) {
    const std::optional<Asked> asked = Read(*exchange, request_id);
    if (!asked.has_value()) return;
    Begin(ReadScoreCall(asked->all(), asked->model()), *asked, exchange, request_id);
  }

  void Begin(absl::StatusOr<OpenAiCall> call, const Asked& asked,
             std::shared_ptr<HttpExchange> exchange, const std::string& request_id) {
    if (!call.ok()) {
      CountRefusal(call.status());
      RespondError(*exchange, call.status(), request_id, Find(exchange->request().path)->form);
      return;
    }
    LogIgnored(exchange->request().path, call->ignored_fields);
    const std::string client = ClientOf(*exchange);
    const std::string user = UserOf(asked.all());
    const HttpRequest& header = exchange->request();
    const absl::StatusOr<AskedDeadline> deadline =
        ReadDeadline({header.deadline, header.workflow, header.workflow_stages_left},
                     static_cast<double>(options_.now_unix_seconds()));
    if (!deadline.ok()) return Refuse(*Find(header.path), *exchange, deadline.status(), request_id);
    for (GenerationRequest& prompt : call->prompts) {
      prompt.client = client;
      prompt.user = user;
      deadline->ApplyTo(prompt);
    }
    call->resume_id = header.resume;
    if (asked.door->limits)
      call->limits = [limits = asked.door->limits, client] { return limits(client); };
    const bool stream = call->stream;
    std::shared_ptr<RunningCall> running =
        StartOpenAiCall(*std::move(call), request_id, asked.door->model, *asked.door->service,
                        options_.now_unix_seconds(), std::move(exchange));
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

  static Json ModelJson(const ServedModel& model, const std::string& name) {
    const absl::Time created = absl::FromUnixSeconds(model.created_unix_seconds);
    return {{"id", name},
            {"object", "model"},
            {"created", model.created_unix_seconds},
            {"owned_by", "tessera"},
            {"root", model.folder},
            {"max_model_len", model.max_model_len_tokens},
            // What Anthropic's clients read.
            {"type", "model"},
            {"display_name", name},
            {"created_at", absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", created, absl::UTCTimeZone())}};
  }

  void ListModels(std::shared_ptr<HttpExchange> exchange, const std::string& request_id) {
    Json models = Json::array();
    for (const ServedEntry* door : models_.AllowedTo(options_.keys, ClientOf(*exchange))) {
      for (const std::string& name : door->names()) models.push_back(ModelJson(*door->model, name));
    }
    exchange->Respond(JsonResponse(
        {{"object", "list"}, {"data", std::move(models)}, {"has_more", false}}, request_id));
  }

  void GetModel(std::shared_ptr<HttpExchange> exchange, const std::string& request_id) {
    const std::string asked =
        UrlDecoded(std::string_view(exchange->request().path).substr(sizeof("/v1/models/") - 1));
    if (asked.empty()) return ListModels(std::move(exchange), request_id);
    const absl::StatusOr<const ServedEntry*> door =
        models_.Pick(asked, options_.keys, ClientOf(*exchange));
    if (!door.ok()) return RespondError(*exchange, door.status(), request_id);
    exchange->Respond(JsonResponse(ModelJson(*(*door)->model, asked), request_id));
  }

  void Load(std::shared_ptr<HttpExchange> exchange, const std::string& request_id) {
    exchange->Respond(JsonResponse({{"server_load", options_.load()}}, request_id));
  }

  void Description(std::shared_ptr<HttpExchange> exchange, const std::string& request_id) {
    std::vector<ApiPath> paths(Routes().begin(), Routes().end());
    for (ApiPath& path : paths) path.needs_key = path.needs_key && !options_.keys.open();
    paths.insert(paths.end(), options_.other_routes.begin(), options_.other_routes.end());
    exchange->Respond(JsonResponse(OpenApiDocument(paths, options_.version), request_id));
  }

  void CountTokens(std::shared_ptr<HttpExchange> exchange, const std::string& request_id) {
    const std::optional<Asked> asked = Read(*exchange, request_id);
    if (!asked.has_value()) return;
    const absl::StatusOr<int64_t> count = CountMessagesTokens(
        asked->all(), asked->body.ordered, asked->model(), options_.now_unix_seconds());
    if (count.ok()) {
      exchange->Respond(JsonResponse({{"input_tokens", *count}}, request_id));
    } else {
      RespondError(*exchange, count.status(), request_id, AnswerForm::kMessages);
    }
  }

  void CountInputTokens(std::shared_ptr<HttpExchange> exchange, const std::string& request_id) {
    const std::optional<Asked> asked = Read(*exchange, request_id);
    if (!asked.has_value()) return;
    const absl::StatusOr<int64_t> count = CountResponsesTokens(
        asked->all(), asked->body.ordered, asked->model(), options_.now_unix_seconds());
    if (!count.ok()) return RespondError(*exchange, count.status(), request_id);
    exchange->Respond(
        JsonResponse({{"object", "response.input_tokens"}, {"input_tokens", *count}}, request_id));
  }

  // The endpoints around the tokenizer.
  static void Respond(HttpExchange& exchange, const absl::StatusOr<TokenAnswer>& answer,
                      const std::string& request_id) {
    if (!answer.ok()) {
      RespondError(exchange, answer.status(), request_id);
      return;
    }
    HttpResponse response = JsonResponse(answer->json, request_id);
    AddFieldNames("x-tessera-ignored-fields", answer->ignored_fields, response.headers);
    exchange.Respond(std::move(response));
  }

  void Tokenize(std::shared_ptr<HttpExchange> exchange, const std::string& request_id) {
    const std::optional<Asked> asked = Read(*exchange, request_id);
    if (!asked.has_value()) return;
    Respond(*exchange,
            AnswerTokenize(asked->all(), asked->body.ordered, asked->model(),
                           options_.now_unix_seconds()),
            request_id);
  }

  void ApplyTemplate(std::shared_ptr<HttpExchange> exchange, const std::string& request_id) {
    const std::optional<Asked> asked = Read(*exchange, request_id);
    if (!asked.has_value()) return;
    Respond(*exchange,
            AnswerApplyTemplate(asked->all(), asked->body.ordered, asked->model(),
                                options_.now_unix_seconds()),
            request_id);
  }

  void Detokenize(std::shared_ptr<HttpExchange> exchange, const std::string& request_id) {
    const std::optional<Asked> asked = Read(*exchange, request_id);
    if (!asked.has_value()) return;
    Respond(*exchange, AnswerDetokenize(asked->all(), asked->model()), request_id);
  }

  void DescribeTokenizer(std::shared_ptr<HttpExchange> exchange, const std::string& request_id) {
    const absl::StatusOr<const ServedEntry*> door =
        models_.Pick("", options_.keys, ClientOf(*exchange));
    if (!door.ok()) {
      return RespondError(*exchange,
                          absl::InvalidArgumentError(
                              "several models are served, and this endpoint names none: POST "
                              "/tokenize with \"model\" gives the tokens of one"),
                          request_id);
    }
    exchange->Respond(JsonResponse(TokenizerInfo(*(*door)->model), request_id));
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

  const HttpApiOptions options_;
  const ServedModels models_;
  std::mutex mutex_;
  std::list<std::weak_ptr<RunningCall>> running_;    // streams
  std::set<std::string> logged_fields_;              // ignored ones
  LargeBodies large_bodies_{options_.large_bodies};  // last: its thread uses what stands above
};

}  // namespace

bool HttpApi::Generates(std::string_view path) { return Api::Generates(path); }

std::unique_ptr<HttpApi> HttpApi::Make(HttpApiOptions options, ServedModels models) {
  return std::make_unique<Api>(std::move(options), std::move(models));
}

}  // namespace tessera::coordinator
