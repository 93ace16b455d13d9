#include "coordinator/serving.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/impl/codegen/service_type.h>
#include <malloc.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "coordinator/activity_line.h"
#include "coordinator/api/front_door.h"
#include "coordinator/api/http_admission.h"
#include "coordinator/api/key_ring.h"
#include "coordinator/api/openai_api.h"
#include "coordinator/api/planning_http.h"
#include "coordinator/certificate_metrics.h"
#include "coordinator/client_metrics.h"
#include "coordinator/client_policies.h"
#include "coordinator/cluster_keys.h"
#include "coordinator/deployment/cluster_service.h"
#include "coordinator/deployment/deployment.h"
#include "coordinator/deployment/measured_rates.h"
#include "coordinator/deployment/plan_at_start.h"
#include "coordinator/deployment/plan_source.h"
#include "coordinator/deployment/plan_state.h"
#include "coordinator/deployment/planning_desk.h"
#include "coordinator/deployment/progress_watch.h"
#include "coordinator/deployment/straggler_watch.h"
#include "coordinator/deployment/worker_metrics.h"
#include "coordinator/deployment/worker_pool.h"
#include "coordinator/fairness/fair_service.h"
#include "coordinator/flow/plan_pairs.h"
#include "coordinator/flow/request_flow.h"
#include "coordinator/grpc_door/inference_service.h"
#include "coordinator/grpc_door/planning_service.h"
#include "coordinator/grpc_door/server_reflection.h"
#include "coordinator/http/http_server.h"
#include "coordinator/open_files.h"
#include "coordinator/port_certificates.h"
#include "coordinator/process_metrics.h"
#include "coordinator/served_model.h"
#include "coordinator/tracing/tracing.h"
#include "coordinator/web/page_routes.h"
#include "coordinator/workload_replanning.h"
#include "proto/build_version.h"
#include "proto/file_text.h"
#include "proto/protocol.h"
#include "proto/written_file.h"
#include "scheduler/plan_check/plan_check.h"
#include "scheduler/plan_file.h"
#include "scheduler/planner/report/plan_table.h"
#include "third_party/grpc/callback_queue.h"
#include "third_party/linux/host_name.h"
#include "third_party/linux/service_manager.h"
#include "third_party/spdlog/log.h"
#include "tls/certificates.h"
#include "tls/grpc_credentials.h"

