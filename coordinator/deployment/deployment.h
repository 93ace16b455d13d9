// Carries a plan out: turns it into Configure calls, opens a session to every leader that became
// ready, and repeats that for workers that come back. Without a plan, every worker that registers
// becomes a replica of its own.
//
// A worker keeps the epoch it was configured with until its own part of the plan changes; so a
// worker that joins disturbs no other.
//
// Thread rule: thread-safe. One thread of its own reconciles what is wanted with what is there;
// gRPC's threads bring progress and replies. Every call to a worker has a deadline.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/deployment/worker_pool.h"
#include "coordinator/deployment/worker_session.h"
#include "coordinator/flow/replica_link.h"
#include "proto/plan.pb.h"
#include "proto/worker.pb.h"

namespace tessera::coordinator {

struct DeploymentOptions {
  // What every worker is told; fence, replica, role, stage, rank, share and peers are filled in per
  // worker.
  v1::ConfigureRequest configure;
  std::optional<v1::DeploymentPlan> plan;  // nothing: the planner's, or one replica per worker
  // Makes the plan of the workers that registered. Asked, on our thread, whenever something changed
  // until it answers with a plan; an error means not yet, and says why. UNAVAILABLE without a
  // message: as it said before.
  std::function<absl::StatusOr<v1::DeploymentPlan>(const std::map<std::string, WorkerRecord>&)>
      planner;
  std::string cluster_token;
  double configure_timeout_seconds = 3600;  // reading weights takes what it takes, but not for ever
  double retry_seconds = 2.0;               // before a failed worker is tried again
  std::function<double()> now_seconds;      // monotonic
};

class Deployment : private ReplicaLinkListener {
 public:
  // INVALID_ARGUMENT / UNIMPLEMENTED where the plan is wrong or cannot be carried out. `pool` and
  // `flow` must outlive it.
  static absl::StatusOr<std::unique_ptr<Deployment>> Start(DeploymentOptions options,
                                                           WorkerPool& pool,
                                                           ReplicaLinkListener& flow);
  ~Deployment() override;

  // The plan in force and its epoch.
  std::pair<v1::DeploymentPlan, uint64_t> plan() const;
  // Why the planner's plan is not in force; empty: it is, or no planner is asked.
  std::string why_no_plan() const;
  // Closes all sessions; no worker is touched after that.
  void Stop();

 private:
  class ConfigureCall;
  // What runs between us and one worker process.
  struct Connection {
    uint64_t incarnation = 0;
    uint64_t epoch = 0;
    std::string replica;
    int64_t max_sequences = 0;  // as it was configured
    std::shared_ptr<grpc::Channel> channel;
    std::shared_ptr<ConfigureCall> configuring;
    std::shared_ptr<WorkerSession> session;
    bool serves = false;                // the leader has accepted the session
    double not_before_seconds = 0;      // back-off
    double told_heartbeat_seconds = 0;  // of the newest heartbeat that the flow heard of
  };

  Deployment(DeploymentOptions options, WorkerPool& pool, ReplicaLinkListener& flow);

  void Run();
  void Reconcile();
  void AskPlanner(const std::map<std::string, WorkerRecord>& workers);
  void RefreshPlan(const std::map<std::string, WorkerRecord>& workers);
  // Tells the flow what the leader's newest heartbeat said.
  void PassHeartbeat(const std::string& name, const WorkerRecord& worker);
  void ReconcileWorker(const std::string& name, const WorkerRecord& worker, double now);
  void BeginConfigure(const std::string& name, const WorkerRecord& worker,
                      const v1::Replica& replica);
  void OpenSession(const std::string& name, const WorkerRecord& worker, Connection& connection);
  void OnConfigured(const std::string& name, const v1::Fence& fence, const absl::Status& status,
                    const v1::WorkerReady& ready);
  void DropConnection(const std::string& name, const absl::Status& reason);
  void Wake();

  void OnLinkReady(std::shared_ptr<ReplicaLink> link) override;
  void OnReply(const std::shared_ptr<ReplicaLink>& link, const v1::SessionReply& reply) override;
  void OnLinkLost(const std::shared_ptr<ReplicaLink>& link, const absl::Status& reason) override;

  const DeploymentOptions options_;
  WorkerPool& pool_;
  ReplicaLinkListener& flow_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable idle_;  // no call is under way any more
  bool dirty_ = true;
  bool stopping_ = false;
  v1::DeploymentPlan plan_;
  std::string why_no_plan_;
  uint64_t epoch_ = 0;
  int calls_under_way_ = 0;
  std::map<std::string, Connection> connections_;         // by worker name
  std::map<std::string, std::string> worker_of_replica_;  // leader's name
  std::thread thread_;
};

}  // namespace tessera::coordinator
