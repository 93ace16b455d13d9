#include "coordinator/deployment/worker_session.h"

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cmath>
#include <deque>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/deployment/fences.h"
#include "proto/leader_term.h"
#include "proto/protocol.h"
#include "proto/status_wire.h"
#include "proto/worker.grpc.pb.h"

namespace tessera::coordinator {
namespace {

// The steps of the stream that the queue reports.
enum class Step : intptr_t { kStarted = 1, kAccepted, kRead, kWritten, kFinished };

void* Tag(Step step) { return reinterpret_cast<void*>(step); }

// Whether the leader's headers also ended the call. The callback API reports such headers as
// failed, a completion queue as received; only ClientReactor has a public way to ask.
bool IsRefused(grpc::ClientContext& context) {
  struct Reactor final : grpc::internal::ClientReactor {
    void OnDone(const grpc::Status&) override {}
  };
  return Reactor().InternalTrailersOnly(context.c_call());
}

class GrpcSession final : public WorkerSession, public std::enable_shared_from_this<GrpcSession> {
 public:
  GrpcSession(std::shared_ptr<grpc::Channel> channel, WorkerSessionOptions options,
              ReplicaLinkListener& listener)
      : options_(std::move(options)),
        listener_(listener),
        call_(std::make_unique<Call>(std::move(channel))) {
    AddMetadata(call_->context);
  }

  void Begin() {
    try {
      std::thread([self = shared_from_this()] { self->Run(); }).detach();
    } catch (const std::system_error& error) {
      const absl::Status reason = absl::ResourceExhaustedError(
          absl::StrCat("cannot start the thread of replica ", options_.replica,
                       "'s session: ", error.what(), "; raise the limit on processes"));
      Close(reason);
      // The listener is never called from inside Open: one of gRPC's threads does it.
      no_thread_ = std::make_unique<grpc::Alarm>();
      no_thread_->Set(std::chrono::system_clock::now(), [self = shared_from_this()](bool) mutable {
        std::exchange(self, nullptr)->End(absl::OkStatus());
      });
    }
  }

  const std::string& replica() const override { return options_.replica; }
  int64_t max_sequences() const override { return options_.max_sequences; }
  const v1::WorkerReady& ready() const override { return options_.ready; }

  bool Send(v1::SessionRequest request) override {
    *request.mutable_fence() = options_.fence;
    bool overflow = false;
    {
      std::lock_guard lock(mutex_);
      if (closed_) return false;
      outbox_.push_back(std::move(request));
      overflow = outbox_.size() > options_.max_outbox_messages;
      if (!overflow) WriteNextLocked();
    }
    if (overflow) {
      Close(absl::UnavailableError("its leader has stopped reading what the coordinator sends"));
      return false;
    }
    return true;
  }

  bool FindKept(const v1::FindKeptRequest& request, double timeout_seconds,
                KeptFound found) override {
    struct Asked {
      grpc::ClientContext context;
      v1::FindKeptRequest request;
      v1::KeptAnswer kept;
    };
    auto asked = std::make_shared<Asked>();
    asked->request = request;
    AddMetadata(asked->context);
    asked->context.set_deadline(std::chrono::system_clock::now() +
                                std::chrono::microseconds(std::lround(1e6 * timeout_seconds)));
    std::lock_guard lock(mutex_);
    if (closed_) return false;
    call_->stub->async()->FindKept(&asked->context, &asked->request, &asked->kept,
                                   [asked, found = std::move(found)](const grpc::Status& status) {
                                     if (status.ok()) return found(std::move(asked->kept));
                                     found(FromGrpc(status));
                                   });
    return true;
  }

  void Close(const absl::Status& reason) override {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    CloseLocked(reason);
    call_->context.TryCancel();  // whatever the thread waits for ends at once
  }

 private:
  // What gRPC needs. It is freed before the listener hears that the link is lost: then the thread
  // is gone from gRPC, and may outlive what its listener waits with.
  struct Call {
    explicit Call(std::shared_ptr<grpc::Channel> channel)
        : stub(v1::Worker::NewStub(std::move(channel))) {}
    std::unique_ptr<v1::Worker::Stub> stub;
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    std::unique_ptr<grpc::ClientAsyncReaderWriter<v1::SessionRequest, v1::SessionReply>> stream;
    v1::SessionReply incoming;
    v1::SessionRequest outgoing;
    grpc::Status status;
  };

