#include "coordinator/grpc_door/inference_service.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <deque>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/fairness/asked_deadline.h"
#include "coordinator/flow/kept_answer.h"
#include "coordinator/grpc_door/inference_reply.h"
#include "coordinator/grpc_door/inference_request.h"
#include "proto/inference.grpc.pb.h"
#include "proto/protocol.h"
#include "proto/status_wire.h"

namespace tessera::coordinator {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kStalled{1};
constexpr char kResume[] = "x-tessera-resume";

// A writer for each choice of the answer.
std::vector<ChoiceWriter> WritersOf(const ServedModel& model, const InferenceCall& call) {
  std::vector<ChoiceWriter> writers;
  for (int32_t i = 0; i < call.request.choice_count; ++i)
    writers.emplace_back(*model.tokenizer, call.answer_format);
  return writers;
}

// What every call has in common: the one owner of a generation that both gRPC and the generation's
// events hold. gRPC deletes the reactor in OnDone; the events may come later, so they hold this
// instead.
class CallState {
 public:
  void SetHandle(std::unique_ptr<GenerationHandle> handle) {
    std::unique_ptr<GenerationHandle> dropped;  // cancels outside the lock
    std::lock_guard lock(mutex_);
    if (cancelled_) {
      dropped = std::move(handle);
    } else {
      handle_ = std::move(handle);
    }
  }
  void Cancel() {
    std::unique_ptr<GenerationHandle> dropped;
    std::lock_guard lock(mutex_);
    cancelled_ = true;
    std::swap(dropped, handle_);
  }

 private:
  std::mutex mutex_;
  std::unique_ptr<GenerationHandle> handle_;
  bool cancelled_ = false;
};

// A reactor that lives until gRPC and the generation have both let go of it. gRPC keeps request and
// reply until the call is finished, so nothing finishes it before it has begun.
template <typename Reactor>
class SharedReactor : public Reactor,
                      public GenerationSink,
                      public std::enable_shared_from_this<SharedReactor<Reactor>> {
 public:
  // Before gRPC hears of it.
  void Hold() { self_ = this->shared_from_this(); }

  void Begin(GenerationService& service, absl::StatusOr<InferenceCall> asked) {
    absl::Status status = asked.status();
    if (asked.ok() && !Cancelled()) {
      Prepare(*asked);
      absl::StatusOr<std::unique_ptr<GenerationHandle>> handle =
          service.Start(std::move(asked->request), this->shared_from_this());
      if (handle.ok())
        state_.SetHandle(*std::move(handle));
      else
        status = handle.status();
    }
    {
      std::lock_guard lock(begin_mutex_);
      begun_ = true;
      if (cancelled_) status = absl::CancelledError("the client has cancelled");
    }
    if (!status.ok()) Abandon(status);
  }

  void OnCancel() override {
    {
      std::lock_guard lock(begin_mutex_);
      cancelled_ = true;
      if (!begun_) return;
    }
    Abandon(absl::CancelledError("the client has cancelled"));
  }
  void OnDone() override {
    state_.Cancel();
    self_.reset();
  }

 protected:
  virtual void Prepare(const InferenceCall& asked) = 0;
  // Ends the call once; later ends are ignored.
  virtual void Abandon(const absl::Status& status) = 0;
  CallState state_;

 private:
  bool Cancelled() {
    std::lock_guard lock(begin_mutex_);
    return cancelled_;
  }

  std::shared_ptr<SharedReactor> self_;
  std::mutex begin_mutex_;
  bool begun_ = false;
  bool cancelled_ = false;
};

class UnaryCall final : public SharedReactor<grpc::ServerUnaryReactor> {
 public:
  static constexpr bool kStreams = false;
  UnaryCall(const ServedModel& model, int64_t created, const std::string& id,
            v1::CompletionReply& reply)
      : model_(model), reply_(reply) {
    reply_.set_id(id);
    reply_.set_model(model.name);
    reply_.set_created_unix_seconds(created);
    reply_.set_system_fingerprint(model.system_fingerprint->Get());
  }

