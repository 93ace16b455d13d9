#include "coordinator/deployment/worker_pool.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/deployment/fences.h"
#include "proto/emulated_kind.h"
#include "proto/plain_text.h"
#include "proto/protocol.h"
#include "proto/worker_name.h"
#include "third_party/spdlog/log.h"

namespace tessera::coordinator {
namespace {

// Nobody is to take seeded tokens for a model's.
absl::Status CheckKind(const v1::RegisterRequest& request, bool rehearsal) {
  const bool emulated = IsEmulatedKind(request.device().kind());
  if (emulated == rehearsal) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "worker ", request.name(),
      emulated ? " has an emulated device, which computes nothing: only a coordinator that was "
                 "started for a rehearsal (--rehearsal) takes it"
               : " has a device that computes, and this coordinator was started for a rehearsal "
                 "(--rehearsal), which takes emulated ones alone"));
}

}  // namespace

void WorkerPool::SetListener(std::function<void()> changed) {
  std::lock_guard lock(mutex_);
  changed_ = std::move(changed);
}

void WorkerPool::Changed() {
  std::function<void()> changed;
  {
    std::lock_guard lock(mutex_);
    changed = changed_;
  }
  if (changed) changed();
}

absl::StatusOr<v1::RegisterReply> WorkerPool::Register(const v1::RegisterRequest& request,
                                                       double now_seconds) {
  if (request.name().empty())
    return absl::InvalidArgumentError("a worker registered without a name");
  if (request.address().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker ", request.name(), " registered without an address"));
  }
  // Lines of the log, too, are made of them.
  std::string problem = WorkerNameProblem(request.name());
  if (const std::string field = FieldWithControls(request); problem.empty() && !field.empty())
    problem = absl::StrCat("its ", field, " has characters that are not printed");
  if (!problem.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("a worker that calls itself '",
                                                   WithoutControls(request.name().substr(0, 64)),
                                                   "': ", problem, " (the worker's --name)"));
  }
  absl::Status versions =
      CheckVersions(absl::StrCat("worker ", request.name()), request.build_version(),
                    request.protocol_version(), options_.build_version);
  if (!versions.ok()) return versions;
  if (absl::Status kind = CheckKind(request, options_.rehearsal); !kind.ok()) return kind;
  bool changed = false;
  {
    std::lock_guard lock(mutex_);
    auto [it, fresh] = workers_.try_emplace(request.name());
    WorkerRecord& worker = it->second;
    const bool same = !fresh && worker.registration.incarnation() == request.incarnation();
    const bool alive = !fresh && worker.state != v1::WORKER_STATE_LOST;
    if (alive && !same && worker.registration.address() != request.address()) {
      return absl::AlreadyExistsError(absl::StrCat("a worker named ", request.name(),
                                                   " is alive at ", worker.registration.address(),
                                                   ": give this worker another --name"));
    }
    if (!same || !alive) {
      worker = WorkerRecord();
      changed = true;
    }
    Mark(worker);
    worker.registration = request;
    worker.last_heartbeat_seconds = now_seconds;
  }
  if (changed) {
    Logger("coordinator")
        .info("worker {} registered from {}: {}", request.name(), request.address(),
              request.device().description());
    Changed();
  }
  v1::RegisterReply reply;
  reply.set_heartbeat_interval_seconds(options_.heartbeat_interval_seconds);
  return reply;
}

absl::Status WorkerPool::Heartbeat(const v1::HeartbeatRequest& request, double now_seconds) {
  bool changed = false;
  {
    std::lock_guard lock(mutex_);
    const absl::StatusOr<bool> taken = TakeHeartbeat(request, now_seconds);
    if (!taken.ok()) return taken.status();
    changed = *taken;
  }
  if (changed) Changed();
  return absl::OkStatus();
}

// With mutex_ held. True: a state changed.
absl::StatusOr<bool> WorkerPool::TakeHeartbeat(const v1::HeartbeatRequest& request,
                                               double now_seconds) {
  auto it = workers_.find(request.name());
  if (it == workers_.end() || it->second.registration.incarnation() != request.incarnation() ||
      it->second.state == v1::WORKER_STATE_LOST) {
    return absl::NotFoundError(
        absl::StrCat("worker ", request.name(), " is not registered: register again"));
  }
  WorkerRecord& worker = it->second;
  Mark(worker);
  worker.last_heartbeat_seconds = now_seconds;
  if (request.has_counters()) {
    worker.counters = request.counters();
    worker.busy.Add(worker.counters);
  }
  const absl::Status stale =
      worker.state == v1::WORKER_STATE_READY
          ? CheckHeartbeatEpoch(request.name(), request.plan_epoch(), worker.plan_epoch)
          : absl::OkStatus();
  if (stale.ok()) {
    worker.stale_heartbeats = 0;
    if (request.has_load()) worker.load = request.load();
    return false;
  }
  // What drains may be past its engine, and stays so.
  if (request.load().draining()) worker.load.set_draining(true);
  // One may have been under way while the worker became ready.
  if (++worker.stale_heartbeats < 2 || worker.load.draining()) return false;
  worker.state = v1::WORKER_STATE_REGISTERED;
  worker.detail = std::string(stale.message());
  // The next Configure's epoch must be above it.
  worker.registration.set_plan_epoch(
      std::max(worker.registration.plan_epoch(), request.plan_epoch()));
  Logger("coordinator").warn("{}: it is configured again", worker.detail);
  return true;
}

