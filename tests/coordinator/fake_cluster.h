// A coordinator's parts without HTTP, the real ones, and fake workers that register with it over
// gRPC on loopback. For tests with Catch2, whose working folder has the shipped model.
// Thread rule: one thread.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "coordinator/deployment/cluster_service.h"
#include "coordinator/deployment/deployment.h"
#include "coordinator/deployment/worker_pool.h"
#include "coordinator/flow/request_flow.h"
#include "coordinator/tokenizer/tokenizer.h"
#include "proto/build_version.h"
#include "tests/coordinator/staged_plan.h"
#include "tests/fakes/fake_worker.h"

namespace tessera::coordinator {

inline double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline std::shared_ptr<const Tokenizer> DemoTokenizer() {
  static const std::shared_ptr<const Tokenizer> tokenizer =
      std::move(Tokenizer::Load("deploy/demo_model/tessera-demo").value());
  return tokenizer;
}

// What one stream has received.
class StreamReader : public GenerationSink {
 public:
  void OnPromptLogprobs(std::vector<PositionChances>) override {}
  void OnChoice(ChoiceEvent event) override {
    std::lock_guard lock(mutex_);
    ids_.insert(ids_.end(), event.token_ids.begin(), event.token_ids.end());
  }
  void OnEnd(const absl::Status& status, const GenerationUsage&, const std::string&) override {
    std::lock_guard lock(mutex_);
    ended_ = true;
    status_ = status;
  }
  std::vector<int32_t> ids() const {
    std::lock_guard lock(mutex_);
    return ids_;
  }
  bool ended() const {
    std::lock_guard lock(mutex_);
    return ended_;
  }
  absl::Status status() const {
    std::lock_guard lock(mutex_);
    return status_;
  }
  std::unique_ptr<GenerationHandle> handle;

 private:
  mutable std::mutex mutex_;
  std::vector<int32_t> ids_;
  bool ended_ = false;
  absl::Status status_;
};

// A coordinator without HTTP, on a port of its own.
class FakeCluster {
 public:
  // `adjust` may be empty.
  explicit FakeCluster(
      std::optional<v1::DeploymentPlan> plan, double recovery_timeout_seconds = 300,
      double progress_seconds = 300, std::function<void(DeploymentOptions&)> adjust = nullptr,
      double heartbeat_timeout_seconds = WorkerPoolOptions().heartbeat_timeout_seconds)
      : plan_(std::move(plan)),
        recovery_timeout_seconds_(recovery_timeout_seconds),
        progress_seconds_(progress_seconds),
        adjust_(std::move(adjust)),
        heartbeat_timeout_seconds_(heartbeat_timeout_seconds) {
    Begin();
  }
  ~FakeCluster() {
    workers_.clear();
    End();
  }

  // The coordinator ends, and another one with the same plan, or with `plan`, begins on its port.
  // Workers stay; whoever reads is forgotten.
  void RestartCoordinator(std::optional<v1::DeploymentPlan> plan = std::nullopt) {
    End();
    if (plan.has_value()) plan_ = std::move(plan);
    Begin();
  }

  FakeWorker& Add(const std::string& name, uint64_t plan_epoch = 0, int64_t memory_bytes = 1 << 30,
                  const std::string& gpu_name = "") {
    FakeWorkerOptions options;
    options.coordinator = address_;
    options.name = name;
    options.tokens_per_second = 50;
    options.plan_epoch = plan_epoch;
    options.memory_bytes = memory_bytes;
    options.gpu_name = gpu_name;
    options.rendezvous = rendezvous_;
    workers_[name] = FakeWorker::Start(options);
    return *workers_[name];
  }
  FakeWorker& worker(const std::string& name) { return *workers_.at(name); }
  void Kill(const std::string& name) { workers_.erase(name); }

  std::shared_ptr<StreamReader> Ask(int32_t max_tokens) {
    auto reader = std::make_shared<StreamReader>();
    GenerationRequest request;
    request.prompt_token_ids = {5, 6, 7};
    request.max_tokens = max_tokens;
    auto handle = flow_->Start(std::move(request), reader);
    REQUIRE(handle.status().message() == "");
    reader->handle = *std::move(handle);
    readers_.push_back(reader);
    return reader;
  }