  void AddMetadata(grpc::ClientContext& context) const {
    if (!options_.cluster_token.empty())
      context.AddMetadata(std::string(kClusterTokenKey), options_.cluster_token);
    if (options_.leader_term > 0)
      context.AddMetadata(std::string(kLeaderTermKey), std::to_string(options_.leader_term));
  }

  // The thread: takes what the queue reports until the stream is over. A stream once begun always
  // ends with kFinished, and not before what was begun on it has been reported.
  void Run() {
    Call& call = *call_;
    call.stream = call.stub->PrepareAsyncSession(&call.context, &call.queue);
    call.stream->StartCall(Tag(Step::kStarted));
    void* tag = nullptr;
    bool ok = false;
    while (call.queue.Next(&tag, &ok)) {
      switch (static_cast<Step>(reinterpret_cast<intptr_t>(tag))) {
        case Step::kStarted: OnStarted(ok); break;
        case Step::kAccepted: OnAccepted(ok); break;
        case Step::kRead: OnRead(ok); break;
        case Step::kWritten: OnWritten(ok); break;
        case Step::kFinished: OnFinished(); break;
      }
    }
    End(FromGrpc(call.status));
  }

  void OnStarted(bool ok) {
    if (!ok) return OnStreamOver();
    call_->stream->ReadInitialMetadata(Tag(Step::kAccepted));
    std::lock_guard lock(mutex_);
    started_ = true;
    if (!closed_) WriteNextLocked();
  }

  // Only now is there somebody at the other end, unless the leader's headers were its refusal.
  // Reading then ends at once.
  void OnAccepted(bool ok) {
    if (!ok) return OnStreamOver();
    if (!IsRefused(call_->context)) listener_.OnLinkReady(shared_from_this());
    call_->stream->Read(&call_->incoming, Tag(Step::kRead));
  }

  void OnRead(bool ok) {
    if (!ok) return OnStreamOver();
    const absl::Status stale =
        CheckReplyFence(options_.replica, call_->incoming.fence(), options_.fence);
    if (!stale.ok()) {
      Close(stale);
      return OnStreamOver();
    }
    listener_.OnReply(shared_from_this(), call_->incoming);
    call_->stream->Read(&call_->incoming, Tag(Step::kRead));
  }

  void OnWritten(bool ok) {
    std::lock_guard lock(mutex_);
    writing_ = false;
    if (ok && !closed_) WriteNextLocked();
    if (finished_ && !writing_) call_->queue.Shutdown();
  }

  void OnFinished() {
    std::lock_guard lock(mutex_);
    finished_ = true;
    if (!writing_) call_->queue.Shutdown();
  }

  // Nothing is read any more. Where nobody has closed the session, the stream's own status says
  // why; cancelling now would replace it.
  void OnStreamOver() {
    {
      std::lock_guard lock(mutex_);
      if (!closed_) CloseLocked(absl::OkStatus());
    }
    call_->stream->Finish(&call_->status, Tag(Step::kFinished));
  }

  void CloseLocked(const absl::Status& reason) {
    closed_ = true;
    reason_ = reason;
    outbox_.clear();
  }

  void End(absl::Status status) {
    absl::Status reason;
    std::unique_ptr<Call> over;
    {
      std::lock_guard lock(mutex_);
      reason = reason_;
      over = std::move(call_);
    }
    over = nullptr;
    if (reason.ok()) reason = std::move(status);
    if (reason.ok()) reason = absl::UnavailableError("its leader ended the session");
    listener_.OnLinkLost(shared_from_this(), reason);
  }

  void WriteNextLocked() {
    if (!started_ || writing_ || outbox_.empty()) return;
    writing_ = true;
    call_->outgoing = std::move(outbox_.front());
    outbox_.pop_front();
    call_->stream->Write(call_->outgoing, Tag(Step::kWritten));
  }

  const WorkerSessionOptions options_;
  ReplicaLinkListener& listener_;
  std::unique_ptr<grpc::Alarm> no_thread_;  // where the thread could not be started

  std::mutex mutex_;
  std::unique_ptr<Call> call_;  // null once closed and over
  std::deque<v1::SessionRequest> outbox_;
  bool started_ = false;
  bool writing_ = false;
  bool finished_ = false;
  bool closed_ = false;
  absl::Status reason_;
};

}  // namespace

std::shared_ptr<WorkerSession> WorkerSession::Open(std::shared_ptr<grpc::Channel> channel,
                                                   WorkerSessionOptions options,
                                                   ReplicaLinkListener& listener) {
  auto session = std::make_shared<GrpcSession>(std::move(channel), std::move(options), listener);
  session->Begin();
  return session;
}

}  // namespace tessera::coordinator
