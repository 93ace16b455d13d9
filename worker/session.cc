#include "worker/session.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <utility>

#include "proto/status_wire.h"
#include "proto/worker.grpc.pb.h"
#include "worker/fences.h"

namespace tessera::worker {
namespace {

class Session final : public ReplySink, public std::enable_shared_from_this<Session> {
 public:
  enum class Step { kAccepted, kOpened, kRead, kWritten, kFinished };
  // What the queue reports by its address.
  struct Tag {
    Session* session;
    Step step;
  };

  // Asks for a stream, and keeps itself alive until it is over.
  static void Request(const SessionMethod& method) {
    auto session = std::make_shared<Session>(method);
    session->self_ = session;
    method.request(&session->call_->context, &session->call_->stream, &session->accepted_tag_);
  }

  explicit Session(const SessionMethod& method)
      : method_(method), kept_(method.kept), call_(std::make_unique<Call>()) {}

  // Called by the thread that serves; may end this object.
  void On(Step step, bool ok) {
    switch (step) {
      case Step::kAccepted: return OnAccepted(ok);
      case Step::kOpened: return OnOpened(ok);
      case Step::kRead: return OnRead(ok);
      case Step::kWritten: return OnWritten(ok);
      case Step::kFinished: return OnFinished();
    }
  }

  bool MayDeliver() override {
    std::lock_guard lock(mutex_);
    return !closed_ && credit_ > 0 && outbox_.size() < kMaxOutbox;
  }

  void Deliver(v1::SessionReply reply) override {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    --credit_;
    kept_->NoteReply(this, reply);
    outbox_.push_back(std::move(reply));
    WriteNextLocked();
  }

  void Close(const absl::Status& reason) override {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    closed_ = true;
    reason_ = reason;
    outbox_.clear();
    kept_->NoteEnd(this);
    if (!writing_) FinishLocked();
  }

 private:
  // What gRPC needs; freed when the stream is over, for the server's shutdown waits for that.
  struct Call {
    grpc::ServerContext context;
    SessionStream stream{&context};
  };

  void OnAccepted(bool ok) {
    if (!ok) {  // the server is shut down
      self_.reset();
      return;
    }
    Request(method_);
    auto engine = method_.engine(call_->context);
    if (!engine.ok()) return Close(engine.status());
    engine_ = *std::move(engine);
    call_->stream.SendInitialMetadata(&opened_tag_);
  }

  // The coordinator hears that it is accepted before anything is delivered.
  void OnOpened(bool ok) {
    if (!ok) return End(absl::CancelledError("the stream broke"));
    engine_->Attach(self_);
    ReadNext();
  }

  void OnRead(bool ok) {
    {
      std::lock_guard lock(mutex_);
      reading_ = false;
    }
    if (!ok) {
      End(absl::OkStatus());  // the coordinator closed its side, or the stream broke
      return ReleaseIfOver();
    }
    if (absl::Status stale = CheckFence(incoming_.fence(), engine_->fence()); !stale.ok()) {
      End(stale);
      return ReleaseIfOver();
    }
    switch (incoming_.message_case()) {
      case v1::SessionRequest::kSubmit:
        NoteSubmit();
        engine_->Submit(self_, std::move(*incoming_.mutable_submit()));
        break;
      case v1::SessionRequest::kCancel:
        kept_->NoteCancel(this, incoming_.cancel());
        engine_->Cancel(self_, incoming_.cancel());
        break;
      case v1::SessionRequest::kReserve:
        engine_->Reserve(self_, std::move(*incoming_.mutable_reserve()));
        break;
      case v1::SessionRequest::kCredit: AddCredit(incoming_.credit().messages()); break;
      case v1::SessionRequest::MESSAGE_NOT_SET:
        End(absl::InvalidArgumentError("a SessionRequest without a message"));
        break;
    }
    ReadNext();
    ReleaseIfOver();
  }

  // Close ends all that is kept of this session; what comes behind it is not kept.
  void NoteSubmit() {
    std::lock_guard lock(mutex_);
    if (!closed_) kept_->NoteSubmit(this, incoming_.submit());
  }

  void OnWritten(bool ok) {
    {
      std::lock_guard lock(mutex_);
      writing_ = false;
      if (closed_) {
        FinishLocked();
      } else if (ok) {
        WriteNextLocked();
      }
    }
    if (!ok) return End(absl::CancelledError("the stream broke"));
    engine_->Wake();
  }

  void OnFinished() {
    {
      std::lock_guard lock(mutex_);
      finished_ = true;
    }
    ReleaseIfOver();
  }

  // From the stream's side: the engine has to hear of it.
  void End(const absl::Status& reason) {
    engine_->Detach(self_);
    Close(reason);
  }

  void ReadNext() {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    reading_ = true;
    call_->stream.Read(&incoming_, &read_tag_);
  }

  // The queue has nothing more to report.
  void ReleaseIfOver() {
    std::shared_ptr<Session> self;
    std::unique_ptr<Call> over;
    {
      std::lock_guard lock(mutex_);
      if (!finished_ || reading_) return;
      self = std::move(self_);
      over = std::move(call_);
    }
    if (engine_ != nullptr) engine_->Detach(self);
  }

  // Finish may not overtake a write under way: OnWritten calls it then.
  void FinishLocked() {
    if (std::exchange(finishing_, true)) return;
    call_->stream.Finish(ToGrpc(reason_), &finished_tag_);
  }

  void AddCredit(int32_t messages) {
    {
      std::lock_guard lock(mutex_);
      credit_ = std::clamp<int64_t>(credit_ + std::max(0, messages), 0, kMaxCredit);
    }
    engine_->Wake();
  }

  void WriteNextLocked() {
    if (writing_ || outbox_.empty()) return;
    writing_ = true;
    outgoing_ = std::move(outbox_.front());
    outbox_.pop_front();
    call_->stream.Write(outgoing_, &written_tag_);
  }

  Tag accepted_tag_{this, Step::kAccepted};
  Tag opened_tag_{this, Step::kOpened};
  Tag read_tag_{this, Step::kRead};
  Tag written_tag_{this, Step::kWritten};
  Tag finished_tag_{this, Step::kFinished};

  // Used by the thread that serves.
  const SessionMethod& method_;
  const std::shared_ptr<KeptAnswers> kept_;
  std::shared_ptr<Engine> engine_;  // null: not accepted
  std::shared_ptr<Session> self_;
  v1::SessionRequest incoming_;

  std::mutex mutex_;
  std::unique_ptr<Call> call_;  // null once finished
  std::deque<v1::SessionReply> outbox_;
  v1::SessionReply outgoing_;
  int64_t credit_ = 0;
  bool reading_ = false;
  bool writing_ = false;
  bool closed_ = false;
  bool finishing_ = false;
  bool finished_ = false;
  absl::Status reason_;
};

}  // namespace

void ServeSessions(grpc::ServerCompletionQueue& queue, const SessionMethod& method) {
  Session::Request(method);
  if (method.begun) method.begun();
  void* tag = nullptr;
  bool ok = false;
  while (queue.Next(&tag, &ok)) {
    const auto* reported = static_cast<const Session::Tag*>(tag);
    reported->session->On(reported->step, ok);
  }
}

}  // namespace tessera::worker
