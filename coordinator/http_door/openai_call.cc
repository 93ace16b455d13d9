#include "coordinator/http_door/openai_call.h"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/api/embeddings.h"
#include "coordinator/api/messages_reply.h"
#include "coordinator/api/openai_reply.h"
#include "coordinator/api/ranking.h"
#include "coordinator/api/responses_reply.h"
#include "coordinator/fairness/retry_after.h"
#include "coordinator/flow/kept_answer.h"

namespace tessera::coordinator {
namespace {

std::unique_ptr<AnswerWriter> MakeWriter(const ServedModel& model, const OpenAiCall& call,
                                         int64_t created) {
  switch (call.form) {
    case AnswerForm::kMessages: return std::make_unique<MessagesReply>(model, call);
    case AnswerForm::kResponses: return std::make_unique<ResponsesReply>(model, call, created);
    case AnswerForm::kEmbeddings: return std::make_unique<EmbeddingsReply>(model, call);
    case AnswerForm::kRanking: return std::make_unique<RankingReply>(model, call, created);
    case AnswerForm::kOpenAi: break;
  }
  return std::make_unique<OpenAiReply>(model, call, created);
}

class Call final : public RunningCall, public std::enable_shared_from_this<Call> {
 public:
  Call(OpenAiCall call, std::string request_id, std::shared_ptr<const ServedModel> model,
       int64_t created, std::shared_ptr<HttpExchange> exchange)
      : call_(std::move(call)),
        request_id_(std::move(request_id)),
        model_(std::move(model)),
        exchange_(std::move(exchange)),
        reply_(MakeWriter(*model_, call_, created)),
        open_(static_cast<int>(call_.prompts.size())) {}

  // False: it has been answered already.
  bool Start(GenerationService& service) {
    std::vector<std::unique_ptr<GenerationHandle>> handles;
    const std::string traceparent = exchange_->request().traceparent;
    const uint64_t group = call_.prompts.size() > 1 ? std::max<uint64_t>(1, DrawSeed()) : 0;
    for (size_t i = 0; i < call_.prompts.size(); ++i) {
      GenerationRequest request = call_.prompts[i];
      request.request_id = request_id_;
      request.traceparent = traceparent;
      request.group = group;
      request.leads_group = i == 0;
      request.prompt_text.clear();  // the reply has it
      request.resumes = !call_.resume_id.empty();
      if ((call_.stream || request.resumes) && CheckResumable(request).ok())
        request.answer_id = reply_->stream_id();
      absl::StatusOr<std::unique_ptr<GenerationHandle>> handle = service.Start(
          std::move(request), std::make_shared<Sink>(shared_from_this(), static_cast<int>(i)));
      if (!handle.ok()) {
        Fail(handle.status());
        return false;  // the handles that are there cancel as they go
      }
      handles.push_back(*std::move(handle));
    }
    std::shared_ptr<HttpExchange> exchange;  // ours may be let go by an end on another thread
    {
      std::lock_guard lock(mutex_);
      if (over_) return false;
      handles_ = std::move(handles);
      exchange = exchange_;
    }
    exchange->OnGone([weak = weak_from_this()] {
      if (auto self = weak.lock()) self->Drop();
    });
    return true;
  }

  void Tick(int silent_ticks) override {
    std::lock_guard lock(mutex_);
    if (over_ || !call_.stream || ++ticks_since_write_ < silent_ticks) return;
    ticks_since_write_ = 0;
    BeginStreamLocked();
    exchange_->Write(reply_->Ping());
  }

 private:
  // The events of one prompt.
  class Sink final : public GenerationSink {
   public:
    Sink(std::shared_ptr<Call> call, int prompt) : call_(std::move(call)), prompt_(prompt) {}
    void OnPromptLogprobs(std::vector<PositionChances> positions) override {
      std::lock_guard lock(call_->mutex_);
      call_->reply_->AddPromptLogprobs(prompt_, std::move(positions));
    }
    void OnChoice(ChoiceEvent event) override { call_->OnChoice(prompt_, event); }
    void OnEnd(const absl::Status& status, const GenerationUsage& usage,
               const std::string&) override {
      call_->OnEnd(status, usage);
    }

   private:
    const std::shared_ptr<Call> call_;
    const int prompt_;
  };

  void OnChoice(int prompt, const ChoiceEvent& event) {
    bool gone = false;
    {
      std::lock_guard lock(mutex_);
      if (over_) return;
      if (!call_.stream) {
        reply_->Add(prompt, event);
        return;
      }
      BeginStreamLocked();
      const std::string chunk = reply_->Chunk(prompt, event);
      if (chunk.empty()) return;
      gone = !exchange_->Write(chunk);
      ticks_since_write_ = 0;
    }
    if (gone) Drop();
  }