namespace tessera::coordinator {
namespace {

// "[::1]:8001": an IPv6 address has brackets before a port.
std::string HostAndPort(const std::string& host, int port) {
  const bool ipv6 = host.find(':') != std::string::npos;
  return ipv6 ? absl::StrCat("[", host, "]:", port) : absl::StrCat(host, ":", port);
}

constexpr int kMaxMessageBytes = 32 << 20;  // as of an HTTP body
constexpr double kLastWordsSeconds = 2;     // for readers to take their errors at the end
constexpr char kInferenceService[] = "tessera.v1.Inference";
constexpr char kCoordinatorService[] = "tessera.v1.Coordinator";
constexpr char kPlanningService[] = "tessera.v1.Planning";

double MonotonicSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int64_t UnixSeconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

absl::StatusOr<std::optional<v1::DeploymentPlan>> ReadPlan(const std::string& path) {
  if (path.empty()) return std::nullopt;
  const absl::StatusOr<std::string> text = ReadFileText(path, scheduler::kMaxPlanBytes);
  if (!text.ok()) return text.status();
  return scheduler::ParsePlan(*text, path);
}

// Weights as a plan says, else as the flags do, else as they are stored.
std::string FingerprintOf(const v1::ConfigureRequest& configure, const v1::DeploymentPlan* plan) {
  v1::DataType type = configure.model().dtype();
  if (configure.weight_dtype() != v1::DATA_TYPE_UNSPECIFIED) type = configure.weight_dtype();
  if (plan != nullptr && plan->weight_dtype() != v1::DATA_TYPE_UNSPECIFIED)
    type = plan->weight_dtype();
  return SystemFingerprint(BuildVersion(), configure.model_fingerprint(), v1::DataType_Name(type));
}

absl::Status InFile(const std::string& path, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(path, ": ", std::string(status.message())));
}

// Everything that serves; members are destroyed in reverse order.
class Coordinator {
 public:
  absl::Status Start(const CoordinatorOptions& options) {
    const double begin = MonotonicSeconds();
    options_ = options;
    keys_of_clients_ = KeyRing(options.keys);
    watch_ = std::make_unique<ProgressWatch>(options.progress_timeout_seconds);
    RaiseOpenFileLimit();
    auto keys = ClusterKeys::Make(options);
    if (!keys.ok()) return keys.status();
    keys_ = *std::move(keys);
    if (absl::Status s = OpenDoors(); !s.ok()) return s;
    absl::StatusOr<LoadedModel> loaded = LoadModel(options, UnixSeconds());
    if (!loaded.ok()) return loaded.status();
    absl::StatusOr<std::optional<v1::DeploymentPlan>> plan = ReadPlan(options_.plan_file);
    if (!plan.ok()) return plan.status();
    served_ = loaded->served;
    speculation_ = loaded->speculation;
    fingerprint_ = [served = served_, configure = loaded->configure](const auto* in_force) {
      served->system_fingerprint->Set(FingerprintOf(configure, in_force));
    };
    fingerprint_(plan->has_value() ? &**plan : nullptr);
    metrics_ =
        std::make_unique<RequestMetrics>(*registry_, served_->name, served_->max_model_len_tokens);
    const double model_read = MonotonicSeconds();
    if (absl::Status s = StartFlow(*std::move(loaded), *std::move(plan)); !s.ok()) return s;
    if (absl::Status s = StartGrpc(); !s.ok()) return s;
    if (absl::Status s = StartHttp(); !s.ok()) return s;
    Logger("coordinator")
        .info(
            "model {}: context {} tokens, vocabulary {}; started in {:.2f} s (read model {:.2f}, "
            "listen {:.2f})",
            served_->name, served_->max_model_len_tokens, served_->tokenizer->vocabulary_size(),
            MonotonicSeconds() - begin, model_read - begin, MonotonicSeconds() - model_read);
    Logger("coordinator")
        .info("HTTP on {}://{}, gRPC on {}; waiting for workers",
              certificates_.http() == nullptr ? "http" : "https",
              HostAndPort(options.host, http_->port()), HostAndPort(options.host, grpc_port_));
    return WritePortFile();
  }

  // About ten times a second.
  void Tick() {
    callback_queue_.Wake();
    flow_->Tick();
    pool_->ExpireSilent(MonotonicSeconds());
    grpc_->GetHealthCheckService()->SetServingStatus(kInferenceService, Readiness().ok());
    if (++ticks_ % 3 == 0) WatchStragglers();
    if (ticks_ % 10 != 0) return;
    api_->Tick();
    cluster_->SampleRates();
    measured_.Sample(registry_->Collect(), MonotonicSeconds());
    WatchProgress();
    WatchPlan();
    if (ticks_ % 100 == 0) LogActivity();
  }

  void Shutdown() {
    draining_ = true;
    flow_->Drain();
    http_->Drain();
    Logger("coordinator")
        .info("stopping: finishing {} requests first, for at most {} s",
              flow_->requests_in_flight(), options_.shutdown_timeout_seconds);
    const double deadline = MonotonicSeconds() + options_.shutdown_timeout_seconds;
    while (flow_->requests_in_flight() > 0 && MonotonicSeconds() < deadline) {
      Tick();
      usleep(50'000);
    }
    flow_->AbortAll(
        absl::UnavailableError("the server was stopped before the answer was complete"));
    desk_->Stop();  // searches would go on while the doors are closed
    replanning_->Stop();
    deployment_->AbandonApply(absl::UnavailableError("the coordinator is shutting down"));
    // Last words go out: a connection closes by itself once its answer was sent.
    const double last_words = MonotonicSeconds() + kLastWordsSeconds;
    while (http_->connections() > 0 && MonotonicSeconds() < last_words) usleep(10'000);
    http_->Stop();
    deployment_->Stop();
    grpc_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(2));
    Logger("coordinator").info("stopped");
  }

 private:
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
    const int ready = flow_->ready_replicas();
    if (ready == 0) {
      const std::vector<std::string> waiting = WaitingReplicas();
      return absl::UnavailableError(absl::StrCat(
          "no replica is ready yet", waiting.empty() ? "" : ": ", absl::StrJoin(waiting, "; ")));
    }
    const std::vector<Stall> stalled = watch_->stalled();
    if (stalled.size() < static_cast<size_t>(ready)) return absl::OkStatus();
    return absl::UnavailableError(
        absl::StrCat("every replica is stalled: ", Describe(stalled.front())));
  }

