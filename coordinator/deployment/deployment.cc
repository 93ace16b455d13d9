#include "coordinator/deployment/deployment.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "coordinator/deployment/plan_state.h"
#include "coordinator/deployment/plan_terms.h"
#include "proto/layers/kv_shares.h"
#include "scheduler/replicate.h"
#include "third_party/spdlog/log.h"

namespace tessera::coordinator {
namespace {

// Failures of a replica in a row after which its progress is no reason to wait for it.
constexpr int kMaxFailuresAwaited = 3;

std::set<std::string> DevicesOf(const v1::DeploymentPlan& plan) {
  std::set<std::string> devices;
  for (const v1::Replica& replica : plan.replicas()) {
    for (const v1::Stage& stage : replica.stages()) {
      for (const v1::PlannedWorker& worker : stage.workers()) devices.insert(worker.device());
    }
  }
  return devices;
}

// Stage by stage, rank by rank.
std::vector<const v1::PlannedWorker*> WorkersOf(const v1::Replica& replica) {
  std::vector<const v1::PlannedWorker*> workers;
  for (const v1::Stage& stage : replica.stages()) {
    for (const v1::PlannedWorker& worker : stage.workers()) workers.push_back(&worker);
  }
  return workers;
}

// Why a member of a formation in `state` is not what it was when the formation began; empty: it is.
std::string WhyGone(const FormationMember& member, Formation::State state,
                    const std::map<std::string, WorkerRecord>& workers) {
  const auto found = workers.find(member.worker);
  if (found == workers.end())
    return absl::StrCat("worker ", member.worker, " is not registered any more");
  const WorkerRecord& worker = found->second;
  if (worker.registration.incarnation() != member.request.fence().worker_incarnation())
    return absl::StrCat("worker ", member.worker, " has restarted");
  // Its configuration is gone: it registered again, or its heartbeats are of another plan.
  const bool unconfigured =
      worker.state == v1::WORKER_STATE_REGISTERED && state != Formation::State::kConfiguring;
  if (worker.state != v1::WORKER_STATE_LOST && !unconfigured) return "";
  return absl::StrCat("worker ", member.worker, ": ", worker.detail);
}

// All workers of the replicas that come are there and have room for them.
absl::Status CheckComing(const v1::DeploymentPlan& plan, const Changeover& change,
                         const std::map<std::string, WorkerRecord>& workers) {
  for (const v1::Replica& replica : plan.replicas()) {
    if (!change.Comes(replica.name())) continue;
    for (const v1::PlannedWorker* member : WorkersOf(replica)) {
      if (const std::string absent = WhyAbsent(member->device(), workers); !absent.empty())
        return absl::FailedPreconditionError(absl::StrCat("the plan cannot be applied: ", absent));
      const int64_t memory_bytes =
          workers.at(member->device()).registration.device().memory_bytes();
      if (absl::Status s = CheckRoom(*member, memory_bytes); !s.ok()) return s;
    }
  }
  return absl::OkStatus();
}

// The epoch, of a coordinator before, that all workers of the replica serve; 0: they have none in
// common.
uint64_t ServedEpoch(const v1::Replica& replica,
                     const std::map<std::string, WorkerRecord>& workers) {
  std::set<uint64_t> epochs;
  for (const v1::PlannedWorker* member : WorkersOf(replica))
    epochs.insert(workers.at(member->device()).registration.plan_epoch());
  return epochs.size() == 1 ? *epochs.begin() : 0;
}

bool AnyDrains(const std::vector<FormationMember>& members,
               const std::map<std::string, WorkerRecord>& workers) {
  return std::any_of(members.begin(), members.end(), [&](const FormationMember& member) {
    const auto found = workers.find(member.worker);
    return found != workers.end() && found->second.load.draining();
  });
}

}  // namespace

absl::StatusOr<std::unique_ptr<Deployment>> Deployment::Start(DeploymentOptions options,
                                                              WorkerPool& pool,
                                                              ReplicaLinkListener& flow) {
  if (options.plan.has_value()) {
    if (absl::Status s = CheckPlanTerms(*options.plan, options.configure); !s.ok()) return s;
  }
  std::unique_ptr<Deployment> deployment(new Deployment(std::move(options), pool, flow));
  if (deployment->made_) {
    pool.KeepNames(DevicesOf(deployment->plan_));
    if (deployment->options_.on_plan) deployment->options_.on_plan(&deployment->plan_);
  }
  Deployment* raw = deployment.get();
  pool.SetListener([raw] { raw->Wake(); });
  deployment->thread_ = std::thread([raw] { raw->Run(); });
  return deployment;
}

Deployment::Deployment(DeploymentOptions options, WorkerPool& pool, ReplicaLinkListener& flow)
    : options_(std::move(options)), pool_(pool), flow_(flow) {
  if (options_.plan.has_value()) {
    plan_ = *options_.plan;
    epoch_ = 1;
    made_ = true;
  }
}

Deployment::~Deployment() { Stop(); }

void Deployment::Stop() {
  pool_.SetListener(nullptr);
  {
    std::lock_guard lock(mutex_);
    if (stopping_ && !thread_.joinable()) return;
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
  AbandonApply(absl::UnavailableError("the coordinator is shutting down"));
  for (const auto& [name, carried] : carried_) {
    if (carried.formation != nullptr)
      carried.formation->End(absl::UnavailableError("the coordinator is shutting down"), "");
  }
  for (const auto& [name, carried] : carried_) {
    if (carried.formation != nullptr) carried.formation->WaitQuiet();
  }
}

void Deployment::Wake() {
  {
    std::lock_guard lock(mutex_);
    dirty_ = true;
  }
  wake_.notify_all();
}

void Deployment::Run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    // Also without news: back-offs end by themselves, and nobody says that a replica is drained.
    const auto pause = std::chrono::milliseconds(change_.has_value() ? 20 : 200);
    wake_.wait_for(lock, pause, [this] { return dirty_ || stopping_; });
    if (stopping_) return;
    dirty_ = false;
    lock.unlock();
    Reconcile();
    lock.lock();
  }
}