  void OnPromptLogprobs(std::vector<PositionChances> positions) override {
    std::lock_guard lock(mutex_);
    if (finished_) return;
    for (const PositionChances& p : positions)
      *reply_.add_prompt_logprobs() = ToProto(*model_.tokenizer, p);
  }
  void OnChoice(ChoiceEvent event) override {
    std::lock_guard lock(mutex_);
    if (!finished_) writers_[event.choice].Add(event, *reply_.mutable_choices(event.choice));
  }
  void OnEnd(const absl::Status& status, const GenerationUsage& usage,
             const std::string& replica) override {
    {
      std::lock_guard lock(mutex_);
      if (finished_) return;
      finished_ = true;
      *reply_.mutable_usage() = ToProto(usage);
      if (show_timings_) *reply_.mutable_timings() = ToProto(usage.timings);
      reply_.set_replica(replica);
    }
    Finish(ToGrpc(status));
  }

 private:
  void Prepare(const InferenceCall& asked) override {
    const GenerationRequest& request = asked.request;
    show_timings_ = request.show_timings;
    writers_ = WritersOf(model_, asked);
    for (const std::string& field : asked.not_enforced) reply_.add_not_enforced(field);
    for (int32_t i = 0; i < request.choice_count; ++i) {
      v1::Choice& choice = *reply_.add_choices();
      choice.set_index(i);
      choice.set_text(request.prompt_text);
    }
  }
  void Abandon(const absl::Status& status) override {
    {
      std::lock_guard lock(mutex_);
      if (finished_) return;
      finished_ = true;
    }
    state_.Cancel();
    Finish(ToGrpc(status));
  }

  const ServedModel& model_;
  v1::CompletionReply& reply_;
  std::vector<ChoiceWriter> writers_;  // of the choices
  bool show_timings_ = false;
  std::mutex mutex_;
  bool finished_ = false;
};

class StreamCall final : public SharedReactor<grpc::ServerWriteReactor<v1::CompletionChunk>> {
 public:
  static constexpr bool kStreams = true;
  StreamCall(grpc::CallbackServerContext& context, const ServedModel& model, std::string id,
             int64_t max_pending_bytes)
      : context_(context),
        model_(model),
        id_(std::move(id)),
        max_pending_bytes_(max_pending_bytes) {}

  void OnPromptLogprobs(std::vector<PositionChances>) override {}  // refused where asked for
  void OnChoice(ChoiceEvent event) override {
    v1::CompletionChunk chunk = NewChunk();
    writers_[event.choice].Add(event, *chunk.mutable_choice());
    Push(std::move(chunk));
  }
  void OnEnd(const absl::Status& status, const GenerationUsage& usage,
             const std::string& replica) override {
    if (status.ok()) {
      v1::CompletionChunk chunk = NewChunk();
      *chunk.mutable_usage() = ToProto(usage);
      if (show_timings_) *chunk.mutable_timings() = ToProto(usage.timings);
      chunk.set_replica(replica);
      for (const std::string& field : not_enforced_) chunk.add_not_enforced(field);
      Push(std::move(chunk));
    }
    std::lock_guard lock(mutex_);
    if (ending_) return;
    ending_ = true;
    end_ = ToGrpc(status);
    NextLocked();
  }
  void OnWriteDone(bool ok) override {
    if (!ok) Abandon(absl::CancelledError("the client is gone"));
    std::lock_guard lock(mutex_);
    writing_ = false;
    NextLocked();
  }

 private:
  void Prepare(const InferenceCall& asked) override {
    const GenerationRequest& request = asked.request;
    show_timings_ = request.show_timings;
    writers_ = WritersOf(model_, asked);
    not_enforced_ = asked.not_enforced;
    if (request.prompt_text.empty()) return;
    for (int32_t i = 0; i < request.choice_count; ++i) {
      ChoiceEvent event;
      event.choice = i;
      event.text = request.prompt_text;
      OnChoice(std::move(event));
    }
  }

  v1::CompletionChunk NewChunk() const {
    v1::CompletionChunk chunk;
    chunk.set_id(id_);
    chunk.set_system_fingerprint(model_.system_fingerprint->Get());
    return chunk;
  }

