#include "coordinator/deployment/deployment.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <limits>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/deployment/plan_terms.h"
#include "coordinator/deployment/plan_waits.h"
#include "proto/layers/kv_shares.h"
#include "third_party/spdlog/log.h"

namespace tessera::coordinator {
namespace {

// Failures of a replica in a row after which its progress is no reason to wait for it.
constexpr int kMaxFailuresAwaited = 3;

// Why a member of a replica in `state` is not what it was when the replica was live; empty: it
// is.
std::string WhyGone(const ReplicaMember& member, LiveReplica::State state,
                    const std::map<std::string, WorkerRecord>& workers) {
  const auto found = workers.find(member.worker);
  if (found == workers.end())
    return absl::StrCat("worker ", member.worker, " is not registered any more");
  const WorkerRecord& worker = found->second;
  if (worker.registration.incarnation() != member.request.fence().worker_incarnation())
    return absl::StrCat("worker ", member.worker, " has restarted");
  // Its configuration is gone: it registered again, or its heartbeats are of another plan.
  const bool unconfigured =
      worker.state == v1::WORKER_STATE_REGISTERED && state != LiveReplica::State::kConfiguring;
  if (worker.state != v1::WORKER_STATE_LOST && !unconfigured) return "";
  return absl::StrCat("worker ", member.worker, ": ", worker.detail);
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

std::vector<v1::Model> ModelsOf(const DeploymentOptions& options) {
  std::vector<v1::Model> models;
  for (const DeployedModel& model : options.models) models.push_back(model.configure.model());
  return models;
}

bool AnyDrains(const std::vector<ReplicaMember>& members,
               const std::map<std::string, WorkerRecord>& workers) {
  return std::any_of(members.begin(), members.end(), [&](const ReplicaMember& member) {
    const auto found = workers.find(member.worker);
    return found != workers.end() && found->second.load.draining();
  });
}

}  // namespace

absl::StatusOr<std::unique_ptr<Deployment>> Deployment::Start(DeploymentOptions options,
                                                              WorkerPool& pool) {
  std::unique_ptr<Deployment> deployment(new Deployment(std::move(options), pool));
  const Workers workers = pool.Snapshot();
  const double now = deployment->options_.now_seconds();
  if (absl::Status s = deployment->TakeNext(workers, now); !s.ok()) return s;
  deployment->AdvanceChange(workers, now);
  Deployment* raw = deployment.get();
  pool.SetListener([raw] { raw->Wake(); });
  deployment->thread_ = std::thread([raw] { raw->Run(); });
  return deployment;
}

Deployment::Deployment(DeploymentOptions options, WorkerPool& pool)
    : options_(std::move(options)),
      models_(ModelsOf(options_)),
      pool_(pool),
      progressed_seconds_(models_.size(), -std::numeric_limits<double>::infinity()) {}

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
    if (carried.live != nullptr)
      carried.live->End(absl::UnavailableError("the coordinator is shutting down"), "");
  }
  for (const auto& [name, carried] : carried_) {
    if (carried.live != nullptr) carried.live->WaitQuiet();
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
  // States first: a replica is READY only after the pool has all its workers so.
  for (auto& [name, carried] : carried_)
    carried.state = carried.live == nullptr ? LiveReplica::State::kOver : carried.live->state();
  pool_.Refresh(&workers_);
  const Workers& workers = workers_.workers;
  const double now = options_.now_seconds();
  // The source has heard of a refusal.
  (void)TakeNext(workers, now);
  AdvanceChange(workers, now);
  NoteIdle(workers);
  for (size_t i = 0; i < shown_.plans.plans.size(); ++i) {
    for (const v1::Replica& replica : shown_.plans.plans[i].replicas())
      ReconcileReplica(replica, i, workers, now);
  }
  EndUnplanned(workers, now);
}

absl::Status Deployment::TakeNext(const Workers& workers, double now) {
  if (change_.has_value()) return absl::OkStatus();
  absl::Status refused;
  for (PlanSource* source : {static_cast<PlanSource*>(&requests_), options_.source.get()}) {
    std::optional<NextPlan> next =
        source->Next({shown_.plans, workers, now,
                      options_.stragglers ? options_.stragglers() : std::vector<Straggler>()});
    if (!next.has_value()) continue;
    NameReplicas(models_, &next->plans);
    if (absl::Status checked = CheckPlans(next->plans); !checked.ok()) {
      source->Refuse(checked);
      refused.Update(checked);
      continue;
    }
    change_.emplace(shown_.plans, std::move(next->plans), next->on_trial,
                    ChangeoverLimits{.drain_seconds = options_.drain_seconds,
                                     .form_seconds = options_.configure_timeout_seconds},
                    now);
    changes_to_ = source;
    if (next->on_trial)
      Logger("coordinator").info("another plan is applied: {}", Describe(change_->change()));
    return absl::OkStatus();
  }
  std::string why = shown_.plans.has_replicas() ? "" : options_.source->why_none();
  std::lock_guard lock(mutex_);
  shown_.why_no_plan = std::move(why);
  return refused;
}

absl::Status Deployment::CheckPlans(const PlanSet& plans) const {
  if (!plans.names_devices) return absl::OkStatus();  // made for the workers as they are
  for (size_t i = 0; i < plans.plans.size(); ++i) {
    if (plans.plans[i].replicas().empty()) continue;
    absl::Status checked = CheckPlanTerms(plans.plans[i], options_.models[i].configure);
    if (!checked.ok()) return checked;
  }
  return CheckDevicesApart(models_, plans);
}

void Deployment::AdvanceChange(const Workers& workers, double now) {
  if (!change_.has_value()) return;
  const Changeover::Orders orders =
      change_->Advance([&](const std::string& replica) { return Look(replica, workers); }, now);
  for (const std::string& replica : orders.end) {
    const std::shared_ptr<LiveReplica>& live = carried_[replica].live;
    if (live != nullptr) live->End(absl::UnavailableError("another plan is being applied"), "");
  }
  for (const std::string& replica : orders.forget) carried_.erase(replica);
  if (orders.in_force != nullptr) PutInForce(*orders.in_force, workers);
  {
    std::lock_guard lock(mutex_);
    shown_.applying = change_->progress();
  }
  if (!orders.over) return;
  absl::StatusOr<v1::ApplyPlanReply> result = change_->result();
  if (!result.ok()) {
    Logger("coordinator").error("{}", std::string(result.status().message()));
  } else {
    if (change_->on_trial())
      Logger("coordinator").info("the plan is applied: {}", Describe(change_->change()));
    result->set_plan_epoch(shown_.epoch);
  }
  change_.reset();
  changes_to_->Ended(std::move(result));
}

void Deployment::PutInForce(const PlanSet& plans, const Workers& workers) {
  std::set<std::string> unused = DevicesOf(shown_.plans);
  const std::set<std::string> used = DevicesOf(plans);
  pool_.KeepNames(plans.names_devices ? used : std::set<std::string>());
  for (const std::string& device : used) unused.erase(device);
  for (const std::string& device : unused) pool_.SetReplica(device, "");
  {
    std::lock_guard lock(mutex_);
    // A new coordinator's epochs go on above those that workers still serve.
    for (const auto& [name, worker] : workers)
      shown_.epoch = std::max(shown_.epoch, worker.registration.plan_epoch());
    ++shown_.epoch;
    shown_.plans = plans;
    shown_.joined = std::make_shared<v1::DeploymentPlan>(Joined(plans));
    shown_.why_no_plan.clear();
  }
  for (size_t i = 0; i < options_.models.size(); ++i) {
    const bool made = shown_.plans.names_devices && i < shown_.plans.plans.size();
    if (options_.models[i].on_plan)
      options_.models[i].on_plan(made ? &shown_.plans.plans[i] : nullptr);
  }
}

Deployment::Place Deployment::Find(const std::string& replica) const {
  for (size_t i = 0; i < shown_.plans.plans.size(); ++i) {
    for (const v1::Replica& planned : shown_.plans.plans[i].replicas()) {
      if (planned.name() == replica) return {&planned, i};
    }
  }
  return {};
}

void Deployment::NoteIdle(const Workers& workers) {
  const std::set<std::string> used = DevicesOf(shown_.plans);
  for (const auto& [name, worker] : workers) {
    if (used.contains(name) || worker.state == v1::WORKER_STATE_LOST || worker.load.draining())
      continue;
    pool_.SetState(name, worker.registration.incarnation(), worker.state,
                   "idle: no replica of the plan uses it");
  }
}

void Deployment::ReconcileReplica(const v1::Replica& replica, size_t model, const Workers& workers,
                                  double now) {
  Carried& carried = carried_[replica.name()];
  carried.retires = change_.has_value() && change_->Retires(replica.name());
  if (KeepLive(carried, workers, now) || carried.retires) return;
  const std::string why = WhyNotNow(replica, carried, workers, now);
  if (why.empty()) {
    Form(replica, model, workers, carried);
  } else {
    ShowWaiting(replica, workers, why, carried);
  }
}

bool Deployment::KeepLive(Carried& carried, const Workers& workers, double now) {
  if (carried.live == nullptr) return false;
  LiveReplica& live = *carried.live;
  for (const ReplicaMember& member : live.members()) {
    const std::string gone = WhyGone(member, carried.state, workers);
    if (gone.empty()) continue;
    if (!live.alone() && carried.state != LiveReplica::State::kOver)
      Logger("coordinator").warn("replica {} is broken: {}", live.replica(), gone);
    live.End(absl::UnavailableError(gone), member.worker);
    break;
  }
  if (live.quiet()) {
    ForgetEnded(carried);
    return false;
  }
  if (carried.state == LiveReplica::State::kServing) {
    carried.failures = 0;
    carried.said.clear();
  }
  const bool draining = carried.retires || AnyDrains(live.members(), workers);
  const std::string& leader = live.members()[0].worker;
  if (const auto found = workers.find(leader); found != workers.end())
    live.PassHeartbeat(found->second.load, found->second.last_heartbeat_seconds, draining);
  // What drains ends; what it serves goes on over the session that it has.
  const double lost = live.session_lost_seconds();
  const bool backs_off = lost > 0 && now < lost + options_.retry_seconds / 4;
  if (carried.state == LiveReplica::State::kReady && !draining && !backs_off) live.OpenSession();
  return true;
}

void Deployment::ForgetEnded(Carried& carried) {
  carried.ending = carried.live->ending();
  carried.failed.clear();
  for (const ReplicaMember& member : carried.live->members())
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
  carried.live = nullptr;
}

void Deployment::EndUnplanned(const Workers& workers, double now) {
  std::set<std::string_view> names;
  for (const v1::DeploymentPlan& plan : shown_.plans.plans) {
    for (const v1::Replica& replica : plan.replicas()) names.insert(replica.name());
  }
  for (auto entry = carried_.begin(); entry != carried_.end();) {
    Carried& carried = entry->second;
    const bool planned = names.contains(entry->first);
    const bool goes = !planned && !KeepLive(carried, workers, now);
    if (!goes && !planned)
      carried.live->End(absl::UnavailableError("the replica is no longer in the plan"), "");
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
  // One of several may have died with the replica and not be missed yet.
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

void Deployment::Form(const v1::Replica& replica, size_t model, const Workers& workers,
                      Carried& carried) {
  const v1::ConfigureRequest& configure = options_.models[model].configure;
  LiveReplicaOptions live;
  live.replica = replica.name();
  live.cluster_token = options_.cluster_token;
  live.leader_term = options_.leader_term;
  live.worker_tls = options_.worker_tls;
  live.configure_timeout_seconds = options_.configure_timeout_seconds;
  live.now_seconds = options_.now_seconds;
  live.changed = [this] { Wake(); };
  // Whoever waits for it need not wait for ever.
  if (carried.failures < kMaxFailuresAwaited)
    live.progressed = [this, model] {
      const double now = options_.now_seconds();
      std::lock_guard lock(mutex_);
      progressed_seconds_[model] = now;
    };
  std::vector<v1::Peer> peers;
  uint64_t epoch = carried.epoch + 1;
  const bool first = carried.epoch == 0 && !carried.not_taken_up;
  const uint64_t served = first ? ServedEpoch(replica, workers) : 0;
  live.takes_up = served > 0;
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
      *peer.mutable_kv_share() = KvShareOf(configure.model(), share);
      ReplicaMember& member = live.members.emplace_back();
      member.worker = name;
      member.address = registration.address();
      member.request = configure;
      member.request.mutable_fence()->set_worker_incarnation(registration.incarnation());
      FillConfigure(shown_.plans.plans[model], replica, stage, rank, member.request);
    }
  }
  {
    std::lock_guard lock(mutex_);
    epoch = shown_.epoch = std::max(epoch, shown_.epoch);
    if (live.takes_up) epoch = served;
  }
  for (ReplicaMember& member : live.members) {
    member.request.mutable_fence()->set_plan_epoch(epoch);
    member.request.mutable_peers()->Add(peers.begin(), peers.end());
  }
  if (live.progressed) live.progressed();
  carried.epoch = epoch;
  carried.live = LiveReplica::Start(std::move(live), pool_, *options_.models[model].requests);
}

void Deployment::Apply(std::vector<v1::DeploymentPlan> plans, Applied done) {
  if (changing_plan()) {
    return done(
        absl::FailedPreconditionError("another plan is being applied: wait until that has ended"));
  }
  auto by_model = ByModel(std::move(plans), models_);
  if (!by_model.ok()) return done(by_model.status());
  PlanSet named;
  named.plans.resize(models_.size());
  for (size_t i = 0; i < models_.size(); ++i) {
    if (!(*by_model)[i].has_value()) continue;
    const absl::Status checked = CheckPlanTerms(*(*by_model)[i], options_.models[i].configure);
    if (!checked.ok()) return done(checked);
    named.plans[i] = *std::move((*by_model)[i]);
  }
  NameReplicas(models_, &named);
  for (size_t i = 0; i < models_.size(); ++i) {
    if ((*by_model)[i].has_value()) (*by_model)[i] = std::move(named.plans[i]);
  }
  requests_.Ask(*std::move(by_model), std::move(done));
  Wake();
}

Changeover::View Deployment::Look(const std::string& replica, const Workers& workers) const {
  Changeover::View view;
  const auto found = carried_.find(replica);
  if (found != carried_.end()) {
    const Carried& carried = found->second;
    view.formed = carried.live != nullptr;
    view.serving = view.formed && carried.state == LiveReplica::State::kServing;
    if (carried.failures > 0) {
      view.failure =
          absl::StrCat("worker ", carried.ending.worker,
                       " could not be configured: ", std::string(carried.ending.reason.message()));
    }
  }
  const Place place = Find(replica);
  if (place.replica == nullptr) return view;
  const auto& work_of = options_.models[place.model].work_of;
  if (work_of) view.work = work_of(replica);
  for (const v1::PlannedWorker* member : WorkersOf(*place.replica)) {
    if (view.failure.empty()) view.failure = WhyAbsent(member->device(), workers);
    const auto worker = workers.find(member->device());
    if (worker == workers.end()) continue;
    for (const v1::StartupPhase& phase : worker->second.ready.startup())
      view.reads |= phase.name() == "read weights";
  }
  return view;
}

std::pair<v1::DeploymentPlan, uint64_t> Deployment::plan() const {
  std::lock_guard lock(mutex_);
  return {*shown_.joined, shown_.epoch};
}

std::shared_ptr<const v1::DeploymentPlan> Deployment::joined_plan() const {
  std::lock_guard lock(mutex_);
  return shown_.joined;
}

PlanSet Deployment::plans() const {
  std::lock_guard lock(mutex_);
  return shown_.plans;
}

bool Deployment::names_devices() const {
  std::lock_guard lock(mutex_);
  return shown_.plans.names_devices;
}

bool Deployment::recovering(size_t model) const {
  const double now = options_.now_seconds();
  std::lock_guard lock(mutex_);
  return now - progressed_seconds_[model] <= options_.progress_seconds;
}

std::string Deployment::applying() const {
  std::lock_guard lock(mutex_);
  return shown_.applying;
}

std::string Deployment::why_no_plan() const {
  std::lock_guard lock(mutex_);
  return shown_.why_no_plan;
}

}  // namespace tessera::coordinator