void Deployment::Reconcile() {
  // States first: a formation is READY only after the pool has all its workers so.
  for (auto& [name, carried] : carried_)
    carried.state =
        carried.formation == nullptr ? Formation::State::kOver : carried.formation->state();
  const Workers workers = pool_.Snapshot();
  const double now = options_.now_seconds();
  TakeApplied(workers, now);
  if (options_.planner) {
    AskPlanner(workers);
    ReplanForLost(workers, now);
  } else if (!made_ && !change_.has_value()) {
    RefreshPlan(workers);
  }
  AdvanceChange(workers, now);
  NoteIdle(workers);
  for (const v1::Replica& replica : plan_.replicas()) ReconcileReplica(replica, workers, now);
  EndUnplanned(workers, now);
}

void Deployment::AskPlanner(const Workers& workers) {
  if (!plan_.replicas().empty() || change_.has_value()) return;
  absl::StatusOr<v1::DeploymentPlan> plan = options_.planner(workers);
  std::string why(plan.status().message());  // which the planner logs, once
  if (plan.ok()) {
    const absl::Status checked = CheckPlanTerms(*plan, options_.configure);
    if (!checked.ok()) {
      why = absl::StrCat("the plan cannot be deployed: ", std::string(checked.message()));
      Logger("coordinator").error("{}", why);
    }
  }
  if (!why.empty()) {
    std::lock_guard lock(mutex_);
    why_no_plan_ = std::move(why);
    return;
  }
  if (!plan.ok()) return;  // nothing new
  PutInForce(*plan, /*made=*/true, workers);
}

void Deployment::PutInForce(const v1::DeploymentPlan& plan, bool made, const Workers& workers) {
  std::set<std::string> unused = DevicesOf(plan_);
  pool_.KeepNames(made ? DevicesOf(plan) : std::set<std::string>());
  for (const std::string& device : DevicesOf(plan)) unused.erase(device);
  for (const std::string& device : unused) pool_.SetReplica(device, "");
  made_ = made;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [name, worker] : workers)
      epoch_ = std::max(epoch_, worker.registration.plan_epoch());
    plan_ = plan;
    why_no_plan_.clear();
    ++epoch_;
  }
  if (options_.on_plan) options_.on_plan(made ? &plan_ : nullptr);
}

