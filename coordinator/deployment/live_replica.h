// One replica carried out in one plan epoch. All its workers are configured concurrently; when all
// are ready, a session to the leader (stage 0, rank 0) is opened, and the replica is published when
// the leader accepts it. A failure of one member ends it for all of them.
//
// Workers that a coordinator before this one has configured alike, under the same epoch, answer at
// once: so a replica that still runs is taken up as it is.
//
//   CONFIGURING -> READY -> OPENING -> SERVING   (all members ready; session opened; accepted)
//   OPENING, SERVING -> READY                    (one worker alone lost its session, not its plan)
//   any -> OVER                                  (End, or a member failed, or the session was lost)
//
// Thread rule: thread-safe; gRPC's threads bring progress and replies. Only WaitQuiet blocks.
// Lifetime: calls under way keep it alive; pool and flow must outlive WaitQuiet.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/deployment/configure_call.h"
#include "coordinator/deployment/worker_pool.h"
#include "coordinator/deployment/worker_session.h"
#include "coordinator/deployment/worker_tls.h"
#include "coordinator/flow/replica_link.h"
#include "proto/worker.pb.h"

namespace tessera::coordinator {

struct ReplicaMember {
  std::string worker;   // name in the pool
  std::string address;  // of its Worker service
  // Fence included; all members have one plan epoch. Without the vocabulary once it was sent.
  v1::ConfigureRequest request;
};

struct LiveReplicaOptions {
  std::string replica;
  // Stage by stage, rank by rank: the first one leads.
  std::vector<ReplicaMember> members;
  std::string cluster_token;
  std::function<uint64_t()> leader_term;  // of this coordinator now; empty: it is the only one
  WorkerTls worker_tls;
  double configure_timeout_seconds = 3600;
  // The members say that they serve this epoch already. Where one refuses it is nobody's failure.
  bool takes_up = false;
  std::function<double()> now_seconds;  // monotonic
  // Called without locks: the state changed, or a call ended.
  std::function<void()> changed;
  // Called without locks: a member's phase or byte count moved. May be empty.
  std::function<void()> progressed;
};

class LiveReplica final : private ReplicaLinkListener,
                          public std::enable_shared_from_this<LiveReplica> {
 public:
  enum class State { kConfiguring, kReady, kOpening, kServing, kOver };

  // Why it is over.
  struct Ending {
    absl::Status reason;
    std::string worker;           // the member that failed or is missing; empty: none in particular
    bool not_configured = false;  // a Configure failed
    bool not_taken_up = false;    // what was served is not what is wanted: form it
    double seconds = 0;           // when
  };

  // Begins to configure all members.
  static std::shared_ptr<LiveReplica> Start(LiveReplicaOptions options, WorkerPool& pool,
                                            ReplicaLinkListener& flow);

  const std::string& replica() const { return options_.replica; }
  const std::vector<ReplicaMember>& members() const { return options_.members; }
  uint64_t epoch() const { return members()[0].request.fence().plan_epoch(); }
  bool alone() const { return members().size() == 1; }

  State state() const;
  // OVER, and no call is under way any more.
  bool quiet() const;
  Ending ending() const;                // when it is quiet
  double session_lost_seconds() const;  // of the newest loss; 0: none

  // READY -> OPENING; else nothing.
  void OpenSession();
  // Passes on what the leader says of itself between replies. `draining`: some member drains.
  // Nothing happens unless it is published, nor twice for one heartbeat.
  void PassHeartbeat(const v1::EngineLoad& load, double heartbeat_seconds, bool draining);
  // Cancels and closes everything; what was submitted goes on elsewhere. `worker`: as in Ending.
  void End(const absl::Status& reason, const std::string& worker);
  // Until nothing of it calls anybody any more; after End.
  void WaitQuiet();

 private:
  struct Progress {
    std::string phase;
    int64_t bytes_done = 0;
  };
  struct Failure {
    size_t member = 0;
    absl::Status status;
  };

  LiveReplica(LiveReplicaOptions options, WorkerPool& pool, ReplicaLinkListener& flow);

  void Begin();
  void OnProgress(size_t member, const v1::ConfigureProgress& progress);
  void OnConfigured(size_t member, const absl::Status& status, const v1::WorkerReady& ready);
  void NoteConfigured(size_t member, const absl::Status& status, const v1::WorkerReady& ready);
  void PublishReady();
  void BlameFailures();
  void CallEnded();

  void OnLinkReady(std::shared_ptr<ReplicaLink> link) override;
  void OnReply(const std::shared_ptr<ReplicaLink>& link, const v1::SessionReply& reply) override;
  void OnLinkLost(const std::shared_ptr<ReplicaLink>& link, const absl::Status& reason) override;

  uint64_t incarnation(size_t member) const {
    return members()[member].request.fence().worker_incarnation();
  }

  LiveReplicaOptions options_;  // constant once Begin has returned
  WorkerPool& pool_;
  ReplicaLinkListener& flow_;
  const std::vector<std::shared_ptr<grpc::Channel>> channels_;  // by member

  mutable std::mutex mutex_;
  std::condition_variable idle_;
  State state_ = State::kConfiguring;
  Ending ending_;
  int calls_ = 0;          // under way: Configure calls and the session
  int notifications_ = 0;  // calls that have not finished telling the owner
  std::vector<std::shared_ptr<ConfigureCall>> configuring_;  // by member; null: ended
  std::vector<Progress> progress_;
  std::vector<v1::WorkerReady> ready_;
  std::vector<Failure> failures_;  // in the order in which they came
  std::shared_ptr<WorkerSession> session_;
  double session_lost_seconds_ = 0;
  double passed_heartbeat_seconds_ = 0;
  bool passed_draining_ = false;
};

}  // namespace tessera::coordinator
