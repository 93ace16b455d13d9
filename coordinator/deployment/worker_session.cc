#include "coordinator/deployment/worker_session.h"

#include <grpcpp/grpcpp.h>

#include <deque>
#include <mutex>
#include <utility>

#include "coordinator/deployment/fences.h"
#include "proto/protocol.h"
#include "proto/status_wire.h"
#include "proto/worker.grpc.pb.h"

namespace tessera::coordinator {
namespace {

class GrpcSession final : public WorkerSession,
                          public grpc::ClientBidiReactor<v1::SessionRequest, v1::SessionReply>,
                          public std::enable_shared_from_this<GrpcSession> {
 public:
  GrpcSession(std::shared_ptr<grpc::Channel> channel, WorkerSessionOptions options,
              ReplicaLinkListener& listener)
      : options_(std::move(options)), listener_(listener), stub_(v1::Worker::NewStub(channel)) {
    if (!options_.cluster_token.empty()) {
      context_.AddMetadata(std::string(kClusterTokenKey), options_.cluster_token);
    }
  }

  void Begin() {
    self_ = shared_from_this();  // until OnDone: gRPC calls us until then
    stub_->async()->Session(&context_, this);
    // Writes come from outside the reactor; the hold keeps OnDone away until Finish() lets go.
    AddHold();
    StartRead(&incoming_);
    StartCall();
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

  void Close(const absl::Status& reason) override {
    {
      std::lock_guard lock(mutex_);
      if (closed_) return;
      closed_ = true;
      reason_ = reason;
      outbox_.clear();
    }
    context_.TryCancel();
    RemoveHold();
  }

  // Only now is there somebody at the other end.
  void OnReadInitialMetadataDone(bool ok) override {
    if (ok) listener_.OnLinkReady(shared_from_this());
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      Close(absl::OkStatus());  // the stream's own status, in OnDone, says why
      return;
    }
    const absl::Status stale = CheckReplyFence(options_.replica, incoming_.fence(), options_.fence);
    if (!stale.ok()) {
      Close(stale);
      return;
    }
    listener_.OnReply(shared_from_this(), incoming_);
    StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) override {
    std::lock_guard lock(mutex_);
    writing_ = false;
    if (ok && !closed_) WriteNextLocked();
  }

  void OnDone(const grpc::Status& status) override {
    absl::Status reason;
    {
      std::lock_guard lock(mutex_);
      reason = reason_;
    }
    if (reason.ok()) reason = FromGrpc(status);
    if (reason.ok()) reason = absl::UnavailableError("its leader ended the session");
    std::shared_ptr<GrpcSession> self = std::move(self_);
    listener_.OnLinkLost(self, reason);
  }

 private:
  void WriteNextLocked() {
    if (writing_ || outbox_.empty()) return;
    writing_ = true;
    current_ = std::move(outbox_.front());
    outbox_.pop_front();
    StartWrite(&current_);
  }

  const WorkerSessionOptions options_;
  ReplicaLinkListener& listener_;
  const std::unique_ptr<v1::Worker::Stub> stub_;
  grpc::ClientContext context_;
  std::shared_ptr<GrpcSession> self_;
  v1::SessionReply incoming_;

  std::mutex mutex_;
  std::deque<v1::SessionRequest> outbox_;
  v1::SessionRequest current_;
  bool writing_ = false;
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
