#include "coordinator/deployment/deployment.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/deployment/plan_terms.h"
#include "proto/protocol.h"
#include "proto/status_wire.h"
#include "proto/worker.grpc.pb.h"
#include "scheduler/replicate.h"
#include "third_party/spdlog/log.h"

namespace tessera::coordinator {
namespace {

// Messages to a worker carry whole prompts, and a Configure the vocabulary.
constexpr int kMaxMessageBytes = 256 << 20;

const v1::Replica* ReplicaOf(const v1::DeploymentPlan& plan, const std::string& device) {
  for (const v1::Replica& replica : plan.replicas()) {
    for (const v1::Stage& stage : replica.stages()) {
      for (const v1::PlannedWorker& worker : stage.workers()) {
        if (worker.device() == device) return &replica;
      }
    }
  }
  return nullptr;
}

std::set<std::string> DevicesOf(const v1::DeploymentPlan& plan) {
  std::set<std::string> devices;
  for (const v1::Replica& replica : plan.replicas()) {
    for (const v1::Stage& stage : replica.stages()) {
      for (const v1::PlannedWorker& worker : stage.workers()) devices.insert(worker.device());
    }
  }
  return devices;
}

std::shared_ptr<grpc::Channel> Connect(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  // A silent peer is noticed by pings, not only by heartbeats.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5'000);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 200);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2'000);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace

// One Configure call: progress into the pool, the end to Deployment.
class Deployment::ConfigureCall : public grpc::ClientReadReactor<v1::ConfigureProgress> {
 public:
  ConfigureCall(Deployment& deployment, std::string name, v1::ConfigureRequest request,
                std::shared_ptr<grpc::Channel> channel)
      : deployment_(deployment),
        name_(std::move(name)),
        request_(std::move(request)),
        stub_(v1::Worker::NewStub(channel)) {}

  void Begin(std::shared_ptr<ConfigureCall> self) {
    self_ = std::move(self);
    if (!deployment_.options_.cluster_token.empty()) {
      context_.AddMetadata(std::string(kClusterTokenKey), deployment_.options_.cluster_token);
    }
    context_.set_deadline(std::chrono::system_clock::now() +
                          std::chrono::milliseconds(static_cast<int64_t>(
                              1e3 * deployment_.options_.configure_timeout_seconds)));
    stub_->async()->Configure(&context_, &request_, this);
    StartRead(&progress_);
    StartCall();
  }

  void Cancel() { context_.TryCancel(); }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    if (progress_.has_ready()) {
      ready_ = progress_.ready();
    } else {
      std::string detail = progress_.phase();
      if (progress_.bytes_total() > 0) {
        absl::StrAppend(&detail, " ", 100 * progress_.bytes_done() / progress_.bytes_total(), " %");
      }
      deployment_.pool_.SetState(name_, request_.fence().worker_incarnation(),
                                 v1::WORKER_STATE_CONFIGURING, detail);
    }
    StartRead(&progress_);
  }

  void OnDone(const grpc::Status& status) override {
    std::shared_ptr<ConfigureCall> self = std::move(self_);
    absl::Status result = FromGrpc(status);
    if (result.ok() && ready_.kv_blocks() == 0) {
      result = absl::InternalError("the worker ended Configure without saying that it is ready");
    }
    deployment_.OnConfigured(name_, request_.fence(), result, ready_);
  }

 private:
  Deployment& deployment_;
  const std::string name_;
  const v1::ConfigureRequest request_;
  const std::unique_ptr<v1::Worker::Stub> stub_;
  grpc::ClientContext context_;
  v1::ConfigureProgress progress_;
  v1::WorkerReady ready_;
  std::shared_ptr<ConfigureCall> self_;
};

absl::StatusOr<std::unique_ptr<Deployment>> Deployment::Start(DeploymentOptions options,
                                                              WorkerPool& pool,
                                                              ReplicaLinkListener& flow) {
  if (options.plan.has_value()) {
    if (absl::Status s = CheckPlanTerms(*options.plan, options.configure); !s.ok()) return s;
  }
  std::unique_ptr<Deployment> deployment(new Deployment(std::move(options), pool, flow));
  if (deployment->options_.plan.has_value()) pool.KeepNames(DevicesOf(deployment->plan_));
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
  std::vector<std::string> names;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [name, connection] : connections_) names.push_back(name);
  }
  for (const std::string& name : names) {
    DropConnection(name, absl::UnavailableError("the coordinator is shutting down"));
  }
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return calls_under_way_ == 0; });  // cancelled calls end at once
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
    // Also without news: back-offs end by themselves.
    wake_.wait_for(lock, std::chrono::milliseconds(200), [this] { return dirty_ || stopping_; });
    if (stopping_) return;
    dirty_ = false;
    lock.unlock();
    Reconcile();
    lock.lock();
  }
}

void Deployment::Reconcile() {
  const std::map<std::string, WorkerRecord> workers = pool_.Snapshot();
  if (options_.planner) {
    AskPlanner(workers);
  } else if (!options_.plan.has_value()) {
    RefreshPlan(workers);
  }
  const double now = options_.now_seconds();
  for (const auto& [name, worker] : workers) ReconcileWorker(name, worker, now);
}

