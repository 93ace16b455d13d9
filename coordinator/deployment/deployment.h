// Carries a plan out: every replica whose workers are all there becomes a formation
// (formation.h), which is configured, published and ended as one; what ended is formed again when
// all its workers are there. Without a plan, every worker that registers becomes a replica of its
// own.
//
// A formation keeps its epoch until it ends; so a worker that joins disturbs no other replica. Its
// epoch is above every epoch that one of its workers reports, also of a coordinator before this
// one. A replica all of whose workers still serve one epoch of a coordinator before is first taken
// up under that epoch: where plan and terms are the same it serves on without being formed again.
//
// Another plan may be applied while one is in force, or is made where a worker has been gone for
// long: it is carried out as the smallest difference (changeover.h), and where it does not come up
// the plan before goes on.
//
// Thread rule: thread-safe. One thread of its own reconciles what is wanted with what is there;
// gRPC's threads bring progress and replies. Every call to a worker has a deadline.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/deployment/changeover.h"
#include "coordinator/deployment/formation.h"
#include "coordinator/deployment/worker_pool.h"
#include "coordinator/flow/replica_link.h"
#include "proto/plan.pb.h"
#include "proto/worker.pb.h"

namespace tessera::coordinator {

struct DeploymentOptions {
  // The part of Configure that all workers share. Fence, replica, role, stage, rank, share and
  // peers are each worker's own.
  v1::ConfigureRequest configure;
  std::optional<v1::DeploymentPlan> plan;  // nothing: the planner's, or one replica per worker
  // Makes the plan of the workers that registered. Asked, on our thread, whenever something changed
  // until it answers with a plan; an error means not yet, and says why. UNAVAILABLE without a
  // message: as it said before.
  std::function<absl::StatusOr<v1::DeploymentPlan>(const std::map<std::string, WorkerRecord>&)>
      planner;
  // A plan that somebody made is in force from now on (null: one replica per worker again). Called
  // from our thread, or from Start. May be empty.
  std::function<void(const v1::DeploymentPlan*)> on_plan;
  // Requests that a replica has not ended. Empty: one that goes is not waited for.
  std::function<int64_t(const std::string& replica)> work_of;
  double drain_seconds =
      60;  // of a replica that goes; what it still computes goes on elsewhere then
  // A worker of the plan that is lost for so long is planned without, where there is a planner; 0:
  // never.
  double replan_after_seconds = 0;
  std::string cluster_token;
  WorkerTls worker_tls;
  double configure_timeout_seconds = 3600;  // reading weights takes what it takes, but not for ever
  double retry_seconds = 2.0;               // before a failed replica is tried again
  double progress_seconds = 35;             // a replica makes progress if its newest is no older
  std::function<double()> now_seconds;      // monotonic
};

class Deployment {
 public:
  // INVALID_ARGUMENT / UNIMPLEMENTED where the plan is wrong or cannot be carried out. `pool` and
  // `flow` must outlive it.
  static absl::StatusOr<std::unique_ptr<Deployment>> Start(DeploymentOptions options,
                                                           WorkerPool& pool,
                                                           ReplicaLinkListener& flow);
  ~Deployment();

  // The plan in force and its epoch.
  std::pair<v1::DeploymentPlan, uint64_t> plan() const;
  // The plan in force is somebody's, so that a device that it does not name has nothing to do; else
  // each worker that registers is a replica.
  bool names_devices() const { return made_; }
  // Why the planner's plan is not in force; empty: it is, or no planner is asked.
  std::string why_no_plan() const;
  using Applied = std::function<void(absl::StatusOr<v1::ApplyPlanReply>)>;
  // Applies a plan, one at a time. `done` is called once, from any thread: at once where it is
  // refused (as Start says; FAILED_PRECONDITION: another one is being applied, or a worker is not
  // there), else when all its replicas serve, or (ABORTED) when the plan before is in force again.
  void Apply(v1::DeploymentPlan plan, Applied done);
  // Answers whoever waits for a plan to be applied, and whoever asks from now on; a change under
  // way goes on.
  void AbandonApply(const absl::Status& reason);
  // How far a plan is that is being applied, in words; empty: none is.
  std::string applying() const;
  // Some replica is being formed and makes progress, so that waiting for it makes sense. One that
  // has failed several times in a row does not count.
  bool recovering() const;
  // From when a plan that is to be applied is taken until it is in force, or the one before again.
  bool changing_plan() const { return change_under_way_; }
  // Closes all sessions; no worker is touched after that.
  void Stop();

