// Carries plans out: every replica whose workers are all there becomes a live replica
// (live_replica.h), which is configured, published and ended as one; what ended is formed again
// when all its workers are there.
//
// Plans come from a source (plan_source.h), and from people and the replanner (Apply). Each comes
// in force by a Changeover, the smallest difference from the plans before.
//
// A live replica keeps its epoch until it ends; so a worker that joins disturbs no other replica.
// Its epoch is above every epoch that one of its workers reports, also of a coordinator before this
// one. A replica all of whose workers still serve one epoch of a coordinator before is first taken
// up under that epoch: where plan and terms are the same it serves on without being formed again.
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
#include "coordinator/deployment/changeover.h"
#include "coordinator/deployment/live_replica.h"
#include "coordinator/deployment/plan_requests.h"
#include "coordinator/deployment/plan_set.h"
#include "coordinator/deployment/plan_source.h"
#include "coordinator/deployment/straggler_watch.h"
#include "coordinator/deployment/worker_pool.h"
#include "coordinator/flow/replica_link.h"
#include "proto/plan.pb.h"
#include "proto/worker.pb.h"

namespace tessera::coordinator {

// One model that is served.
struct DeployedModel {
  // The part of Configure that all its workers share; its model has the served name. Fence,
  // replica, role, stage, rank, share and peers are each worker's own.
  v1::ConfigureRequest configure;
  ReplicaLinkListener* requests = nullptr;  // hears of its replicas; outlives the deployment
  // A plan with devices that were chosen is in force from now on (null: one replica per worker).
  // Called from our thread, or from Start. May be empty.
  std::function<void(const v1::DeploymentPlan*)> on_plan;
  // Requests that a replica has not ended. Empty: one that goes is not waited for.
  std::function<int64_t(const std::string& replica)> work_of;
};

struct DeploymentOptions {
  std::vector<DeployedModel> models;  // at least one; their names differ
  std::unique_ptr<PlanSource> source;
  double drain_seconds =
      60;  // of a replica that goes; what it still computes goes on elsewhere then
  std::string cluster_token;
  std::function<uint64_t()> leader_term;  // as in LiveReplicaOptions
  WorkerTls worker_tls;
  double configure_timeout_seconds = 3600;  // reading weights takes what it takes, but not for ever
  double retry_seconds = 2.0;               // before a failed replica is tried again
  double progress_seconds = 35;             // a replica makes progress if its newest is no older
  std::function<double()> now_seconds;      // monotonic
  std::function<std::vector<Straggler>()> stragglers;  // may be empty
};

class Deployment {
 public:
  // INVALID_ARGUMENT / UNIMPLEMENTED where the source's first plans are wrong or cannot be carried
  // out. `pool` must outlive it.
  static absl::StatusOr<std::unique_ptr<Deployment>> Start(DeploymentOptions options,
                                                           WorkerPool& pool);
  ~Deployment();

  // The plan in force, of several models that with the replicas of all (Joined), and its epoch.
  std::pair<v1::DeploymentPlan, uint64_t> plan() const;
  // The first of the two, as it is held here: for whoever looks often.
  std::shared_ptr<const v1::DeploymentPlan> joined_plan() const;
  // The plans in force; without any before the first.
  PlanSet plans() const;
  // Devices were chosen for the plan in force, so that others have nothing to do; else each worker
  // that registers is a replica.
  bool names_devices() const;
  // Why the source has no plan yet; empty: it has.
  std::string why_no_plan() const;
  using Applied = PlanRequests::Done;
  // Applies plans of one or several models, one call at a time; those of the other models stay.
  // `done` is called once, from any thread: at once where it is refused (as Start says;
  // FAILED_PRECONDITION: another one is being applied, or a worker is not there), else when all
  // their replicas serve, or (ABORTED) when the plans before are in force again.
  void Apply(std::vector<v1::DeploymentPlan> plans, Applied done);
  // Answers whoever waits for a plan to be applied, and whoever asks from now on; a change under
  // way goes on.
  void AbandonApply(const absl::Status& reason) { requests_.Abandon(reason); }
  // How far a plan is that is being applied, in words; empty: none is.
  std::string applying() const;
  // Some replica of the model (its place in the options) is being formed and makes progress, so
  // that waiting for it makes sense. One that has failed several times in a row does not count.
  bool recovering(size_t model = 0) const;
  // From when a plan that is to be applied is taken until it is in force, or the one before again.
  bool changing_plan() const { return !applying().empty(); }
  // Closes all sessions; no worker is touched after that.
  void Stop();