void Deployment::AskPlanner(const std::map<std::string, WorkerRecord>& workers) {
  {
    std::lock_guard lock(mutex_);
    if (!plan_.replicas().empty()) return;
  }
  absl::StatusOr<v1::DeploymentPlan> plan = options_.planner(workers);
  std::string why(plan.status().message());  // which the planner logs, once
  if (plan.ok()) {
    const absl::Status checked = CheckPlanTerms(*plan, options_.configure);
    if (!checked.ok()) {
      why = absl::StrCat("the plan is not carried out: ", std::string(checked.message()));
      Logger("coordinator").error("{}", why);
    }
  }
  if (!why.empty()) {
    std::lock_guard lock(mutex_);
    why_no_plan_ = std::move(why);
    return;
  }
  if (!plan.ok()) return;  // nothing new
  pool_.KeepNames(DevicesOf(*plan));
  std::lock_guard lock(mutex_);
  for (const auto& [name, worker] : workers)
    epoch_ = std::max(epoch_, worker.registration.plan_epoch());
  plan_ = *std::move(plan);
  why_no_plan_.clear();
  ++epoch_;
}

void Deployment::RefreshPlan(const std::map<std::string, WorkerRecord>& workers) {
  std::vector<scheduler::DeviceOffer> devices;
  for (const auto& [name, worker] : workers) {
    if (worker.state == v1::WORKER_STATE_LOST) continue;
    devices.push_back({name, worker.registration.device().memory_bytes()});
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

void Deployment::ReconcileWorker(const std::string& name, const WorkerRecord& worker, double now) {
  const uint64_t incarnation = worker.registration.incarnation();
  std::string stale;
  {
    std::lock_guard lock(mutex_);
    auto it = connections_.find(name);
    if (it != connections_.end()) {
      if (it->second.incarnation != incarnation) {
        stale = absl::StrCat("worker ", name, " has restarted");
      } else if (worker.state == v1::WORKER_STATE_LOST ||
                 (it->second.session != nullptr && worker.state == v1::WORKER_STATE_REGISTERED)) {
        stale = absl::StrCat("worker ", name, ": ", worker.detail);
      }
    }
  }
  if (!stale.empty()) DropConnection(name, absl::UnavailableError(stale));
  if (worker.state == v1::WORKER_STATE_LOST) return;
  PassHeartbeat(name, worker);
  // It ends; what it serves goes on over the session that it has.
  if (worker.load.draining()) return;

  v1::Replica replica;
  {
    std::lock_guard lock(mutex_);
    if (const v1::Replica* found = ReplicaOf(plan_, name)) replica = *found;
  }
  if (replica.name().empty()) {
    pool_.SetState(name, incarnation, worker.state, "idle: no replica of the plan uses it");
    return;
  }
  {
    std::lock_guard lock(mutex_);
    Connection& connection = connections_[name];
    if (connection.configuring != nullptr || connection.session != nullptr ||
        now < connection.not_before_seconds) {
      return;
    }
    if (worker.state == v1::WORKER_STATE_READY) {
      OpenSession(name, worker, connection);
    }
  }
  if (worker.state != v1::WORKER_STATE_READY) BeginConfigure(name, worker, replica);
}

void Deployment::PassHeartbeat(const std::string& name, const WorkerRecord& worker) {
  std::shared_ptr<WorkerSession> session;
  {
    std::lock_guard lock(mutex_);
    auto it = connections_.find(name);
    if (it == connections_.end() || !it->second.serves ||
        it->second.told_heartbeat_seconds == worker.last_heartbeat_seconds) {
      return;
    }
    it->second.told_heartbeat_seconds = worker.last_heartbeat_seconds;
    session = it->second.session;
  }
  if (session != nullptr) flow_.OnHeartbeat(session, worker.load);
}

void Deployment::BeginConfigure(const std::string& name, const WorkerRecord& worker,
                                const v1::Replica& replica) {
  v1::ConfigureRequest request = options_.configure;
  v1::Peer& peer = *request.add_peers();
  peer.set_address(worker.registration.address());
  peer.set_worker_incarnation(worker.registration.incarnation());
  request.mutable_fence()->set_worker_incarnation(worker.registration.incarnation());
  std::shared_ptr<ConfigureCall> call;
  {
    std::lock_guard lock(mutex_);
    ApplyPlan(plan_, replica, 0, 0, request);
    Connection& connection = connections_[name];
    connection.incarnation = worker.registration.incarnation();
    connection.replica = replica.name();
    connection.max_sequences = request.max_sequences();
    // Above whatever it was configured with before, by us or by a predecessor.
    epoch_ = std::max(epoch_, worker.registration.plan_epoch() + 1);
    connection.epoch = std::max(epoch_, connection.epoch + 1);
    epoch_ = connection.epoch;
    connection.channel = Connect(worker.registration.address());
    request.mutable_fence()->set_plan_epoch(connection.epoch);
    call = std::make_shared<ConfigureCall>(*this, name, std::move(request), connection.channel);
    connection.configuring = call;
    worker_of_replica_[replica.name()] = name;
    ++calls_under_way_;
  }
  pool_.SetReplica(name, replica.name());
  pool_.SetState(name, worker.registration.incarnation(), v1::WORKER_STATE_CONFIGURING,
                 "configuring");
  Logger("coordinator").info("configuring worker {} as replica {}", name, replica.name());
  call->Begin(call);
}

void Deployment::OnConfigured(const std::string& name, const v1::Fence& fence,
                              const absl::Status& status, const v1::WorkerReady& ready) {
  const uint64_t incarnation = fence.worker_incarnation();
  {
    std::lock_guard lock(mutex_);
    auto it = connections_.find(name);
    if (it != connections_.end() && it->second.incarnation == incarnation) {
      it->second.configuring = nullptr;
      if (!status.ok())
        it->second.not_before_seconds = options_.now_seconds() + options_.retry_seconds;
    }
  }
  if (status.ok()) {
    Logger("coordinator")
        .info("worker {} is ready: {}, {} KV blocks of {} tokens", name, ready.device(),
              ready.kv_blocks(), ready.block_tokens());
    pool_.SetReady(name, incarnation, fence.plan_epoch(), ready);
  } else {
    Logger("coordinator")
        .error("worker {} could not be configured: {}", name, std::string(status.message()));
    pool_.SetState(name, incarnation, v1::WORKER_STATE_FAILED, std::string(status.message()));
  }
  Wake();
  std::lock_guard lock(mutex_);
  --calls_under_way_;
  idle_.notify_all();
}

// With mutex_ held.
void Deployment::OpenSession(const std::string& name, const WorkerRecord& worker,
                             Connection& connection) {
  WorkerSessionOptions session;
  session.replica = connection.replica;
  session.fence.set_plan_epoch(connection.epoch);
  session.fence.set_worker_incarnation(connection.incarnation);
  session.cluster_token = options_.cluster_token;
  session.max_sequences = connection.max_sequences;
  session.ready = worker.ready;
  worker_of_replica_[connection.replica] = name;
  ++calls_under_way_;
  connection.session = WorkerSession::Open(connection.channel, std::move(session), *this);
}

void Deployment::DropConnection(const std::string& name, const absl::Status& reason) {
  std::shared_ptr<WorkerSession> session;
  std::shared_ptr<ConfigureCall> configuring;
  {
    std::lock_guard lock(mutex_);
    auto it = connections_.find(name);
    if (it == connections_.end()) return;
    session = it->second.session;
    configuring = it->second.configuring;
    const auto serves = worker_of_replica_.find(it->second.replica);
    if (serves != worker_of_replica_.end() && serves->second == name)
      worker_of_replica_.erase(serves);
    connections_.erase(it);
  }
  if (configuring != nullptr) configuring->Cancel();
  if (session != nullptr) session->Close(reason);
}

void Deployment::OnLinkReady(std::shared_ptr<ReplicaLink> link) {
  {
    std::lock_guard lock(mutex_);
    for (auto& [name, connection] : connections_) {
      if (connection.session.get() == link.get()) connection.serves = true;
    }
  }
  flow_.OnLinkReady(std::move(link));
}

void Deployment::OnReply(const std::shared_ptr<ReplicaLink>& link, const v1::SessionReply& reply) {
  flow_.OnReply(link, reply);
  if (!reply.has_load()) return;
  std::string worker;
  {
    std::lock_guard lock(mutex_);
    const auto found = worker_of_replica_.find(link->replica());
    if (found == worker_of_replica_.end()) return;
    worker = found->second;
  }
  pool_.SetLoad(worker, reply.load());
}

void Deployment::OnLinkLost(const std::shared_ptr<ReplicaLink>& link, const absl::Status& reason) {
  flow_.OnLinkLost(link, reason);
  std::string worker;
  uint64_t incarnation = 0;
  {
    std::lock_guard lock(mutex_);
    for (auto& [name, connection] : connections_) {
      if (connection.session.get() != link.get()) continue;
      connection.session = nullptr;
      connection.serves = false;
      connection.not_before_seconds = options_.now_seconds() + options_.retry_seconds / 4;
      worker = name;
      incarnation = connection.incarnation;
    }
  }
  // It does not know this plan any more: configure it again.
  if (!worker.empty() && absl::IsFailedPrecondition(reason)) {
    pool_.SetState(worker, incarnation, v1::WORKER_STATE_REGISTERED, std::string(reason.message()));
  }
  Wake();
  std::lock_guard lock(mutex_);
  --calls_under_way_;
  idle_.notify_all();
}

std::pair<v1::DeploymentPlan, uint64_t> Deployment::plan() const {
  std::lock_guard lock(mutex_);
  return {plan_, epoch_};
}

std::string Deployment::why_no_plan() const {
  std::lock_guard lock(mutex_);
  return why_no_plan_;
}

}  // namespace tessera::coordinator