  std::vector<std::string> StalledReplicas() const {
    std::vector<std::string> all;
    for (const Stall& stall : watch_->stalled()) all.push_back(Describe(stall));
    return all;
  }

  std::vector<std::string> WaitingReplicas() const {
    std::set<std::string> ready;
    for (const ReplicaActivity& activity : flow_->activity()) {
      if (activity.ready) ready.insert(activity.replica);
    }
    return WhatWaits(deployment_->plan().first, deployment_->why_no_plan(), ready,
                     pool_->Snapshot());
  }

  // Of a plan that somebody made: one device each has the KV that it has.
  void WarnOfShortKv(const v1::DeploymentPlan* plan) const {
    if (plan == nullptr) return;
    const std::string warning = scheduler::ShortKvWarning(*plan, served_->max_model_len_tokens);
    if (!warning.empty()) Logger("coordinator").warn("{}", warning);
  }

  // The plan's devices that are not there, said once per change.
  void WatchPlan() {
    std::string missing = DescribeMissing(deployment_->plan().first, pool_->Snapshot());
    if (missing == missing_devices_) return;
    missing_devices_ = std::move(missing);
    if (missing_devices_.empty()) {
      Logger("coordinator").info("all devices of the plan have live workers");
    } else {
      Logger("coordinator").warn("{}", missing_devices_);
    }
  }

  void WatchProgress() {
    const ProgressWatch::Changes changes = watch_->Update(
        JoinProgress(deployment_->plan().first, pool_->Snapshot(), flow_->activity()),
        MonotonicSeconds());
    for (const Stall& stall : changes.stalled) Logger("coordinator").error("{}", Describe(stall));
    for (const std::string& replica : changes.moving)
      Logger("coordinator").info("replica {} runs steps again", replica);
  }

  void WatchStragglers() {
    stragglers_.Update(deployment_->plan().first, pool_->Snapshot(), MonotonicSeconds());
    flow_->SetSlowdowns(stragglers_.factors());
  }