  void Push(v1::CompletionChunk chunk) {
    bool too_slow = false;
    {
      std::lock_guard lock(mutex_);
      if (ending_) return;
      pending_bytes_ += static_cast<int64_t>(chunk.ByteSizeLong());
      pending_.push_back(std::move(chunk));
      // A large piece, or many at once, are no fault of the reader: it is slow when it has left a
      // write standing for a while.
      const bool stalled = writing_ && Clock::now() - write_began_ > kStalled;
      too_slow = stalled && pending_bytes_ > max_pending_bytes_;
      if (!too_slow) NextLocked();
    }
    if (too_slow) Abandon(absl::ResourceExhaustedError("the client reads its stream too slowly"));
  }

  void NextLocked() {
    if (writing_ || finished_) return;
    if (!pending_.empty()) {
      writing_ = true;
      write_began_ = Clock::now();
      current_ = std::move(pending_.front());
      pending_.pop_front();
      pending_bytes_ -= static_cast<int64_t>(current_.ByteSizeLong());
      StartWrite(&current_);
    } else if (ending_) {
      finished_ = true;
      Finish(end_);
    }
  }

  void Abandon(const absl::Status& status) override {
    state_.Cancel();
    std::lock_guard lock(mutex_);
    pending_.clear();
    pending_bytes_ = 0;
    if (finished_) return;
    ending_ = true;
    end_ = ToGrpc(status);
    // A write that the client does not take ends only with the call.
    if (writing_) context_.TryCancel();
    NextLocked();
  }

  grpc::CallbackServerContext& context_;  // gRPC's, until OnDone
  const ServedModel& model_;
  const std::string id_;
  const int64_t max_pending_bytes_;
  std::vector<ChoiceWriter> writers_;  // of the choices
  std::vector<std::string> not_enforced_;
  bool show_timings_ = false;
  std::mutex mutex_;
  std::deque<v1::CompletionChunk> pending_;
  int64_t pending_bytes_ = 0;
  Clock::time_point write_began_;
  v1::CompletionChunk current_;
  grpc::Status end_;
  bool writing_ = false;
  bool ending_ = false;
  bool finished_ = false;
};

class InferenceServiceImpl final : public v1::Inference::CallbackService {
 public:
  InferenceServiceImpl(InferenceServiceOptions options, ServedModels models)
      : options_(std::move(options)), models_(std::move(models)) {}

