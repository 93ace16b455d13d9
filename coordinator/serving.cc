#include "coordinator/serving.h"

#include <grpcpp/impl/codegen/service_type.h>
#include <malloc.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/activity_line.h"
#include "coordinator/api/front_door.h"
#include "coordinator/api/key_ring.h"
#include "coordinator/certificate_metrics.h"
#include "coordinator/client_metrics.h"
#include "coordinator/cluster_keys.h"
#include "coordinator/deployment/cluster_service.h"
#include "coordinator/deployment/deployment.h"
#include "coordinator/deployment/measured_rates.h"
#include "coordinator/deployment/plan_waits.h"
#include "coordinator/deployment/planning_desk.h"
#include "coordinator/deployment/straggler_watch.h"
#include "coordinator/deployment/worker_metrics.h"
#include "coordinator/deployment/worker_pool.h"
#include "coordinator/flow/request_flow.h"
#include "coordinator/grpc_door/grpc_port.h"
#include "coordinator/grpc_door/inference_service.h"
#include "coordinator/grpc_door/planning_service.h"
#include "coordinator/high_availability.h"
#include "coordinator/http/http_server.h"
#include "coordinator/http_door/http_admission.h"
#include "coordinator/http_door/http_api.h"
#include "coordinator/http_door/planning_http.h"
#include "coordinator/model_host.h"
#include "coordinator/open_files.h"
#include "coordinator/plans_of_flags.h"
#include "coordinator/port_certificates.h"
#include "coordinator/ports.h"
#include "coordinator/process_metrics.h"
#include "coordinator/replica_watch.h"
#include "coordinator/served_model.h"
#include "coordinator/tracing/tracing.h"
#include "coordinator/web/page_routes.h"
#include "proto/build_version.h"
#include "proto/http_peer.h"
#include "proto/protocol.h"
#include "scheduler/planner/report/plan_table.h"
#include "third_party/grpc/callback_queue.h"
#include "third_party/linux/host_name.h"
#include "third_party/linux/service_manager.h"
#include "third_party/spdlog/log.h"
#include "tls/certificates.h"

namespace tessera::coordinator {
namespace {

// For readers to take their errors at the end: of --shutdown-timeout at most, and at least.
constexpr double kLastWordsSeconds = 2, kMinLastWordsSeconds = 0.5;

double MonotonicSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int64_t UnixSeconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// The flags as one of several models is loaded with them.
CoordinatorOptions OptionsOf(const CoordinatorOptions& options, const ModelFlag& model) {
  CoordinatorOptions own = options;
  own.model = model.model;
  if (!model.name.empty())
    own.served_model_names.insert(own.served_model_names.begin(), model.name);
  return own;
}

// Everything that serves; members are destroyed in reverse order.
class Coordinator {
 public:
  // Where Start failed, Shutdown was not called: what asks the deployment ends before it.
  ~Coordinator() {
    for (const auto& host : hosts_) host->replanning().Stop();
  }

  // CANCELLED: `stopped` said so while it was a spare.
  absl::Status Start(const CoordinatorOptions& options, const std::function<bool()>& stopped) {
    const double begin = MonotonicSeconds();
    options_ = options;
    keys_of_clients_ = KeyRing(options.keys);
    RaiseOpenFileLimit();
    auto keys = ClusterKeys::Make(options);
    if (!keys.ok()) return keys.status();
    keys_ = *std::move(keys);
    if (absl::Status s = OpenDoors(); !s.ok()) return s;
    if (absl::Status s = LoadModels(); !s.ok()) return s;
    const double models_read = MonotonicSeconds();
    auto leads = HighAvailability::Lead(options, certificates_.http(), MonotonicSeconds, stopped);
    if (!leads.ok()) return leads.status();
    ha_ = *std::move(leads);
    if (absl::Status s = StartDeployment(); !s.ok()) return s;
    if (absl::Status s = StartGrpc(); !s.ok()) return s;
    if (absl::Status s = StartHttp(); !s.ok()) return s;
    for (const auto& host : hosts_) {
      const ServedModel& served = host->served();
      Logger("coordinator")
          .info("model {}: context {} tokens, vocabulary {}", served.name,
                served.max_model_len_tokens, served.tokenizer->vocabulary_size());
    }
    Logger("coordinator")
        .info("started in {:.2f} s (read models {:.2f}, listen {:.2f})", MonotonicSeconds() - begin,
              models_read - begin, MonotonicSeconds() - models_read);
    Logger("coordinator")
        .info("HTTP on {}://{}, gRPC on {}; waiting for workers",
              certificates_.http() == nullptr ? "http" : "https",
              HostAndPort(options.host, http_->port()), HostAndPort(options.host, grpc_->port()));
    return WritePortFile(options.port_file, http_->port(), grpc_->port());
  }