  absl::Status StartFlow(LoadedModel loaded, std::optional<v1::DeploymentPlan> plan) {
    RequestFlowOptions flow;
    flow.max_model_len_tokens = served_->max_model_len_tokens;
    flow.queue_timeout_seconds = options_.queue_timeout_seconds;
    flow.recovering = [this] { return deployment_ != nullptr && deployment_->recovering(); };
    flow.changing_plan = [this] { return deployment_ != nullptr && deployment_->changing_plan(); };
    flow.now_seconds = MonotonicSeconds;
    flow.first_submission_id = uint64_t{std::random_device()()} << 30;
    flow_ = std::make_shared<RequestFlow>(std::move(flow), served_->tokenizer, metrics_.get());
    FairServiceOptions fair;
    fair.policies = PoliciesOf(keys_of_clients_);
    fair.queue_places = [this] { return int64_t{options_.max_waiting} * flow_->ready_replicas(); };
    fair.now_seconds = MonotonicSeconds;
    fair.expected_seconds = [this](double prompt_tokens, double answer_tokens) {
      return flow_->ExpectedSeconds(prompt_tokens, answer_tokens);
    };
    fair_ = FairService::Make(std::move(fair), *flow_);
    WorkerPoolOptions pool;
    pool.build_version = std::string(BuildVersion());
    pool.cluster_tls = certificates_.has_cluster();
    pool_ = std::make_unique<WorkerPool>(std::move(pool));
    DeployedModel model;
    model.configure = std::move(loaded.configure);
    model.requests = flow_.get();
    model.on_plan = [this](const v1::DeploymentPlan* in_force) {
      // Where a plan that somebody made sends requests; null: by load alone.
      flow_->SetPairs(in_force == nullptr ? PlanPairs() : PlanPairs(*in_force));
      fingerprint_(in_force);
      WarnOfShortKv(in_force);
    };
    model.work_of = [this](const std::string& replica) { return flow_->WorkOf(replica); };
    absl::StatusOr<std::unique_ptr<PlanSource>> source = SourceOf(model.configure, std::move(plan));
    if (!source.ok()) return source.status();
    model_shape_ = model.configure.model();
    model_folder_ = model.configure.model_folder();
    model_fingerprint_ = model.configure.model_fingerprint();
    auto replanning = WorkloadReplanning::Make(options_, model.configure, *fair_);
    if (!replanning.ok()) return replanning.status();
    replanning_ = *std::move(replanning);
    DeploymentOptions deployment;
    deployment.models.push_back(std::move(model));
    deployment.source = *std::move(source);
    deployment.cluster_token = keys_->token();
    deployment.worker_tls = certificates_.ToWorkers();
    deployment.now_seconds = MonotonicSeconds;
    auto started = Deployment::Start(std::move(deployment), *pool_);
    if (!started.ok()) {
      return options_.plan_file.empty() ? started.status()
                                        : InFile(options_.plan_file, started.status());
    }
    deployment_ = *std::move(started);
    replanning_->Start(*pool_, *deployment_);
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<PlanSource>> SourceOf(const v1::ConfigureRequest& configure,
                                                       std::optional<v1::DeploymentPlan> plan) {
    if (plan.has_value()) return FixedPlans({*std::move(plan)});
    if (options_.cluster_file.empty()) return EachWorkerAlone({configure.model()});
    auto planner =
        PlannerAtStart(options_.cluster_file, options_.workload_file, options_.plan_wait_seconds,
                       options_.split, options_.prefer, configure, MonotonicSeconds);
    if (!planner.ok()) return planner.status();
    return PlannedForWorkers(*std::move(planner), options_.replan_after_seconds);
  }

  absl::Status StartGrpc() {
    auto tracing =
        Tracing::Start({options_.otlp_endpoint, served_->name, std::string(BuildVersion())});
    if (!tracing.ok()) return tracing.status();
    tracing_ = *std::move(tracing);
    ClusterServiceOptions cluster;
    cluster.cluster_token = keys_->token();
    cluster.worker_tls = certificates_.ToWorkers();
    cluster.token_advice = [this] { return keys_->token_advice(); };
    cluster.admin = keys_->admin();
    cluster.served_model = served_->name;
    cluster.speculation = speculation_;
    cluster.build_version = std::string(BuildVersion());
    cluster.model_folder = model_folder_;
    cluster.model_fingerprint = model_fingerprint_;
    cluster.now_seconds = MonotonicSeconds;
    cluster.stragglers = [this] { return stragglers_.stragglers(); };
    cluster_ = MakeClusterService(std::move(cluster), *pool_, *deployment_, *flow_);
    StartPlanning();
    InferenceServiceOptions inference;
    inference.through = tracing_->entry();
    inference.keys = keys_of_clients_;
    inference.refused = [this](absl::StatusCode code) { metrics_->OnRefused(code); };
    inference.now_unix_seconds = UnixSeconds;
    inference_ = MakeInferenceService(std::move(inference), served_, replanning_->door());

    grpc::EnableDefaultHealthCheckService(true);
    const bool describes_itself = IsLoopback(options_.host);
    if (describes_itself) grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    reflection_ =
        MakeServerReflection({kInferenceService, kCoordinatorService, kPlanningService,
                              "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"});
    grpc::ServerBuilder builder;
    builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
    builder.SetMaxSendMessageSize(kMaxMessageBytes);
    // Else two coordinators would share a port, and the connections, without a word.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    const std::string address = HostAndPort(options_.host, options_.grpc_port);
    std::shared_ptr<grpc::ServerCredentials> credentials = grpc::InsecureServerCredentials();
    if (CertificateWatch* shown = certificates_.grpc(); shown != nullptr) {
      auto tls = ServerTls(*shown);
      if (!tls.ok()) return tls.status();
      credentials = *std::move(tls);
    }
    builder.AddListeningPort(address, credentials, &grpc_port_);
    builder.RegisterService(cluster_->service());
    builder.RegisterService(inference_.get());
    builder.RegisterService(planning_.get());
    if (describes_itself) builder.RegisterService(reflection_.get());
    grpc_ = builder.BuildAndStart();
    if (grpc_ == nullptr || grpc_port_ == 0) {
      return absl::UnavailableError(absl::StrCat(
          "cannot listen on ", address, " for gRPC; choose another --host or --grpc-port"));
    }
    grpc_->GetHealthCheckService()->SetServingStatus(kInferenceService, false);
    for (const char* service : {kCoordinatorService, kPlanningService})
      grpc_->GetHealthCheckService()->SetServingStatus(service, true);
    return keys_->Publish(grpc_port_);
  }

  void StartPlanning() {
    PlanningDeskOptions desk;
    desk.admin = keys_->admin();
    desk.served_model = model_shape_;
    desk.now_seconds = MonotonicSeconds;
    desk.running = [this] { return RunningPlan(); };
    desk.apply = [this](v1::DeploymentPlan plan, PlanningDesk::Applied done) {
      deployment_->Apply({std::move(plan)}, std::move(done));
    };
    desk_ = std::make_unique<PlanningDesk>(std::move(desk));
    planning_ = MakePlanningService(*desk_);
    measured_.Sample(registry_->Collect(), MonotonicSeconds());  // what growth is counted from
  }

  v1::GetPlanReply RunningPlan() {
    v1::GetPlanReply reply;
    auto [plan, epoch] = deployment_->plan();
    reply.set_plan_epoch(epoch);
    reply.set_no_plan(deployment_->why_no_plan());
    if (plan.has_basis()) reply.set_text(scheduler::PlanTable(plan));
    reply.mutable_text()->append(replanning_->advice());
    *reply.mutable_plan() = std::move(plan);
    *reply.mutable_measured() = measured_.Recent();
    int64_t kv_tokens = 0;
    const std::map<std::string, WorkerRecord> workers = pool_->Snapshot();
    for (const v1::Replica& replica : reply.plan().replicas())
      kv_tokens += KvTokens(replica, workers);
    reply.mutable_measured()->set_kv_capacity_tokens(kv_tokens);
    return reply;
  }

  absl::Status StartHttp() {
    OpenAiApiOptions api;
    api.through = tracing_->entry();
    api.keys = keys_of_clients_;
    api.readiness = [this] { return Readiness(); };
    api.stalled = [this] { return StalledReplicas(); };
    api.version = std::string(BuildVersion());
    api.waiting = [this] { return WaitingReplicas(); };
    api.load = [this] { return flow_->requests_in_flight(); };
    api.limits = [this](const std::string& client) { return fair_->LimitHeaders(client); };
    api.refused = [this](absl::StatusCode code) { metrics_->OnRefused(code); };
    api.other_routes = PlanRoutes(
        *desk_, [this] { return cluster_->Describe(); },
        !options_.open_loopback || !options_.admin_key_file.empty());
    for (OtherRoute& route : PageRoutes(std::string(BuildVersion())))
      api.other_routes.push_back(std::move(route));
    api.metrics = [this] { return MetricsText(); };
    api.now_unix_seconds = UnixSeconds;
    api_ = OpenAiApi::Make(std::move(api), served_, replanning_->door());
    HttpServerOptions http;
    http.host = options_.host;
    http.port = options_.port;
    http.certificates = certificates_.http();
    http.io_threads = options_.io_threads;
    http.max_bodies_bytes = options_.max_body_memory_bytes;
    http.refused = [this](std::string_view path, int status) {
      if (!OpenAiApi::Generates(path)) return;
      metrics_->OnRefused(status == 503 ? absl::StatusCode::kUnavailable
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

  // A replica's series are there from its first plan on: by default a worker's registration, from
  // which on a worker's own are.
  std::string MetricsText() {
    flow_->CountSequences();
    const v1::DeploymentPlan plan = deployment_->plan().first;
    for (const v1::Replica& replica : plan.replicas()) metrics_->OnReplicaKnown(replica.name());
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
    add(ClientFamilies(fair_->uses()));
    add(CertificateFamilies(certificates_.http(), certificates_.cluster()));
    return prometheus::TextSerializer().Serialize(families);
  }

  absl::Status WritePortFile() {
    if (options_.port_file.empty()) return absl::OkStatus();
    // Renamed into place: whoever waits for it never reads half of it.
    const std::string temporary = options_.port_file + ".new";
    absl::Status written =
        WriteFileText(temporary, absl::StrCat("http=", http_->port(), " grpc=", grpc_port_, "\n"));
    if (written.ok() && rename(temporary.c_str(), options_.port_file.c_str()) != 0)
      written = absl::UnavailableError("its folder does not let it be renamed");
    return written.ok() ? written : InFile("--port-file", written);
  }

  void LogActivity() {
    const std::string line = ActivityLine(cluster_->Describe());
    if (!line.empty()) Logger("coordinator").info("{}", line);
  }

  CoordinatorOptions options_;
  std::unique_ptr<ClusterKeys> keys_;
  KeyRing keys_of_clients_;
  PortCertificates certificates_;
  const std::shared_ptr<prometheus::Registry> registry_ = std::make_shared<prometheus::Registry>();
  std::shared_ptr<const ServedModel> served_;
  std::function<void(const v1::DeploymentPlan* in_force)> fingerprint_;  // sets the model's
  std::unique_ptr<RequestMetrics> metrics_;
  std::unique_ptr<ProgressWatch> watch_;
  StragglerWatch stragglers_;
  std::shared_ptr<RequestFlow> flow_;
  std::unique_ptr<FairService> fair_;  // before it
  std::unique_ptr<WorkerPool> pool_;
  std::unique_ptr<Deployment> deployment_;
  std::unique_ptr<ClusterService> cluster_;
  std::unique_ptr<WorkloadReplanning> replanning_;  // before `fair_`
  MeasuredRates measured_;
  v1::Model model_shape_;
  std::string speculation_;
  std::string model_folder_, model_fingerprint_;  // as workers get them
  std::unique_ptr<PlanningDesk> desk_;
  std::unique_ptr<grpc::Service> planning_;
  std::unique_ptr<Tracing> tracing_;
  std::unique_ptr<grpc::Service> inference_;
  std::unique_ptr<grpc::Service> reflection_;
  std::unique_ptr<grpc::Server> grpc_;
  CallbackQueueWaker callback_queue_;  // so that no user's call waits for gRPC to wake up
  std::unique_ptr<OpenAiApi> api_;
  std::unique_ptr<HttpServer> http_;
  int grpc_port_ = 0;
  std::atomic<bool> draining_ = false;
  int64_t ticks_ = 0;
  std::string missing_devices_;  // as said last
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
  if (absl::Status s = coordinator.Start(options); !s.ok()) return s;
  if (absl::Status s = NotifyServiceManager("READY=1"); !s.ok())
    Logger("coordinator").warn("{}", std::string(s.message()));
  const timespec tick = {0, 100'000'000};
  while (sigtimedwait(&signals, nullptr, &tick) < 0) coordinator.Tick();
  // A second signal ends the process the ordinary way.
  signal(SIGINT, SIG_DFL);
  signal(SIGTERM, SIG_DFL);
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  (void)NotifyServiceManager("STOPPING=1");
  coordinator.Shutdown();
  return absl::OkStatus();
}

}  // namespace tessera::coordinator
