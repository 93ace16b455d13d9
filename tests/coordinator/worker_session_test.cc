#include "coordinator/deployment/worker_session.h"

#include <grpcpp/grpcpp.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "proto/worker.grpc.pb.h"

namespace tessera::coordinator {
namespace {

v1::Fence Fence(uint64_t epoch, uint64_t incarnation) {
  v1::Fence fence;
  fence.set_plan_epoch(epoch);
  fence.set_worker_incarnation(incarnation);
  return fence;
}

// Says what the test tells it to, one reply after the other, and waits for the end.
class Leader final : public v1::Worker::CallbackService {
 public:
  explicit Leader(std::vector<v1::SessionReply> replies) : replies_(std::move(replies)) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    channel = grpc::CreateChannel("127.0.0.1:" + std::to_string(port),
                                  grpc::InsecureChannelCredentials());
  }
  ~Leader() override { server_->Shutdown(std::chrono::system_clock::now()); }

  grpc::ServerBidiReactor<v1::SessionRequest, v1::SessionReply>* Session(
      grpc::CallbackServerContext*) override {
    return new Stream(replies_);
  }

  std::shared_ptr<grpc::Channel> channel;

 private:
  class Stream final : public grpc::ServerBidiReactor<v1::SessionRequest, v1::SessionReply> {
   public:
    explicit Stream(std::vector<v1::SessionReply> replies) : replies_(std::move(replies)) {
      StartSendInitialMetadata();
      WriteNext();
    }
    void OnWriteDone(bool ok) override {
      if (ok) WriteNext();
    }
    void OnCancel() override { Finish(grpc::Status::CANCELLED); }
    void OnDone() override { delete this; }

   private:
    void WriteNext() {
      if (next_ < replies_.size()) StartWrite(&replies_[next_++]);
    }
    std::vector<v1::SessionReply> replies_;
    size_t next_ = 0;
  };

  std::vector<v1::SessionReply> replies_;
  std::unique_ptr<grpc::Server> server_;
};

struct Listener : ReplicaLinkListener {
  void OnLinkReady(std::shared_ptr<ReplicaLink>) override {}
  void OnReply(const std::shared_ptr<ReplicaLink>&, const v1::SessionReply& reply) override {
    std::lock_guard lock(mutex);
    steps.push_back(reply.step());
  }
  void OnLinkLost(const std::shared_ptr<ReplicaLink>&, const absl::Status& status) override {
    std::lock_guard lock(mutex);
    lost = true;
    reason = status;
    changed.notify_all();
  }
  void WaitUntilLost() {
    std::unique_lock lock(mutex);
    REQUIRE(changed.wait_for(lock, std::chrono::seconds(20), [this] { return lost; }));
  }
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<uint64_t> steps;
  bool lost = false;
  absl::Status reason;
};

v1::SessionReply Reply(uint64_t step, const v1::Fence& fence) {
  v1::SessionReply reply;
  reply.set_step(step);
  *reply.mutable_fence() = fence;
  return reply;
}

}  // namespace

TEST_CASE("a reply of another plan or another process ends the session by name, unheard") {
  const auto [stale, text] =
      GENERATE(std::pair(Fence(4, 77),
                         "stale reply of replica r0: it is of plan epoch 4, the session is "
                         "of 5"),
               std::pair(Fence(5, 78),
                         "stale reply of replica r0: it is of worker incarnation 78, the "
                         "session is with 77"),
               std::pair(Fence(0, 0),
                         "stale reply of replica r0: it is of worker incarnation 0, the "
                         "session is with 77"));
  Leader leader({Reply(1, Fence(5, 77)), Reply(2, stale), Reply(3, Fence(5, 77))});
  Listener listener;
  WorkerSessionOptions options;
  options.replica = "r0";
  options.fence = Fence(5, 77);
  const auto session = WorkerSession::Open(leader.channel, std::move(options), listener);
  listener.WaitUntilLost();
  CHECK(listener.steps == std::vector<uint64_t>{1});
  CHECK(listener.reason == absl::FailedPreconditionError(text));
}

}  // namespace tessera::coordinator
