#include "coordinator/deployment/configure_call.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <utility>

#include "proto/leader_term.h"
#include "proto/protocol.h"
#include "proto/status_wire.h"
#include "proto/worker.grpc.pb.h"

namespace tessera::coordinator {
namespace {

class GrpcConfigureCall final : public ConfigureCall,
                                public grpc::ClientReadReactor<v1::ConfigureProgress> {
 public:
  GrpcConfigureCall(const std::shared_ptr<grpc::Channel>& channel, v1::ConfigureRequest request,
                    Events events)
      : request_(std::move(request)),
        events_(std::move(events)),
        stub_(v1::Worker::NewStub(channel)) {}

  void Begin(std::shared_ptr<GrpcConfigureCall> self, const std::string& cluster_token,
             uint64_t leader_term, double timeout_seconds) {
    self_ = std::move(self);
    if (leader_term > 0)
      context_.AddMetadata(std::string(kLeaderTermKey), std::to_string(leader_term));
    if (!cluster_token.empty()) context_.AddMetadata(std::string(kClusterTokenKey), cluster_token);
    context_.set_deadline(std::chrono::system_clock::now() +
                          std::chrono::milliseconds(static_cast<int64_t>(1e3 * timeout_seconds)));
    stub_->async()->Configure(&context_, &request_, this);
    StartRead(&progress_);
    StartCall();
  }

  void Cancel() override { context_.TryCancel(); }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    if (progress_.has_ready()) {
      ready_ = progress_.ready();
    } else {
      events_.progress(progress_);
    }
    StartRead(&progress_);
  }

  void OnDone(const grpc::Status& status) override {
    const std::shared_ptr<GrpcConfigureCall> self = std::move(self_);
    absl::Status result = FromGrpc(status);
    if (result.ok() && ready_.kv_blocks() == 0) {
      result = absl::InternalError(
          "the worker ended the Configure call without reporting that it is ready");
    }
    events_.done(result, ready_);
  }

 private:
  const v1::ConfigureRequest request_;
  const Events events_;
  const std::unique_ptr<v1::Worker::Stub> stub_;
  grpc::ClientContext context_;
  v1::ConfigureProgress progress_;
  v1::WorkerReady ready_;
  std::shared_ptr<GrpcConfigureCall> self_;
};

}  // namespace

std::shared_ptr<ConfigureCall> ConfigureCall::Begin(const std::shared_ptr<grpc::Channel>& channel,
                                                    v1::ConfigureRequest request,
                                                    const std::string& cluster_token,
                                                    uint64_t leader_term, double timeout_seconds,
                                                    Events events) {
  auto call = std::make_shared<GrpcConfigureCall>(channel, std::move(request), std::move(events));
  call->Begin(call, cluster_token, leader_term, timeout_seconds);
  return call;
}

}  // namespace tessera::coordinator