  // False: it did not become so within a minute.
  bool Wait(const std::function<bool()>& condition) {
    const double deadline = Now() + 60;
    while (!condition()) {
      if (Now() > deadline) return false;
      flow_->Tick();
      pool_->ExpireSilent(Now());
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
  }
  bool WaitReady(int replicas = 1) {
    return Wait([&] { return flow_->ready_replicas() == replicas; });
  }
  bool WaitNotReady() {
    return Wait([&] { return flow_->ready_replicas() == 0; });
  }
  bool WaitState(const std::string& name, v1::WorkerState state, const std::string& detail) {
    return Wait([&] {
      const v1::WorkerStatus status = Status(name);
      return status.state() == state && status.detail().find(detail) != std::string::npos;
    });
  }
  v1::GetClusterReply Describe() { return service_->Describe(); }
  v1::WorkerStatus Status(const std::string& name) {
    const v1::GetClusterReply cluster = Describe();
    for (const v1::WorkerStatus& worker : cluster.workers()) {
      if (worker.name() == name) return worker;
    }
    return v1::WorkerStatus();
  }
  std::string Detail() { return Describe().replicas(0).detail(); }

  Deployment& deployment() { return *deployment_; }
  const std::string& address() const { return address_; }
  // That a worker obeys, above this coordinator's own; 0: none has said one.
  uint64_t heard_term() const { return heard_term_; }

 private:
  void Begin() {
    WorkerPoolOptions pool;
    pool.heartbeat_interval_seconds = 0.05;
    pool.heartbeat_timeout_seconds = heartbeat_timeout_seconds_;
    pool.build_version = std::string(BuildVersion());
    pool_ = std::make_unique<WorkerPool>(std::move(pool));
    RequestFlowOptions flow;
    flow.recovery_timeout_seconds = recovery_timeout_seconds_;
    flow.recovering = [this] { return deployment_->recovering(); };
    flow.now_seconds = Now;
    flow_ = std::make_shared<RequestFlow>(std::move(flow), DemoTokenizer(), nullptr);
    DeployedModel model;
    *model.configure.mutable_model() = SmallModel();
    model.requests = flow_.get();
    model.work_of = [this](const std::string& replica) { return flow_->WorkOf(replica); };
    model.on_plan = [this](const v1::DeploymentPlan* in_force) {
      flow_->SetPairs(in_force == nullptr ? PlanPairs() : PlanPairs(*in_force));
    };
    DeploymentOptions deployment;
    deployment.models.push_back(std::move(model));
    deployment.source = plan_.has_value()
                            ? std::move(FixedPlans({*plan_}, std::vector{SmallModel()}).value())
                            : EachWorkerAlone({SmallModel()});
    deployment.retry_seconds = 0.2;
    deployment.progress_seconds = progress_seconds_;
    deployment.now_seconds = Now;
    if (adjust_) adjust_(deployment);
    std::function<uint64_t()> leader_term = deployment.leader_term;
    auto started = Deployment::Start(std::move(deployment), *pool_);
    REQUIRE(started.status().message() == "");
    deployment_ = *std::move(started);
    ClusterServiceOptions service;
    service.leader_term = std::move(leader_term);
    service.hear_term = [this](uint64_t term) { heard_term_ = term; };
    service.models.push_back({.flow = flow_.get()});
    service.admin.open = true;
    service.now_seconds = Now;
    service_ = MakeClusterService(std::move(service), *pool_, *deployment_);
    grpc::ServerBuilder builder;
    int port = 0;
    const std::string address = address_.empty() ? "127.0.0.1:0" : address_;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(service_->service());
    server_ = builder.BuildAndStart();
    REQUIRE(port > 0);
    address_ = "127.0.0.1:" + std::to_string(port);
  }
  void End() {
    for (const auto& reader : readers_) reader->handle.reset();
    readers_.clear();
    server_->Shutdown(std::chrono::system_clock::now());
    deployment_->Stop();
    server_ = nullptr;
    service_ = nullptr;
    deployment_ = nullptr;
    flow_ = nullptr;
    pool_ = nullptr;
  }

  std::optional<v1::DeploymentPlan> plan_;
  const double recovery_timeout_seconds_, progress_seconds_;
  const std::function<void(DeploymentOptions&)> adjust_;
  const double heartbeat_timeout_seconds_;
  const std::shared_ptr<FakeRendezvous> rendezvous_ = FakeRendezvous::Make();
  std::atomic<uint64_t> heard_term_ = 0;
  std::unique_ptr<WorkerPool> pool_;
  std::shared_ptr<RequestFlow> flow_;
  std::unique_ptr<Deployment> deployment_;
  std::unique_ptr<ClusterService> service_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
  std::map<std::string, std::unique_ptr<FakeWorker>> workers_;
  std::vector<std::shared_ptr<StreamReader>> readers_;
};

}  // namespace tessera::coordinator