void Deployment::ReplanForLost(const Workers& workers, double now) {
  if (options_.replan_after_seconds <= 0 || plan_.replicas().empty() || change_.has_value()) return;
  std::vector<std::string> gone;
  for (const std::string& device : DevicesOf(plan_)) {
    const auto worker = workers.find(device);
    if (worker != workers.end() && worker->second.state == v1::WORKER_STATE_LOST &&
        now - worker->second.last_heartbeat_seconds >= options_.replan_after_seconds)
      gone.push_back(device);
  }
  if (gone.empty()) return;
  absl::StatusOr<v1::DeploymentPlan> plan = options_.planner(workers);
  if (!plan.ok()) return;  // the planner says why, and answers once for the same workers
  if (absl::Status s = CheckPlanTerms(*plan, options_.configure); !s.ok()) {
    Logger("coordinator").error("the new plan cannot be deployed: {}", std::string(s.message()));
    return;
  }
  {
    std::lock_guard lock(mutex_);
    if (changing_) return;  // somebody's plan has come this moment
    changing_ = true;
  }
  Logger("coordinator")
      .warn("a new plan goes without {}, gone for {} s", absl::StrJoin(gone, ", "),
            options_.replan_after_seconds);
  BeginChange({plan_, *std::move(plan), ChangeLimits(), now});
}

void Deployment::RefreshPlan(const Workers& workers) {
  std::vector<scheduler::DeviceOffer> devices;
  for (const auto& [name, worker] : workers) {
    if (worker.state == v1::WORKER_STATE_LOST) continue;
    const v1::DeviceInfo& device = worker.registration.device();
    devices.push_back({.name = name,
                       .memory_bytes = device.memory_bytes(),
                       .gpu = !device.gpu_name().empty()});
  }
  v1::DeploymentPlan plan = scheduler::OneReplicaPerDevice(options_.configure.model(), devices);
  std::lock_guard lock(mutex_);
  // A new coordinator's epochs go on above those that workers still serve.
  for (const auto& [name, worker] : workers)
    epoch_ = std::max(epoch_, worker.registration.plan_epoch());
  if (epoch_ > 0 && plan.SerializeAsString() == plan_.SerializeAsString()) return;
  plan_ = std::move(plan);
  ++epoch_;
}

void Deployment::NoteIdle(const Workers& workers) {
  const std::set<std::string> used = DevicesOf(plan_);
  for (const auto& [name, worker] : workers) {
    if (used.contains(name) || worker.state == v1::WORKER_STATE_LOST || worker.load.draining())
      continue;
    pool_.SetState(name, worker.registration.incarnation(), worker.state,
                   "idle: no replica of the plan uses it");
  }
}

void Deployment::ReconcileReplica(const v1::Replica& replica, const Workers& workers, double now) {
  Carried& carried = carried_[replica.name()];
  carried.retires = change_.has_value() && change_->Retires(replica.name());
  if (KeepFormation(carried, workers, now) || carried.retires) return;
  const std::string why = WhyNotNow(replica, carried, workers, now);
  if (why.empty()) {
    Form(replica, workers, carried);
  } else {
    ShowWaiting(replica, workers, why, carried);
  }
}