void WorkerPool::KeepNames(std::set<std::string> names) {
  std::lock_guard lock(mutex_);
  kept_ = std::move(names);
}

void WorkerPool::ExpireSilent(double now_seconds) {
  bool changed = false;
  {
    std::lock_guard lock(mutex_);
    changed = std::erase_if(workers_, [&](const auto& entry) {
                return entry.second.state == v1::WORKER_STATE_LOST &&
                       !kept_.contains(entry.first) &&
                       now_seconds - entry.second.last_heartbeat_seconds > options_.forget_seconds;
              }) > 0;
    for (auto& [name, worker] : workers_) {
      const double silent = now_seconds - worker.last_heartbeat_seconds;
      if (worker.state == v1::WORKER_STATE_LOST || silent <= options_.heartbeat_timeout_seconds)
        continue;
      Mark(worker);
      worker.state = v1::WORKER_STATE_LOST;
      worker.detail = absl::StrCat("no heartbeat for ", static_cast<int64_t>(silent), " s");
      Logger("coordinator").warn("worker {} is lost: {}", name, worker.detail);
      changed = true;
    }
  }
  if (changed) Changed();
}

void WorkerPool::SetState(const std::string& name, uint64_t incarnation, v1::WorkerState state,
                          std::string detail) {
  bool changed = false;
  {
    std::lock_guard lock(mutex_);
    auto it = workers_.find(name);
    if (it == workers_.end() || it->second.registration.incarnation() != incarnation ||
        it->second.state == v1::WORKER_STATE_LOST) {
      return;
    }
    WorkerRecord& worker = it->second;
    changed = worker.state != state;
    if (!changed && worker.detail == detail) return;
    Mark(worker);
    worker.state = state;
    worker.detail = std::move(detail);
  }
  if (changed) Changed();
}

void WorkerPool::SetReady(const std::string& name, uint64_t incarnation, uint64_t plan_epoch,
                          const v1::WorkerReady& ready) {
  {
    std::lock_guard lock(mutex_);
    auto it = workers_.find(name);
    if (it == workers_.end() || it->second.registration.incarnation() != incarnation) return;
    Mark(it->second);
    it->second.ready = ready;
    it->second.plan_epoch = plan_epoch;
    it->second.stale_heartbeats = 0;
  }
  SetState(name, incarnation, v1::WORKER_STATE_READY, "serving");
}

void WorkerPool::SetReplica(const std::string& name, std::string replica) {
  std::lock_guard lock(mutex_);
  auto it = workers_.find(name);
  if (it == workers_.end() || it->second.replica == replica) return;
  Mark(it->second);
  it->second.replica = std::move(replica);
}

void WorkerPool::SetLoad(const std::string& name, const v1::EngineLoad& load) {
  std::lock_guard lock(mutex_);
  auto it = workers_.find(name);
  if (it == workers_.end()) return;
  Mark(it->second);
  it->second.load = load;
}

std::string WorkerPool::FailureOf(const std::string& name) const {
  std::lock_guard lock(mutex_);
  const auto it = workers_.find(name);
  const bool failed = it != workers_.end() && it->second.state == v1::WORKER_STATE_FAILED;
  return failed ? it->second.detail : "";
}

std::map<std::string, WorkerRecord> WorkerPool::Snapshot() const {
  std::lock_guard lock(mutex_);
  return workers_;
}

void WorkerPool::Refresh(WorkerCopy* copy) const {
  std::lock_guard lock(mutex_);
  for (const auto& [name, worker] : workers_) {
    if (worker.change > copy->changes) copy->workers[name] = worker;
  }
  copy->changes = changes_;
  if (copy->workers.size() == workers_.size()) return;
  std::erase_if(copy->workers,
                [this](const auto& entry) { return !workers_.contains(entry.first); });
}

}  // namespace tessera::coordinator
