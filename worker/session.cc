#include "worker/session.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <deque>
#include <mutex>
#include <utility>

#include "proto/status_wire.h"
#include "worker/fences.h"

namespace tessera::worker {
namespace {

class Session final : public grpc::ServerBidiReactor<v1::SessionRequest, v1::SessionReply>,
                      public ReplySink,
                      public std::enable_shared_from_this<Session> {
 public:
  explicit Session(std::shared_ptr<Engine> engine) : engine_(std::move(engine)) {}

  void Begin() {
    self_ = shared_from_this();
    StartSendInitialMetadata();
  }

  // gRPC has bound the reactor: from now on the engine's thread may write.
  void OnSendInitialMetadataDone(bool ok) override {
    if (!ok) return End(absl::CancelledError("the stream broke"));
    engine_->Attach(self_);
    std::lock_guard lock(mutex_);
    if (!closed_) StartRead(&incoming_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) return End(absl::OkStatus());  // the coordinator closed its side
    if (absl::Status stale = CheckFence(incoming_.fence(), engine_->fence()); !stale.ok()) {
      return End(stale);
    }
    switch (incoming_.message_case()) {
      case v1::SessionRequest::kSubmit:
        engine_->Submit(self_, std::move(*incoming_.mutable_submit()));
        break;
      case v1::SessionRequest::kCancel: engine_->Cancel(self_, incoming_.cancel()); break;
      case v1::SessionRequest::kCredit: AddCredit(incoming_.credit().messages()); break;
      case v1::SessionRequest::MESSAGE_NOT_SET:
        return End(absl::InvalidArgumentError("a SessionRequest without a message"));
    }
    std::lock_guard lock(mutex_);
    if (!closed_) StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) override {
    bool failed = false;
    {
      std::lock_guard lock(mutex_);
      writing_ = false;
      if (closed_) {
        FinishLocked();
      } else if (ok) {
        WriteNextLocked();
      } else {
        failed = true;
      }
    }
    if (failed) return End(absl::CancelledError("the stream broke"));
    engine_->Wake();
  }

  void OnCancel() override { End(absl::CancelledError("the coordinator cancelled the session")); }

  void OnDone() override {
    engine_->Detach(self_);
    self_.reset();
  }

  bool MayDeliver() override {
    std::lock_guard lock(mutex_);
    return !closed_ && credit_ > 0 && outbox_.size() < kMaxOutbox;
  }

  void Deliver(v1::SessionReply reply) override {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    --credit_;
    outbox_.push_back(std::move(reply));
    WriteNextLocked();
  }

  void Close(const absl::Status& reason) override {
    std::lock_guard lock(mutex_);
    CloseLocked(reason);
  }

 private:
  // From gRPC's side: the engine has to hear of it.
  void End(const absl::Status& reason) {
    engine_->Detach(self_);
    Close(reason);
  }

  void CloseLocked(const absl::Status& reason) {
    if (closed_) return;
    closed_ = true;
    reason_ = reason;
    outbox_.clear();
    if (!writing_) FinishLocked();
  }

  // Finish may not overtake a write under way: OnWriteDone calls it then.
  void FinishLocked() {
    if (std::exchange(finished_, true)) return;
    Finish(ToGrpc(reason_));
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
    StartWrite(&outgoing_);
  }

  const std::shared_ptr<Engine> engine_;
  std::shared_ptr<Session> self_;
  v1::SessionRequest incoming_;

  std::mutex mutex_;
  std::deque<v1::SessionReply> outbox_;
  v1::SessionReply outgoing_;
  int64_t credit_ = 0;
  bool writing_ = false;
  bool closed_ = false;
  bool finished_ = false;
  absl::Status reason_;
};

}  // namespace

grpc::ServerBidiReactor<v1::SessionRequest, v1::SessionReply>* OpenSession(
    std::shared_ptr<Engine> engine) {
  auto session = std::make_shared<Session>(std::move(engine));
  session->Begin();
  return session.get();
}

}  // namespace tessera::worker