bool Deployment::KeepFormation(Carried& carried, const Workers& workers, double now) {
  if (carried.formation == nullptr) return false;
  Formation& formation = *carried.formation;
  for (const FormationMember& member : formation.members()) {
    const std::string gone = WhyGone(member, carried.state, workers);
    if (gone.empty()) continue;
    if (!formation.alone() && carried.state != Formation::State::kOver)
      Logger("coordinator").warn("replica {} is broken: {}", formation.replica(), gone);
    formation.End(absl::UnavailableError(gone), member.worker);
    break;
  }
  if (formation.quiet()) {
    ForgetEnded(carried);
    return false;
  }
  if (carried.state == Formation::State::kServing) {
    carried.failures = 0;
    carried.said.clear();
  }
  const bool draining = carried.retires || AnyDrains(formation.members(), workers);
  const std::string& leader = formation.members()[0].worker;
  if (const auto found = workers.find(leader); found != workers.end())
    formation.PassHeartbeat(found->second.load, found->second.last_heartbeat_seconds, draining);
  // What drains ends; what it serves goes on over the session that it has.
  const double lost = formation.session_lost_seconds();
  const bool backs_off = lost > 0 && now < lost + options_.retry_seconds / 4;
  if (carried.state == Formation::State::kReady && !draining && !backs_off) formation.OpenSession();
  return true;
}

void Deployment::ForgetEnded(Carried& carried) {
  carried.ending = carried.formation->ending();
  carried.failed.clear();
  for (const FormationMember& member : carried.formation->members())
    carried.failed.push_back(member.request.fence().worker_incarnation());
  carried.not_before_seconds = 0;
  if (carried.ending.not_taken_up) {
    carried.not_taken_up = true;
    carried.failed.clear();  // it may be formed at once
  } else if (carried.ending.not_configured) {
    ++carried.failures;
    carried.not_before_seconds = carried.ending.seconds + options_.retry_seconds;
  } else if (carried.ending.worker.empty()) {
    carried.not_before_seconds = carried.ending.seconds + options_.retry_seconds / 4;
  }
  carried.formation = nullptr;
}

void Deployment::EndUnplanned(const Workers& workers, double now) {
  std::set<std::string> planned;
  for (const v1::Replica& replica : plan_.replicas()) planned.insert(replica.name());
  for (auto entry = carried_.begin(); entry != carried_.end();) {
    Carried& carried = entry->second;
    const bool goes = !planned.contains(entry->first) && !KeepFormation(carried, workers, now);
    if (!goes && !planned.contains(entry->first))
      carried.formation->End(absl::UnavailableError("the replica is no longer in the plan"), "");
    entry = goes ? carried_.erase(entry) : std::next(entry);
  }
}

std::string Deployment::WhyNotNow(const v1::Replica& replica, const Carried& carried,
                                  const Workers& workers, double now) {
  const std::vector<const v1::PlannedWorker*> members = WorkersOf(replica);
  for (const v1::PlannedWorker* member : members) {
    std::string absent = WhyAbsent(member->device(), workers);
    if (!absent.empty()) return absent;
  }
  for (const v1::PlannedWorker* member : members) {
    const v1::RegisterRequest& registration = workers.at(member->device()).registration;
    const absl::Status room = CheckRoom(*member, registration.device().memory_bytes());
    if (room.ok()) continue;
    std::string why(room.message());
    pool_.SetState(member->device(), registration.incarnation(), v1::WORKER_STATE_FAILED, why);
    return why;
  }
  // A restarted worker has not failed yet, and has registered after the failure.
  if (carried.failed.size() != members.size()) return "";
  for (size_t i = 0; i < members.size(); ++i) {
    if (workers.at(members[i]->device()).registration.incarnation() != carried.failed[i]) return "";
  }
  const std::string reason(carried.ending.reason.message());
  if (now < carried.not_before_seconds) {
    return carried.ending.not_configured ? absl::StrCat("worker ", carried.ending.worker,
                                                        " could not be configured: ", reason)
                                         : reason;
  }
  // One of several may have died with the formation and not be missed yet.
  for (const v1::PlannedWorker* member : members) {
    const double heard = workers.at(member->device()).last_heartbeat_seconds;
    if (members.size() > 1 && heard <= carried.ending.seconds)
      return absl::StrCat("no heartbeat of worker ", member->device(), " since: ", reason);
  }
  return "";
}