 private:
  using Workers = std::map<std::string, WorkerRecord>;  // by name
  // One replica of the plan, or one that the plan had and that has not quite ended.
  struct Carried {
    std::shared_ptr<Formation> formation;  // null: not formed
    // Of `formation`, before the workers were looked at.
    Formation::State state = Formation::State::kOver;
    uint64_t epoch = 0;             // of the newest formation
    Formation::Ending ending;       // of the newest formation that ended
    std::vector<uint64_t> failed;   // incarnations of its members
    double not_before_seconds = 0;  // back-off
    int failures = 0;               // in a row, of Configure
    std::string said;               // newest reason to wait that was logged
    bool retires = false;           // a change takes it away: it gets nothing new
    bool not_taken_up = false;      // it was tried, and the workers serve something else
  };

  Deployment(DeploymentOptions options, WorkerPool& pool, ReplicaLinkListener& flow);

  void Run();
  void Reconcile();
  void AskPlanner(const Workers& workers);
  void RefreshPlan(const Workers& workers);
  void ReplanForLost(const Workers& workers, double now);
  // The plan in force from now on.
  void PutInForce(const v1::DeploymentPlan& plan, bool made, const Workers& workers);
  void TakeApplied(const Workers& workers, double now);
  ChangeoverLimits ChangeLimits() const;
  void BeginChange(Changeover change);
  void AdvanceChange(const Workers& workers, double now);
  void Answer(absl::StatusOr<v1::ApplyPlanReply> answer);
  // For the change under way, of a replica of the plan in force.
  Changeover::View Look(const std::string& replica, const Workers& workers) const;
  void NoteIdle(const Workers& workers);
  void ReconcileReplica(const v1::Replica& replica, const Workers& workers, double now);
  // Ends the formation where a member is gone, forgets it where it has ended. True: it goes on.
  bool KeepFormation(Carried& carried, const Workers& workers, double now);
  void EndUnplanned(const Workers& workers, double now);
  void ForgetEnded(Carried& carried);
  // Why the replica cannot be formed now; empty: it can.
  std::string WhyNotNow(const v1::Replica& replica, const Carried& carried, const Workers& workers,
                        double now);
  void ShowWaiting(const v1::Replica& replica, const Workers& workers, const std::string& why,
                   Carried& carried);
  void Form(const v1::Replica& replica, const Workers& workers, Carried& carried);
  void Wake();

  const DeploymentOptions options_;
  WorkerPool& pool_;
  ReplicaLinkListener& flow_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool dirty_ = true;
  bool stopping_ = false;
  v1::DeploymentPlan plan_;  // changed by our thread alone, which reads it without the lock
  std::string why_no_plan_;
  uint64_t epoch_ = 0;
  std::optional<v1::DeploymentPlan> asked_;  // to be applied
  Applied applied_;                          // null: nobody waits
  bool changing_ = false;                    // from being asked until it is over
  absl::Status abandoned_;                   // not OK: AbandonApply was called
  std::string applying_;                     // as applying() says
  std::optional<Changeover> change_;         // of our thread
  std::atomic<bool> made_ = false;           // the plan is somebody's, not one replica per worker
  bool was_made_ = false;                    // of our thread: so was the one before the change
  std::atomic<bool> change_under_way_ = false;
  std::atomic<double> progressed_seconds_ = -std::numeric_limits<double>::infinity();
  std::map<std::string, Carried> carried_;  // by replica; of our thread, and of Stop after it
  std::thread thread_;
};

}  // namespace tessera::coordinator