  // About ten times a second.
  void Tick() {
    callback_queue_.Wake();
    for (const auto& host : hosts_) host->flow().Tick();
    if (!resigned_) pool_->ExpireSilent(MonotonicSeconds());
    grpc_->SetServing(Readiness().ok());
    if (++ticks_ % 3 == 0) WatchWorkers();
    if (ticks_ % 10 != 0) return;
    api_->Tick();
    cluster_->SampleRates();
    SampleLatencies();
    replicas_->Watch(MonotonicSeconds());
    if (ticks_ % 100 == 0) LogActivity();
  }

  // Another coordinator leads; empty: none does.
  std::string deposed_by() const {
    if (ha_ == nullptr || !ha_->deposed()) return "";
    const std::string url = ha_->leader_url();
    return url.empty() ? "another coordinator" : "the coordinator at " + url;
  }

  void Shutdown() {
    draining_ = true;
    Resign();
    for (const auto& host : hosts_) host->flow().Drain();
    http_->Drain();
    // Workers have one session each, and it is the next leader's.
    const double whole = options_.shutdown_timeout_seconds, began = MonotonicSeconds();
    const double last_words = std::clamp(whole / 10, kMinLastWordsSeconds, kLastWordsSeconds);
    const double seconds = resigned_ ? 0 : std::max(0.0, whole - last_words);
    Logger("coordinator")
        .info("stopping: finishing {} requests first, for at most {} s",
              replicas_->requests_in_flight(), seconds);
    while (replicas_->requests_in_flight() > 0 && MonotonicSeconds() < began + seconds) {
      Tick();
      usleep(50'000);
    }
    for (const auto& host : hosts_) {
      host->AbortAll(
          absl::UnavailableError("the server was stopped before the answer was complete"));
    }
    desk_->Stop();  // searches would go on while the doors are closed
    for (const auto& host : hosts_) host->replanning().Stop();
    deployment_->AbandonApply(absl::UnavailableError("the coordinator is shutting down"));
    // Last words go out: a connection closes by itself once its answer was sent.
    const double end = MonotonicSeconds() + last_words;
    while (http_->connections() > 0 && MonotonicSeconds() < end) usleep(10'000);
    http_->Stop();
    deployment_->Stop();
    grpc_->Stop(std::max(0.0, end - MonotonicSeconds()));
    Logger("coordinator").info("stopped");
  }

 private:
  // Workers go to the next leader; what streams here ends here, over the sessions that there are.
  void Resign() {
    if (ha_ == nullptr) return;
    resigned_ = true;
    ha_->Resign();
  }

  absl::Status OpenDoors() {
    absl::Status opened = certificates_.Open(options_.tls, options_.cluster_tls_file);
    if (!opened.ok()) return opened;
    if (IsLoopback(options_.host)) return absl::OkStatus();
    if (options_.keys.empty()) {
      Logger("coordinator")
          .warn("--host {} without --api-key: anyone who reaches it can send requests",
                options_.host);
    }
    certificates_.WarnOfReaders(options_.host);
    return absl::OkStatus();
  }

  absl::Status Readiness() const {
    if (draining_) return absl::UnavailableError("draining: takes no new requests");
    return replicas_->Readiness();
  }

  void WatchWorkers() {
    pool_->Refresh(&workers_);
    stragglers_.Update(*deployment_->joined_plan(), workers_.workers, MonotonicSeconds());
    for (const auto& host : hosts_) host->flow().SetSlowdowns(stragglers_.factors());
    if (ha_ != nullptr) ha_->Keep(deployment_->plans(), workers_.workers);
  }

  void SampleLatencies() {
    std::vector<prometheus::MetricFamily> families;
    for (const auto& host : hosts_) host->metrics().AddLatencies(&families);
    measured_.Sample(families, MonotonicSeconds());
  }

  absl::Status LoadModels() {
    auto tracing = Tracing::Start({options_.otlp_endpoint, std::string(BuildVersion())});
    if (!tracing.ok()) return tracing.status();
    tracing_ = *std::move(tracing);
    std::vector<ServedEntry> doors;
    for (size_t i = 0; i < options_.models.size(); ++i) {
      absl::StatusOr<LoadedModel> loaded =
          LoadModel(OptionsOf(options_, options_.models[i]), UnixSeconds());
      if (!loaded.ok()) return loaded.status();
      ModelHostOptions host;
      host.keys = keys_of_clients_;
      host.recovering = [this, i] { return deployment_ != nullptr && deployment_->recovering(i); };
      host.changing_plan = [this] {
        return deployment_ != nullptr && deployment_->changing_plan();
      };
      host.now_seconds = MonotonicSeconds;
      auto made =
          ModelHost::Make(options_, *std::move(loaded), std::move(host), *registry_, *tracing_);
      if (!made.ok()) return made.status();
      hosts_.push_back(*std::move(made));
      doors.push_back(hosts_.back()->door());
    }
    replanning_ = &hosts_.front()->replanning();
    return CheckModelNames(doors, keys_of_clients_);
  }

  ServedModels Doors() {
    std::vector<ServedEntry> doors;
    for (const auto& host : hosts_) doors.push_back(host->door());
    return ServedModels(std::move(doors));
  }

  absl::Status StartDeployment() {
    WorkerPoolOptions pool;
    pool.build_version = std::string(BuildVersion());
    pool.rehearsal = options_.rehearsal;
    pool_ = std::make_unique<WorkerPool>(std::move(pool));
    std::vector<v1::Model> models;
    for (const auto& host : hosts_) models.push_back(host->configure().model());
    auto source = PlansOfFlags(
        options_, models, hosts_.front()->configure(),
        [this] { return hosts_.front()->metrics().draft_counts(); }, MonotonicSeconds);
    if (!source.ok()) return source.status();
    if (ha_ != nullptr) {
      *source = ha_->KeptFirst(*std::move(source), models);
      const KeptCluster kept = ha_->kept();
      for (const v1::RegisterRequest& worker : kept.workers)
        (void)pool_->Register(worker, MonotonicSeconds());  // it comes by itself, too
    }
    DeploymentOptions deployment;
    if (ha_ != nullptr) deployment.leader_term = [this] { return ha_->term(); };
    for (const auto& host : hosts_) deployment.models.push_back(host->TakeDeployed());
    deployment.source = *std::move(source);
    deployment.cluster_token = keys_->token();
    deployment.worker_tls = certificates_.ToWorkers();
    deployment.now_seconds = MonotonicSeconds;
    deployment.stragglers = [this] { return stragglers_.stragglers(); };
    auto started = Deployment::Start(std::move(deployment), *pool_);
    if (!started.ok()) return InPlanFiles(options_, started.status());
    deployment_ = *std::move(started);
    replicas_ = std::make_unique<ReplicaWatch>(hosts_, *pool_, *deployment_,
                                               options_.progress_timeout_seconds);
    for (const auto& host : hosts_) host->replanning().Start(*pool_, *deployment_);
    return absl::OkStatus();
  }

  absl::Status StartGrpc() {
    ClusterServiceOptions cluster;
    cluster.cluster_token = keys_->token();
    cluster.worker_tls = certificates_.ToWorkers();
    cluster.cluster_certificates = certificates_.Cluster();
    cluster.token_advice = [this] { return keys_->token_advice(); };
    cluster.admin = keys_->admin();
    for (const auto& host : hosts_) cluster.models.push_back(host->in_cluster());
    cluster.build_version = std::string(BuildVersion());
    cluster.now_seconds = MonotonicSeconds;
    cluster.stragglers = [this] { return stragglers_.stragglers(); };
    if (ha_ != nullptr) {
      cluster.leader_term = [this] { return ha_->term(); };
      cluster.hear_term = [this](uint64_t term) { ha_->HearTerm(term); };
    }
    cluster.takes_workers = [this] {
      return resigned_ ? absl::UnavailableError("this coordinator leads no more: ask the next one")
                       : absl::OkStatus();
    };
    cluster_ = MakeClusterService(std::move(cluster), *pool_, *deployment_);
    StartPlanning();
    InferenceServiceOptions inference;
    inference.keys = keys_of_clients_;
    inference.refused = [this](absl::StatusCode code) { CountRefused(code); };
    inference.now_unix_seconds = UnixSeconds;
    inference_ = MakeInferenceService(std::move(inference), Doors());

    GrpcPortOptions port;
    port.address = HostAndPort(options_.host, options_.grpc_port);
    port.certificates = certificates_.grpc();
    port.members = certificates_.members();
    port.describes_itself = IsLoopback(options_.host);
    port.cluster = cluster_->service();
    port.inference = inference_.get();
    port.planning = planning_.get();
    auto opened = GrpcPort::Open(port);
    if (!opened.ok()) return opened.status();
    grpc_ = *std::move(opened);
    return keys_->Publish(grpc_->port());
  }

  void StartPlanning() {
    PlanningDeskOptions desk;
    desk.admin = keys_->admin();
    desk.served_model = hosts_.front()->configure().model();
    desk.now_seconds = MonotonicSeconds;
    desk.running = [this] { return RunningPlan(); };
    desk.drafts = [this] { return hosts_.front()->SeenDrafts(); };
    desk.apply = [this](std::vector<v1::DeploymentPlan> plans, PlanningDesk::Applied done) {
      deployment_->Apply(std::move(plans), std::move(done));
    };
    desk_ = std::make_unique<PlanningDesk>(std::move(desk));
    planning_ = MakePlanningService(*desk_);
    SampleLatencies();  // what growth is counted from
  }

  // The plan of each of several models.
  void TellPlans(v1::GetPlanReply* reply) const {
    reply->clear_text();
    PlanSet plans = deployment_->plans();
    for (v1::DeploymentPlan& plan : plans.plans) {
      if (plan.has_basis()) reply->mutable_text()->append(scheduler::PlanTable(plan));
      *reply->add_plans() = std::move(plan);
    }
  }

  v1::GetPlanReply RunningPlan() {
    v1::GetPlanReply reply;
    auto [plan, epoch] = deployment_->plan();
    reply.set_plan_epoch(epoch);
    reply.set_no_plan(deployment_->why_no_plan());
    if (plan.has_basis()) reply.set_text(scheduler::PlanTable(plan));
    reply.set_suggestion(replanning_->advice());
    if (!reply.suggestion().empty())
      absl::StrAppend(reply.mutable_text(), "\n", reply.suggestion(), "\n");
    *reply.mutable_plan() = std::move(plan);
    *reply.mutable_measured() = measured_.Recent();
    if (hosts_.size() > 1) TellPlans(&reply);
    int64_t kv_tokens = 0;
    const std::map<std::string, WorkerRecord> workers = pool_->Snapshot();
    for (const v1::Replica& replica : reply.plan().replicas())
      kv_tokens += KvTokens(replica, workers);
    reply.mutable_measured()->set_kv_capacity_tokens(kv_tokens);
    return reply;
  }

  absl::Status StartHttp() {
    HttpApiOptions api;
    api.keys = keys_of_clients_;
    api.readiness = [this] { return Readiness(); };
    api.stalled = [this] { return replicas_->Stalled(); };
    api.version = std::string(BuildVersion());
    api.waiting = [this] { return replicas_->Waiting(); };
    api.load = [this] { return replicas_->requests_in_flight(); };
    api.refused = [this](absl::StatusCode code) { CountRefused(code); };
    api.other_routes = PlanRoutes(
        *desk_, [this] { return cluster_->Describe(); },
        !options_.open_loopback || !options_.admin_key_file.empty());
    for (OtherRoute& route : PageRoutes(std::string(BuildVersion())))
      api.other_routes.push_back(std::move(route));
    api.metrics = [this] { return MetricsText(); };
    api.now_unix_seconds = UnixSeconds;
    api_ = HttpApi::Make(std::move(api), Doors());
    HttpServerOptions http;
    http.host = options_.host;
    http.port = options_.port;
    http.certificates = certificates_.http();
    http.io_threads = options_.io_threads;
    http.max_bodies_bytes = options_.max_body_memory_bytes;
    http.refused = [this](std::string_view path, int status) {
      if (!HttpApi::Generates(path)) return;
      CountRefused(status == 503 ? absl::StatusCode::kUnavailable
                                 : absl::StatusCode::kInvalidArgument);
    };
    http.admit = MakeHttpAdmission({.allowed_hosts = options_.allowed_hosts,
                                    .allowed_origins = options_.allowed_origins,
                                    .machine_name = HostName()},
                                   [this](const HttpRequest& header) {
                                     return HttpAdmission{api_->Admit(header), {}};
                                   });
    const auto handle = [this](std::shared_ptr<HttpExchange> exchange) {
      api_->Handle(std::move(exchange));
    };
    auto started = HttpServer::Start(http, handle);
    if (!started.ok()) return started.status();
    http_ = *std::move(started);
    return absl::OkStatus();
  }

  // What the doors refuse before they know the model counts as the first one's.
  void CountRefused(absl::StatusCode code) { hosts_.front()->metrics().OnRefused(code); }

  // A replica's series are there from its first plan on: by default a worker's registration, from
  // which on a worker's own are.
  std::string MetricsText() {
    const std::vector<v1::DeploymentPlan> plans = deployment_->plans().plans;
    std::vector<ModelUse> uses;
    for (size_t i = 0; i < hosts_.size(); ++i) {
      hosts_[i]->flow().CountSequences();
      if (i >= plans.size()) continue;  // none has been in force yet
      for (const v1::Replica& replica : plans[i].replicas())
        hosts_[i]->metrics().OnReplicaKnown(replica.name());
    }
    std::vector<prometheus::MetricFamily> families = registry_->Collect();
    const auto add = [&families](std::vector<prometheus::MetricFamily> more) {
      std::move(more.begin(), more.end(), std::back_inserter(families));
    };
    const v1::GetClusterReply cluster = cluster_->Describe();
    add(WorkerFamilies(cluster));
    add(HandOverFamilies(cluster));
    add(SlownessFamilies(cluster, stragglers_.stragglers()));
    add(ProcessMetrics().Collect());
    add(tracing_->families());
    for (const auto& host : hosts_) uses.push_back({host->served().name, host->fair().uses()});
    add(ClientFamilies(uses));
    add(CertificateFamilies(certificates_.http(), certificates_.cluster()));
    return prometheus::TextSerializer().Serialize(families);
  }

  void LogActivity() {
    const std::string line = ActivityLine(cluster_->Describe());
    if (!line.empty()) Logger("coordinator").info("{}", line);
  }

  CoordinatorOptions options_;
  std::unique_ptr<HighAvailability> ha_;  // null: this is the only coordinator
  std::unique_ptr<ClusterKeys> keys_;
  KeyRing keys_of_clients_;
  PortCertificates certificates_;
  const std::shared_ptr<prometheus::Registry> registry_ = std::make_shared<prometheus::Registry>();
  std::unique_ptr<Tracing> tracing_;
  std::vector<std::unique_ptr<ModelHost>> hosts_;  // in the order of the flags
  WorkloadReplanning* replanning_ = nullptr;       // of the only model, where it watches anything
  StragglerWatch stragglers_;
  std::unique_ptr<WorkerPool> pool_;
  WorkerCopy workers_;  // of Tick
  std::unique_ptr<Deployment> deployment_;
  std::unique_ptr<ReplicaWatch> replicas_;
  std::unique_ptr<ClusterService> cluster_;
  MeasuredRates measured_;
  std::unique_ptr<PlanningDesk> desk_;
  std::unique_ptr<grpc::Service> planning_;
  std::unique_ptr<grpc::Service> inference_;
  std::unique_ptr<GrpcPort> grpc_;
  CallbackQueueWaker callback_queue_;  // so that no user's call waits for gRPC to wake up
  std::unique_ptr<HttpApi> api_;
  std::unique_ptr<HttpServer> http_;
  std::atomic<bool> draining_ = false, resigned_ = false;
  int64_t ticks_ = 0;
};

}  // namespace

absl::Status Serve(const CoordinatorOptions& options) {
  // Blocked before any thread starts, so that only this one sees them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  // Else the allocator keeps what a large body took for the next one, once it has freed one.
  mallopt(M_MMAP_THRESHOLD, 1 << 20);

  Coordinator coordinator;
  const absl::Status started = coordinator.Start(options, [&signals] {
    const timespec now = {0, 0};
    return sigtimedwait(&signals, nullptr, &now) > 0;
  });
  if (absl::IsCancelled(started)) return absl::OkStatus();
  if (!started.ok()) return started;
  if (absl::Status s = NotifyServiceManager("READY=1"); !s.ok())
    Logger("coordinator").warn("{}", std::string(s.message()));
  const timespec tick = {0, 100'000'000};
  std::string deposed_by;
  while (sigtimedwait(&signals, nullptr, &tick) < 0 && deposed_by.empty()) {
    coordinator.Tick();
    deposed_by = coordinator.deposed_by();
  }
  // A second signal ends the process the ordinary way.
  signal(SIGINT, SIG_DFL);
  signal(SIGTERM, SIG_DFL);
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  (void)NotifyServiceManager("STOPPING=1");
  coordinator.Shutdown();
  if (deposed_by.empty()) return absl::OkStatus();
  return absl::UnavailableError(deposed_by + " leads: start this one again, as its spare");
}

}  // namespace tessera::coordinator