  void OnEnd(const absl::Status& status, const GenerationUsage& usage) {
    if (!status.ok()) {
      Fail(status);
      Drop();
      return;
    }
    std::lock_guard lock(mutex_);
    if (over_) return;
    reply_->AddUsage(usage);
    if (--open_ > 0) return;
    over_ = true;
    if (call_.stream) {
      BeginStreamLocked();
      exchange_->Write(reply_->ClosingChunks());
      exchange_->End();
    } else {
      HttpResponse response;
      response.body = reply_->Body();
      response.headers = Headers();
      exchange_->Respond(std::move(response));
    }
    exchange_.reset();
  }

  void Fail(const absl::Status& status) {
    std::lock_guard lock(mutex_);
    if (over_) return;
    over_ = true;
    if (begun_) {
      exchange_->Write(reply_->ErrorChunk(status));
      exchange_->End();
    } else {
      HttpResponse response = ErrorResponse(status, request_id_, call_.form);
      AddLimits(response.headers);
      exchange_->Respond(std::move(response));
    }
    exchange_.reset();
  }

  // The client is gone or an answer has failed: whatever still runs is cancelled.
  void Drop() {
    std::vector<std::unique_ptr<GenerationHandle>> handles;  // cancelled outside the lock
    std::shared_ptr<HttpExchange> exchange;
    std::lock_guard lock(mutex_);
    over_ = true;
    std::swap(handles, handles_);
    std::swap(exchange, exchange_);
  }

  void BeginStreamLocked() {
    if (begun_) return;
    begun_ = true;
    exchange_->BeginStream(Headers());
    exchange_->Write(reply_->OpeningChunks());
  }

  HttpHeaders Headers() const {
    HttpHeaders headers = {{"X-Request-Id", request_id_}};
    AddFieldNames("x-tessera-ignored-fields", call_.ignored_fields, headers);
    AddFieldNames("x-tessera-not-enforced", call_.not_enforced, headers);
    AddLimits(headers);
    return headers;
  }

  void AddLimits(HttpHeaders& headers) const {
    if (!call_.limits) return;
    for (auto& header : call_.limits()) headers.push_back(std::move(header));
  }

  const OpenAiCall call_;
  const std::string request_id_;
  const std::shared_ptr<const ServedModel> model_;

  std::mutex mutex_;
  std::shared_ptr<HttpExchange> exchange_;
  const std::unique_ptr<AnswerWriter> reply_;
  std::vector<std::unique_ptr<GenerationHandle>> handles_;
  int open_;
  bool begun_ = false;
  bool over_ = false;
  int ticks_since_write_ = 0;
};

}  // namespace

std::shared_ptr<RunningCall> StartOpenAiCall(OpenAiCall call, std::string request_id,
                                             std::shared_ptr<const ServedModel> model,
                                             GenerationService& service,
                                             int64_t created_unix_seconds,
                                             std::shared_ptr<HttpExchange> exchange) {
  auto running = std::make_shared<Call>(std::move(call), std::move(request_id), std::move(model),
                                        created_unix_seconds, std::move(exchange));
  return running->Start(service) ? running : nullptr;
}

std::string PrintableField(std::string_view name) {
  std::string printable;
  for (const char c : name) printable.push_back(c > 0x20 && c < 0x7F && c != ',' ? c : '?');
  return printable;
}

void AddFieldNames(const char* header, const std::vector<std::string>& names,
                   HttpHeaders& headers) {
  constexpr size_t kMaxBytes = 1024;
  std::string value;
  for (const std::string& name : names) {
    if (value.size() + name.size() > kMaxBytes) break;
    if (!value.empty()) value += ", ";
    value += PrintableField(name);
  }
  if (!value.empty()) headers.emplace_back(header, std::move(value));
}

HttpResponse ErrorResponse(const absl::Status& status, const std::string& request_id,
                           AnswerForm form) {
  OpenAiError error = ToOpenAiError(status);
  HttpResponse response;
  response.status = error.http_status;
  response.body = form == AnswerForm::kMessages ? MessagesError(status) : std::move(error.body);
  if (!request_id.empty()) response.headers.emplace_back("X-Request-Id", request_id);
  // Seconds. Where nobody knows better: queues here drain in about one.
  if (error.http_status == 429 || error.http_status == 503)
    response.headers.emplace_back("Retry-After",
                                  absl::StrCat(RetryAfterSeconds(status).value_or(1)));
  if (error.http_status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

void RespondError(HttpExchange& exchange, const absl::Status& status, const std::string& request_id,
                  AnswerForm form) {
  exchange.Respond(ErrorResponse(status, request_id, form));
}

}  // namespace tessera::coordinator
