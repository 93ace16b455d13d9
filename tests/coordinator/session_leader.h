// A leader's end of Worker.Session for tests, and a listener that keeps what it hears.
//
// Thread rule: made and destroyed by one thread; the listener's fields are read once it has lost
// its link, or with its mutex.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/flow/replica_link.h"
#include "proto/worker.grpc.pb.h"

namespace tessera::coordinator {

inline v1::Fence Fence(uint64_t epoch, uint64_t incarnation) {
  v1::Fence fence;
  fence.set_plan_epoch(epoch);
  fence.set_worker_incarnation(incarnation);
  return fence;
}

inline v1::SessionReply Reply(uint64_t step, const v1::Fence& fence) {
  v1::SessionReply reply;
  reply.set_step(step);
  *reply.mutable_fence() = fence;
  return reply;
}

struct LeaderScript {
  std::vector<v1::SessionReply> replies;  // said one after the other
  grpc::Status refusal;                   // not OK: the session is refused with it
  bool reads = false;                     // what it hears is kept
  bool ends = false;                      // after the replies; else it waits for the end
};

class Leader final : public v1::Worker::CallbackService {
 public:
  explicit Leader(LeaderScript script) : script_(std::move(script)) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    channel = grpc::CreateChannel("127.0.0.1:" + std::to_string(port),
                                  grpc::InsecureChannelCredentials());
  }
  ~Leader() override { Stop(); }

  void Stop() { server_->Shutdown(std::chrono::system_clock::now()); }

  // Whether so many messages were heard within 20 s.
  bool WaitUntilHeard(size_t messages) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20),
                             [&] { return heard.size() >= messages; });
  }

  grpc::ServerBidiReactor<v1::SessionRequest, v1::SessionReply>* Session(
      grpc::CallbackServerContext*) override {
    return new Stream(*this);
  }

  std::shared_ptr<grpc::Channel> channel;
  std::vector<v1::SessionRequest> heard;  // after WaitUntilHeard

 private:
  class Stream final : public grpc::ServerBidiReactor<v1::SessionRequest, v1::SessionReply> {
   public:
    explicit Stream(Leader& leader) : leader_(leader) {
      if (!leader.script_.refusal.ok()) {
        FinishOnce(leader.script_.refusal);
        return;
      }
      StartSendInitialMetadata();
      if (leader.script_.reads) StartRead(&incoming_);
      WriteNext();
    }
    void OnReadDone(bool ok) override {
      if (!ok) return;
      {
        std::lock_guard lock(leader_.mutex_);
        leader_.heard.push_back(incoming_);
      }
      leader_.changed_.notify_all();
      StartRead(&incoming_);
    }
    void OnWriteDone(bool ok) override {
      if (ok) WriteNext();
    }
    void OnCancel() override { FinishOnce(grpc::Status::CANCELLED); }
    void OnDone() override { delete this; }

   private:
    void WriteNext() {
      std::lock_guard lock(mutex_);
      if (finished_) return;
      if (next_ < leader_.script_.replies.size()) {
        StartWrite(&leader_.script_.replies[next_++]);
      } else if (leader_.script_.ends) {
        finished_ = true;
        Finish(grpc::Status::OK);
      }
    }
    void FinishOnce(const grpc::Status& status) {
      std::lock_guard lock(mutex_);
      if (std::exchange(finished_, true)) return;
      Finish(status);
    }
    Leader& leader_;
    v1::SessionRequest incoming_;
    std::mutex mutex_;
    size_t next_ = 0;
    bool finished_ = false;
  };

  const LeaderScript script_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::unique_ptr<grpc::Server> server_;
};

struct Listener : ReplicaLinkListener {
  void OnLinkReady(std::shared_ptr<ReplicaLink>) override {
    std::lock_guard lock(mutex);
    ++ready;
  }
  void OnReply(const std::shared_ptr<ReplicaLink>& link, const v1::SessionReply& reply) override {
    {
      std::lock_guard lock(mutex);
      steps.push_back(reply.step());
      after_lost += lost > 0;
    }
    if (on_reply) on_reply(link);
  }
  void OnLinkLost(const std::shared_ptr<ReplicaLink>&, const absl::Status& status) override {
    std::lock_guard lock(mutex);
    ++lost;
    reason = status;
    changed.notify_all();
  }
  // Whether the link was lost within 20 s.
  bool WaitUntilLost() {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, std::chrono::seconds(20), [this] { return lost > 0; });
  }

  std::function<void(const std::shared_ptr<ReplicaLink>&)> on_reply;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<uint64_t> steps;
  int ready = 0;
  int lost = 0;
  int after_lost = 0;  // replies heard after that
  absl::Status reason;
};

}  // namespace tessera::coordinator