  grpc::ServerUnaryReactor* Complete(grpc::CallbackServerContext* context,
                                     const v1::CompletionRequest* request,
                                     v1::CompletionReply* reply) override {
    const Picked picked = Pick(*context, request->model());
    const ServedModel& model = *picked.door->model;
    const std::string id = AnswerId(*context, "cmpl-");
    auto call = std::make_shared<UnaryCall>(model, options_.now_unix_seconds(), id, *reply);
    return Begin(context, call, *request, picked, id,
                 [request, &model] { return ReadCompletion(*request, model); });
  }
  grpc::ServerUnaryReactor* Chat(grpc::CallbackServerContext* context,
                                 const v1::ChatRequest* request,
                                 v1::CompletionReply* reply) override {
    const Picked picked = Pick(*context, request->model());
    const ServedModel& model = *picked.door->model;
    const int64_t now = options_.now_unix_seconds();
    const std::string id = AnswerId(*context, "chatcmpl-");
    auto call = std::make_shared<UnaryCall>(model, now, id, *reply);
    return Begin(context, call, *request, picked, id,
                 [request, &model, now] { return ReadChat(*request, model, now); });
  }
  grpc::ServerWriteReactor<v1::CompletionChunk>* StreamComplete(
      grpc::CallbackServerContext* context, const v1::CompletionRequest* request) override {
    const Picked picked = Pick(*context, request->model());
    const ServedModel& model = *picked.door->model;
    const std::string id = AnswerId(*context, "cmpl-");
    auto call = std::make_shared<StreamCall>(*context, model, id, options_.max_pending_bytes);
    return Begin(context, call, *request, picked, id,
                 [request, &model] { return ForStream(ReadCompletion(*request, model)); });
  }
  grpc::ServerWriteReactor<v1::CompletionChunk>* StreamChat(
      grpc::CallbackServerContext* context, const v1::ChatRequest* request) override {
    const Picked picked = Pick(*context, request->model());
    const ServedModel& model = *picked.door->model;
    const std::string id = AnswerId(*context, "chatcmpl-");
    auto call = std::make_shared<StreamCall>(*context, model, id, options_.max_pending_bytes);
    return Begin(context, call, *request, picked, id, [this, request, &model] {
      return ForStream(ReadChat(*request, model, options_.now_unix_seconds()));
    });
  }

  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context,
                                       const v1::ListModelsRequest* request,
                                       v1::ListModelsReply* reply) override {
    return Answer(context, *request, [=, this] {
      for (const ServedEntry* door :
           models_.AllowedTo(options_.keys, ClientOf(*context).value_or(""))) {
        for (const std::string& name : door->names()) {
          v1::ModelInfo& model = *reply->add_models();
          model.set_id(name);
          model.set_created_unix_seconds(door->model->created_unix_seconds);
          model.set_max_model_len_tokens(door->model->max_model_len_tokens);
          model.set_root(door->model->folder);
        }
      }
      return absl::OkStatus();
    });
  }
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context,
                                     const v1::TokenizeRequest* request,
                                     v1::TokenizeReply* reply) override {
    return Answer(context, *request, [=, this]() -> absl::Status {
      const Picked picked = Pick(*context, request->model());
      if (!picked.refusal.ok()) return picked.refusal;
      const ServedModel& model = *picked.door->model;
      EncodeOptions how;
      how.add_special_tokens = !request->has_add_special_tokens() || request->add_special_tokens();
      absl::StatusOr<std::vector<int32_t>> ids = model.tokenizer->Encode(request->text(), how);
      if (!ids.ok()) return ids.status();
      reply->mutable_ids()->Add(ids->begin(), ids->end());
      reply->set_max_model_len_tokens(model.max_model_len_tokens);
      return absl::OkStatus();
    });
  }
  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context,
                                       const v1::DetokenizeRequest* request,
                                       v1::DetokenizeReply* reply) override {
    return Answer(context, *request, [=, this]() -> absl::Status {
      const Picked picked = Pick(*context, request->model());
      if (!picked.refusal.ok()) return picked.refusal;
      const Tokenizer& tokenizer = *picked.door->model->tokenizer;
      for (int32_t id : request->ids()) {
        if (id >= 0 && id < tokenizer.vocabulary_size()) continue;
        return FieldError("ids", absl::StrCat("id ", id, " is not in the vocabulary of ",
                                              tokenizer.vocabulary_size(), " tokens"));
      }
      const std::vector<int32_t> ids(request->ids().begin(), request->ids().end());
      reply->set_text(tokenizer.Decode(ids, /*skip_special_tokens=*/false));
      return absl::OkStatus();
    });
  }

 private:
  struct Picked {
    const ServedEntry* door = nullptr;  // of a refused request the first
    absl::Status refusal;
  };

  // Which model a request is for; a wrong key is refused elsewhere.
  Picked Pick(const grpc::CallbackServerContext& context, const std::string& asked) const {
    const absl::StatusOr<const ServedEntry*> door =
        models_.Pick(asked, options_.keys, ClientOf(context).value_or(""));
    return door.ok() ? Picked{*door, absl::OkStatus()} : Picked{&models_.first(), door.status()};
  }

  // The client's, which resumes an answer, or one that is drawn.
  static std::string AnswerId(const grpc::CallbackServerContext& context, const char* prefix) {
    const std::string resumed = Metadata(context, kResume);
    return resumed.empty() ? absl::StrCat(prefix, DrawId()) : resumed;
  }

  // `read` may run on another thread; what it borrows from gRPC stays until the call is finished.
  template <typename Call, typename Request, typename Read>
  Call* Begin(grpc::CallbackServerContext* context, const std::shared_ptr<Call>& call,
              const Request& request, const Picked& picked, const std::string& id, Read read) {
    call->Hold();
    const absl::StatusOr<std::string> client = ClientOf(*context);
    absl::Status taken = client.status();
    absl::StatusOr<AskedDeadline> deadline = DeadlineOf(*context);
    if (taken.ok()) taken = deadline.status();
    if (taken.ok()) taken = picked.refusal;
    GenerationService& service = *picked.door->service;
    if (taken.ok()) {
      taken = large_bodies_.Read(
          request.ByteSizeLong(),
          [this, &service, call, read, id, client = *client, deadline = *std::move(deadline),
           traceparent = Metadata(*context, "traceparent"),
           resumes = !Metadata(*context, kResume).empty()] {
            absl::StatusOr<InferenceCall> asked = read();
            if (!asked.ok()) return Start(service, *call, asked.status());
            GenerationRequest& request = asked->request;
            request.client = client;
            request.traceparent = traceparent;
            request.resumes = resumes;
            if ((Call::kStreams || resumes) && CheckResumable(request).ok()) request.answer_id = id;
            deadline.ApplyTo(request);
            Start(service, *call, std::move(asked));
          });
    }
    if (!taken.ok()) Start(service, *call, taken);
    return call.get();
  }

  template <typename Call>
  void Start(GenerationService& service, Call& call, absl::StatusOr<InferenceCall> asked) {
    if (!asked.ok() && options_.refused) options_.refused(asked.status().code());
    call.Begin(service, std::move(asked));
  }

  template <typename Request, typename Work>
  grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, const Request& request,
                                   Work work) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    absl::Status taken = ClientOf(*context).status();
    if (taken.ok()) {
      taken = large_bodies_.Read(request.ByteSizeLong(),
                                 [reactor, work] { reactor->Finish(ToGrpc(work())); });
    }
    if (!taken.ok()) reactor->Finish(ToGrpc(taken));
    return reactor;
  }

  static absl::StatusOr<InferenceCall> ForStream(absl::StatusOr<InferenceCall> asked) {
    if (asked.ok() && asked->request.prompt_logprobs >= 0) {
      return FieldError("prompt_logprobs", "prompt_logprobs: only without a stream");
    }
    return asked;
  }

  static std::string Metadata(const grpc::CallbackServerContext& context, const char* name) {
    const auto& metadata = context.client_metadata();
    const auto found = metadata.find(name);
    return found == metadata.end() ? "" : std::string(found->second.data(), found->second.size());
  }

  absl::StatusOr<AskedDeadline> DeadlineOf(const grpc::CallbackServerContext& context) const {
    std::string deadline;
    const auto [first, last] = context.client_metadata().equal_range("x-request-deadline");
    for (auto one = first; one != last; ++one) {
      if (one != first) deadline += ", ";
      deadline += one->second.empty() ? " " : std::string(one->second.data(), one->second.size());
    }
    return ReadDeadline(
        {deadline, Metadata(context, "x-workflow-id"), Metadata(context, "x-workflow-stages-left")},
        options_.now_unix_seconds ? static_cast<double>(options_.now_unix_seconds()) : 0);
  }

  // UNAUTHENTICATED: its key is missing or wrong.
  absl::StatusOr<std::string> ClientOf(const grpc::CallbackServerContext& context) const {
    std::optional<std::string> client = options_.keys.ClientOf(Metadata(context, "authorization"));
    if (client.has_value()) return *std::move(client);
    return absl::UnauthenticatedError(
        "the API key is missing or wrong (metadata authorization: Bearer KEY)");
  }

  const InferenceServiceOptions options_;
  const ServedModels models_;
  LargeBodies large_bodies_{options_.large_bodies};  // last: its thread uses what stands above
};

}  // namespace

std::unique_ptr<grpc::Service> MakeInferenceService(InferenceServiceOptions options,
                                                    ServedModels models) {
  return std::make_unique<InferenceServiceImpl>(std::move(options), std::move(models));
}

}  // namespace tessera::coordinator