void Deployment::ShowWaiting(const v1::Replica& replica, const Workers& workers,
                             const std::string& why, Carried& carried) {
  const std::vector<const v1::PlannedWorker*> members = WorkersOf(replica);
  if (members.size() == 1) return;
  if (carried.said != why) Logger("coordinator").warn("replica {} waits: {}", replica.name(), why);
  carried.said = why;
  for (const v1::PlannedWorker* member : members) {
    const auto found = workers.find(member->device());
    if (found == workers.end()) continue;
    const WorkerRecord& worker = found->second;
    pool_.SetReplica(member->device(), replica.name());
    if (worker.state == v1::WORKER_STATE_FAILED || worker.load.draining()) continue;
    pool_.SetState(member->device(), worker.registration.incarnation(), v1::WORKER_STATE_REGISTERED,
                   absl::StrCat("replica ", replica.name(), ": ", why));
  }
}

void Deployment::Form(const v1::Replica& replica, const Workers& workers, Carried& carried) {
  FormationOptions formation;
  formation.replica = replica.name();
  formation.cluster_token = options_.cluster_token;
  formation.worker_tls = options_.worker_tls;
  formation.configure_timeout_seconds = options_.configure_timeout_seconds;
  formation.now_seconds = options_.now_seconds;
  formation.changed = [this] { Wake(); };
  // Whoever waits for it need not wait for ever.
  if (carried.failures < kMaxFailuresAwaited)
    formation.progressed = [this] { progressed_seconds_ = options_.now_seconds(); };
  std::vector<v1::Peer> peers;
  uint64_t epoch = carried.epoch + 1;
  const bool first = carried.epoch == 0 && !carried.not_taken_up;
  const uint64_t served = first ? ServedEpoch(replica, workers) : 0;
  formation.takes_up = served > 0;
  for (int stage = 0; stage < replica.stages_size(); ++stage) {
    for (int rank = 0; rank < replica.stages(stage).workers_size(); ++rank) {
      const std::string& name = replica.stages(stage).workers(rank).device();
      const v1::RegisterRequest& registration = workers.at(name).registration;
      epoch = std::max(epoch, registration.plan_epoch() + 1);
      v1::Peer& peer = peers.emplace_back();
      peer.set_stage(stage);
      peer.set_rank(rank);
      peer.set_address(registration.address());
      peer.set_worker_incarnation(registration.incarnation());
      *peer.mutable_link_addresses() = registration.link_addresses();
      const v1::WorkerShare& share = replica.stages(stage).workers(rank).share();
      *peer.mutable_kv_share() = KvShareOf(options_.configure.model(), share);
      FormationMember& member = formation.members.emplace_back();
      member.worker = name;
      member.address = registration.address();
      member.request = options_.configure;
      member.request.mutable_fence()->set_worker_incarnation(registration.incarnation());
      ApplyPlan(plan_, replica, stage, rank, member.request);
    }
  }
  {
    std::lock_guard lock(mutex_);
    epoch = epoch_ = std::max(epoch, epoch_);
    if (formation.takes_up) epoch = served;
  }
  for (FormationMember& member : formation.members) {
    member.request.mutable_fence()->set_plan_epoch(epoch);
    member.request.mutable_peers()->Add(peers.begin(), peers.end());
  }
  if (formation.progressed) formation.progressed();
  carried.epoch = epoch;
  carried.formation = Formation::Start(std::move(formation), pool_, flow_);
}

void Deployment::Apply(v1::DeploymentPlan plan, Applied done) {
  absl::Status status = CheckPlanTerms(plan, options_.configure);
  if (status.ok()) {
    std::lock_guard lock(mutex_);
    if (!abandoned_.ok()) {
      status = abandoned_;
    } else if (changing_) {
      status =
          absl::FailedPreconditionError("another plan is being applied: wait until that has ended");
    } else {
      changing_ = true;
      asked_ = std::move(plan);
      applied_ = std::move(done);
    }
  }
  if (!status.ok()) return done(status);
  Wake();
}

void Deployment::AbandonApply(const absl::Status& reason) {
  {
    std::lock_guard lock(mutex_);
    abandoned_ = reason;
  }
  Answer(reason);
}