 private:
  using Workers = std::map<std::string, WorkerRecord>;  // by name
  // One replica of the plan, or one that the plan had and that has not quite ended.
  struct Carried {
    std::shared_ptr<LiveReplica> live;  // null: not formed
    // The state of `live`, before the workers were looked at.
    LiveReplica::State state = LiveReplica::State::kOver;
    uint64_t epoch = 0;             // of the newest attempt
    LiveReplica::Ending ending;     // of the newest attempt that ended
    std::vector<uint64_t> failed;   // incarnations of its members
    double not_before_seconds = 0;  // back-off
    int failures = 0;               // in a row, of Configure
    std::string said;               // newest reason to wait that was logged
    bool retires = false;           // a change takes it away: it gets nothing new
    bool not_taken_up = false;      // it was tried, and the workers serve something else
  };

  // A replica of the plans in force.
  struct Place {
    const v1::Replica* replica = nullptr;  // null: they have none of that name
    size_t model = 0;
  };
  // What others may ask for, under mutex_. Changed by our thread alone, which reads it without.
  struct Shown {
    PlanSet plans;  // in force
    std::shared_ptr<const v1::DeploymentPlan> joined = std::make_shared<v1::DeploymentPlan>();
    uint64_t epoch = 0;
    std::string why_no_plan;
    std::string applying;
  };

  Deployment(DeploymentOptions options, WorkerPool& pool);

  void Run();
  void Reconcile();
  // Asks people, then the source, for the plans that should be in force, and begins the change to
  // these. Not OK: they cannot be carried out.
  absl::Status TakeNext(const Workers& workers, double now);
  absl::Status CheckPlans(const PlanSet& plans) const;
  // One step of the change under way, where there is one.
  void AdvanceChange(const Workers& workers, double now);
  // These plans from now on.
  void PutInForce(const PlanSet& plans, const Workers& workers);
  Place Find(const std::string& replica) const;
  // For the change under way, of a replica of the plan in force.
  Changeover::View Look(const std::string& replica, const Workers& workers) const;
  void NoteIdle(const Workers& workers);
  void ReconcileReplica(const v1::Replica& replica, size_t model, const Workers& workers,
                        double now);
  // Ends the replica where a member is gone, forgets it where it has ended. True: it goes on.
  bool KeepLive(Carried& carried, const Workers& workers, double now);
  void EndUnplanned(const Workers& workers, double now);
  void ForgetEnded(Carried& carried);
  // Why the replica cannot be formed now; empty: it can.
  std::string WhyNotNow(const v1::Replica& replica, const Carried& carried, const Workers& workers,
                        double now);
  void ShowWaiting(const v1::Replica& replica, const Workers& workers, const std::string& why,
                   Carried& carried);
  void Form(const v1::Replica& replica, size_t model, const Workers& workers, Carried& carried);
  void Wake();

  const DeploymentOptions options_;
  const std::vector<v1::Model> models_;  // of the options
  WorkerPool& pool_;
  WorkerCopy workers_;  // of our thread
  PlanRequests requests_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool dirty_ = true;
  bool stopping_ = false;
  Shown shown_;
  std::optional<Changeover> change_;        // under way; of our thread
  PlanSource* changes_to_ = nullptr;        // whose plans it puts in force
  std::vector<double> progressed_seconds_;  // by model: when a replica of it made progress
  std::map<std::string, Carried> carried_;  // by replica; of our thread, and of Stop after it
  std::thread thread_;
};

}  // namespace tessera::coordinator