void Deployment::Answer(absl::StatusOr<v1::ApplyPlanReply> answer) {
  Applied applied;
  {
    std::lock_guard lock(mutex_);
    std::swap(applied, applied_);
  }
  if (applied) applied(std::move(answer));
}

void Deployment::TakeApplied(const Workers& workers, double now) {
  std::optional<v1::DeploymentPlan> plan;
  {
    std::lock_guard lock(mutex_);
    std::swap(plan, asked_);
  }
  if (!plan.has_value()) return;
  Changeover change(plan_, *plan, ChangeLimits(), now);
  const absl::Status there = CheckComing(*plan, change, workers);
  if (there.ok()) return BeginChange(std::move(change));
  {
    std::lock_guard lock(mutex_);
    changing_ = false;
  }
  Answer(there);
}

ChangeoverLimits Deployment::ChangeLimits() const {
  return {.drain_seconds = options_.drain_seconds,
          .form_seconds = options_.configure_timeout_seconds};
}

void Deployment::BeginChange(Changeover change) {
  change_.emplace(std::move(change));
  change_under_way_ = true;
  was_made_ = made_;
  Logger("coordinator").info("another plan is applied: {}", Describe(change_->change()));
}

Changeover::View Deployment::Look(const std::string& replica, const Workers& workers) const {
  Changeover::View view;
  const auto found = carried_.find(replica);
  if (found != carried_.end()) {
    const Carried& carried = found->second;
    view.formed = carried.formation != nullptr;
    view.serving = view.formed && carried.state == Formation::State::kServing;
    if (carried.failures > 0) {
      view.failure =
          absl::StrCat("worker ", carried.ending.worker,
                       " could not be configured: ", std::string(carried.ending.reason.message()));
    }
  }
  if (options_.work_of) view.work = options_.work_of(replica);
  for (const v1::Replica& planned : plan_.replicas()) {
    if (planned.name() != replica) continue;
    for (const v1::PlannedWorker* member : WorkersOf(planned)) {
      if (view.failure.empty()) view.failure = WhyAbsent(member->device(), workers);
      const auto worker = workers.find(member->device());
      if (worker == workers.end()) continue;
      for (const v1::StartupPhase& phase : worker->second.ready.startup())
        view.reads |= phase.name() == "read weights";
    }
  }
  return view;
}

void Deployment::AdvanceChange(const Workers& workers, double now) {
  if (!change_.has_value()) return;
  const Changeover::Orders orders =
      change_->Advance([&](const std::string& replica) { return Look(replica, workers); }, now);
  for (const std::string& replica : orders.end) {
    const std::shared_ptr<Formation>& formation = carried_[replica].formation;
    if (formation != nullptr)
      formation->End(absl::UnavailableError("another plan is being applied"), "");
  }
  for (const std::string& replica : orders.forget) carried_.erase(replica);
  if (orders.in_force != nullptr) PutInForce(*orders.in_force, orders.is_new || was_made_, workers);
  {
    std::lock_guard lock(mutex_);
    applying_ = change_->progress();
  }
  if (!orders.over) return;
  absl::StatusOr<v1::ApplyPlanReply> result = change_->result();
  if (result.ok()) {
    Logger("coordinator").info("the plan is applied: {}", Describe(change_->change()));
  } else {
    Logger("coordinator").error("{}", std::string(result.status().message()));
  }
  change_.reset();
  change_under_way_ = false;
  {
    std::lock_guard lock(mutex_);
    changing_ = false;
    if (result.ok()) result->set_plan_epoch(epoch_);
  }
  Answer(std::move(result));
}

std::pair<v1::DeploymentPlan, uint64_t> Deployment::plan() const {
  std::lock_guard lock(mutex_);
  return {plan_, epoch_};
}

bool Deployment::recovering() const {
  return options_.now_seconds() - progressed_seconds_ <= options_.progress_seconds;
}

std::string Deployment::applying() const {
  std::lock_guard lock(mutex_);
  return applying_;
}

std::string Deployment::why_no_plan() const {
  std::lock_guard lock(mutex_);
  return why_no_plan_;
}

}  // namespace tessera::coordinator
