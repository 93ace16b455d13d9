#include "coordinator/deployment/cluster_service.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "coordinator/deployment/cluster_profile.h"
#include "coordinator/deployment/plan_waits.h"
#include "coordinator/deployment/worker_figures.h"
#include "coordinator/flow/token_rates.h"
#include "proto/coordinator.grpc.pb.h"
#include "proto/heartbeat_notice.h"
#include "proto/leader_term.h"
#include "proto/protocol.h"
#include "proto/status_wire.h"
#include "proto/tcp_probe.h"
#include "third_party/spdlog/log.h"
#include "tls/cluster_member.h"
#include "tls/cluster_tls.h"
#include "tls/grpc_credentials.h"

namespace tessera::coordinator {
namespace {

constexpr int kMaxCheckedAddresses = 8;
constexpr double kDialBackSeconds = 2;

std::string Metadata(const grpc::CallbackServerContext& context, std::string_view key) {
  const auto& all = context.client_metadata();
  auto it = all.find(grpc::string_ref(key.data(), key.size()));
  return it == all.end() ? "" : std::string(it->second.data(), it->second.size());
}

grpc::ServerUnaryReactor* Finish(grpc::CallbackServerContext* context, const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpc(status));
  return reactor;
}

// Runs one thing at a time, on a thread of its own.
class OneAtATime {
 public:
  ~OneAtATime() {
    if (thread_.joinable()) thread_.join();
  }

  // What `work` returns runs when the next one may start. False: the one before still runs.
  bool Start(std::function<std::function<void()>()> work) {
    std::lock_guard lock(mutex_);
    if (running_) return false;
    if (thread_.joinable()) thread_.join();  // it has ended
    running_ = true;
    thread_ = std::thread([this, work = std::move(work)] {
      const std::function<void()> finish = work();
      {
        std::lock_guard ended(mutex_);
        running_ = false;
      }
      finish();
    });
    return true;
  }

 private:
  std::mutex mutex_;  // guards running_
  bool running_ = false;
  std::thread thread_;
};

// One line of plain characters, as metadata takes them.
std::string Printable(std::string text) {
  constexpr size_t kMaxBytes = 2000;
  text.resize(std::min(text.size(), kMaxBytes));
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c > 0x7E; }, ' ');
  return text;
}

// Workers that may not join: logged here too, each reason once a minute.
class Refusals {
 public:
  void Say(const v1::RegisterRequest& worker, const absl::Status& why, double now_seconds) {
    constexpr double kAgainSeconds = 60;
    constexpr size_t kMaxLines = 1000;
    const std::string line =
        absl::StrCat("worker ", Printable(worker.name()), " at ", Printable(worker.address()),
                     " is refused: ", std::string(why.message()));
    {
      std::lock_guard lock(mutex_);
      std::erase_if(said_,
                    [&](const auto& entry) { return entry.second + kAgainSeconds <= now_seconds; });
      if (said_.size() >= kMaxLines || !said_.emplace(line, now_seconds).second) return;
    }
    Logger("coordinator").warn("{}", line);
  }

 private:
  std::mutex mutex_;
  std::map<std::string, double> said_;  // when
};

// One ProfileCluster call; deletes itself when gRPC is done with it.
class ProfileCall final : public grpc::ServerUnaryReactor {
 public:
  ProfileCall(std::string cluster_token, WorkerTls tls)
      : profile_(std::make_shared<ClusterProfile>(std::move(cluster_token), std::move(tls))) {}
  void OnCancel() override { profile_->Cancel(); }
  void OnDone() override { delete this; }
  // Outlives the call where a thread still holds it.
  std::shared_ptr<ClusterProfile> profile() const { return profile_; }

 private:
  const std::shared_ptr<ClusterProfile> profile_;
};

class ClusterServiceImpl final : public ClusterService, public v1::Coordinator::CallbackService {
 public:
  ClusterServiceImpl(ClusterServiceOptions options, WorkerPool& pool, const Deployment& deployment)
      : options_(std::move(options)), pool_(pool), deployment_(deployment) {}

  grpc::Service* service() override { return this; }

  void SampleRates() override {
    std::lock_guard lock(mutex_);
    rates_.Sample(Activity(), options_.now_seconds());
  }

  v1::GetClusterReply Describe() override {
    v1::GetClusterReply reply;
    auto [plan, epoch] = deployment_.plan();
    const double now = options_.now_seconds();
    reply.set_plan_epoch(epoch);
    reply.set_no_plan(deployment_.why_no_plan());
    reply.set_applying(deployment_.applying());
    DescribeModels(reply);
    const std::map<std::string, WorkerRecord> workers = pool_.Snapshot();
    for (const auto& [name, record] : workers) {
      v1::WorkerStatus& worker = *reply.add_workers();
      worker.set_name(name);
      worker.set_address(record.registration.address());
      worker.set_incarnation(record.registration.incarnation());
      worker.set_state(record.state);
      worker.set_detail(record.load.draining() ? "draining: takes no new requests" : record.detail);
      *worker.mutable_device() = record.registration.device();
      worker.set_replica(record.replica);
      *worker.mutable_load() = record.load;
      worker.set_seconds_since_heartbeat(now - record.last_heartbeat_seconds);
      *worker.mutable_ready() = record.ready;
    }
    PlaceWorkers(plan, reply);
    ShowFigures(workers, plan, &reply);
    DescribeReplicas(workers, reply);
    DescribeHandOvers(reply);
    DescribeStragglers(reply);
    *reply.mutable_plan() = std::move(plan);
    int64_t running = 0, waiting = 0;
    for (const v1::WorkerStatus& worker : reply.workers()) {
      // The sequences of a replica are its leader's.
      if (worker.stage() != 0 || worker.rank() != 0) continue;
      running += worker.load().running();
      waiting += worker.load().waiting();
    }
    reply.set_sequences_running(running);
    reply.set_sequences_waiting(waiting);
    return reply;
  }

  grpc::ServerUnaryReactor* Register(grpc::CallbackServerContext* context,
                                     const v1::RegisterRequest* request,
                                     v1::RegisterReply* reply) override {
    absl::Status taken = CheckToken(*context);
    if (taken.ok()) taken = CheckMember(*context, request->name(), request->cluster_tls());
    if (taken.ok()) {
      HearTerm(*context, request->name());
      if (absl::Status s = TakesWorkers(*context); !s.ok()) return Finish(context, s);
      const auto registered = pool_.Register(*request, options_.now_seconds());
      if (registered.ok()) *reply = *registered;
      if (absl::IsAlreadyExists(registered.status()))
        return Replace(context, *request, reply, registered.status());
      taken = registered.status();
    }
    if (!taken.ok()) refusals_.Say(*request, taken, options_.now_seconds());
    return Finish(context, taken);
  }

  grpc::ServerUnaryReactor* Heartbeat(grpc::CallbackServerContext* context,
                                      const v1::HeartbeatRequest* request,
                                      v1::HeartbeatReply*) override {
    if (absl::Status s = CheckToken(*context); !s.ok()) return Finish(context, s);
    HearTerm(*context, request->name());
    if (absl::Status s = TakesWorkers(*context); !s.ok()) return Finish(context, s);
    const absl::Status heard = pool_.Heartbeat(*request, options_.now_seconds());
    if (const std::string failure = pool_.FailureOf(request->name());
        heard.ok() && !failure.empty())
      context->AddTrailingMetadata(kNoticeKey, Printable(failure));
    return Finish(context, heard);
  }

  grpc::ServerUnaryReactor* GetCluster(grpc::CallbackServerContext* context,
                                       const v1::GetClusterRequest*,
                                       v1::GetClusterReply* reply) override {
    absl::Status allowed = CheckAdmin(*context);
    if (allowed.ok()) *reply = Describe();
    return Finish(context, allowed);
  }

  grpc::ServerUnaryReactor* ProfileCluster(grpc::CallbackServerContext* context,
                                           const v1::ProfileClusterRequest* request,
                                           v1::ProfileClusterReply* reply) override {
    absl::Status allowed = CheckAdmin(*context);
    const bool while_serving = request->while_serving();
    if (allowed.ok()) allowed = MayMeasure(while_serving);
    if (!allowed.ok()) return Finish(context, allowed);
    auto* call = new ProfileCall(options_.cluster_token, options_.worker_tls);
    const bool started =
        profile_.Start([this, call, profile = call->profile(), while_serving, reply] {
          absl::StatusOr<v1::ProfileClusterReply> measured =
              profile->Measure(pool_.Snapshot(), [&] { return MayMeasure(while_serving); });
          if (measured.ok()) *reply = *std::move(measured);
          return [call, status = measured.status()] { call->Finish(ToGrpc(status)); };
        });
    if (!started) {
      call->Finish(ToGrpc(
          absl::ResourceExhaustedError("the cluster is being measured already: wait for its end")));
    }
    return call;
  }

  grpc::ServerUnaryReactor* CheckWorker(grpc::CallbackServerContext* context,
                                        const v1::CheckWorkerRequest* request,
                                        v1::CheckWorkerReply* reply) override {
    absl::Status allowed = CheckToken(*context);
    if (allowed.ok()) {
      allowed = CheckMember(*context, request->name(), !Metadata(*context, kClusterTlsKey).empty());
    }
    if (allowed.ok() && request->addresses_size() > kMaxCheckedAddresses) {
      allowed = absl::InvalidArgumentError(
          absl::StrCat("at most ", kMaxCheckedAddresses, " addresses are checked at once"));
    }
    if (!allowed.ok()) return Finish(context, allowed);
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    const bool started = check_.Start([this, reactor, request, reply] {
      *reply = Check(*request);
      return [reactor] { reactor->Finish(grpc::Status::OK); };
    });
    if (!started) {
      reactor->Finish(ToGrpc(
          absl::ResourceExhaustedError("another worker is being checked: ask again in a second")));
    }
    return reactor;
  }

 private:
  // Which leader a worker obeys is heard where it proves its name.
  void HearTerm(const grpc::CallbackServerContext& context, const std::string& worker) const {
    const uint64_t obeyed = LeaderTermIn(context.client_metadata());
    if (options_.hear_term && options_.leader_term && options_.leader_term() < obeyed &&
        CheckMember(context, worker, false).ok())
      options_.hear_term(obeyed);
  }

  absl::Status TakesWorkers(const grpc::CallbackServerContext& context) const {
    const uint64_t obeyed = LeaderTermIn(context.client_metadata());
    if (options_.leader_term && options_.leader_term() < obeyed) {
      return absl::UnavailableError(
          "this coordinator has led before, the worker obeys a later one: ask the next");
    }
    return options_.takes_workers ? options_.takes_workers() : absl::OkStatus();
  }

  // A worker that was started again listens elsewhere. It takes the old one's place at once where
  // nothing listens at the old one's address any more; else `refused` holds until that is lost.
  grpc::ServerUnaryReactor* Replace(grpc::CallbackServerContext* context,
                                    const v1::RegisterRequest& request, v1::RegisterReply* reply,
                                    const absl::Status& refused) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    const bool started = replace_.Start([this, reactor, &request, reply, refused] {
      absl::StatusOr<v1::RegisterReply> registered = refused;
      const std::map<std::string, WorkerRecord> workers = pool_.Snapshot();
      const auto old = workers.find(request.name());
      if (old != workers.end()) {
        const std::string& address = old->second.registration.address();
        if (absl::IsNotFound(Reach(address, kDialBackSeconds))) {
          pool_.SetState(request.name(), old->second.registration.incarnation(),
                         v1::WORKER_STATE_LOST,
                         absl::StrCat("its process is gone: nothing listens at ", address));
          registered = pool_.Register(request, options_.now_seconds());
        }
      }
      if (registered.ok()) *reply = *registered;
      if (!registered.ok()) refusals_.Say(request, registered.status(), options_.now_seconds());
      return [reactor, status = registered.status()] { reactor->Finish(ToGrpc(status)); };
    });
    if (!started) reactor->Finish(ToGrpc(refused));
    return reactor;
  }

  v1::CheckWorkerReply Check(const v1::CheckWorkerRequest& request) const {
    v1::CheckWorkerReply reply;
    reply.set_build_problem(
        std::string(CheckVersions(absl::StrCat("worker ", request.name()), request.build_version(),
                                  request.protocol_version(), options_.build_version)
                        .message()));
    reply.set_name_problem(NameProblem(request.name()));
    const ClusterModel& model = options_.models.front();
    reply.set_model(model.name);
    reply.set_model_folder(model.folder);
    reply.set_model_fingerprint(model.fingerprint);
    reply.set_unix_seconds(absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()));
    for (const std::string& address : request.addresses())
      reply.add_address_problems(std::string(Reach(address, kDialBackSeconds).message()));
    return reply;
  }

  std::string NameProblem(const std::string& name) const {
    const std::map<std::string, WorkerRecord> workers = pool_.Snapshot();
    const auto taken = workers.find(name);
    if (taken != workers.end() && IsAlive(taken->second)) {
      return absl::StrCat("a worker named ", name, " is alive at ",
                          taken->second.registration.address(),
                          ": give this worker another --name");
    }
    if (!deployment_.names_devices()) return "";
    const std::set<std::string> planned = DevicesOf(deployment_.plans());
    if (planned.count(name) > 0) return "";
    std::vector<std::string> open;  // for a worker
    for (const std::string& device : planned) {
      const auto worker = workers.find(device);
      if (worker == workers.end() || worker->second.state == v1::WORKER_STATE_LOST)
        open.push_back(device);
    }
    if (open.empty()) {
      return absl::StrCat("the plan in force has no device ", name,
                          ", and live workers for all that it has: this one would register, and "
                          "wait idle until `tessera plan apply` brings a plan that has it");
    }
    return absl::StrCat(
        "the plan in force has no device ", name, "; it lacks a worker for ",
        absl::StrJoin(open, ", "),
        ": take one of these as the worker's --name, or apply a plan with this one");
  }

  // As Register has it: one whose process has ended makes room for the next at once.
  static bool IsAlive(const WorkerRecord& worker) {
    return worker.state != v1::WORKER_STATE_LOST &&
           !absl::IsNotFound(Reach(worker.registration.address(), kDialBackSeconds));
  }

  absl::Status MayMeasure(bool while_serving) const {
    int64_t requests = 0;
    for (const ClusterModel& model : options_.models) requests += model.flow->requests_in_flight();
    if (while_serving || requests == 0) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(
        requests, requests == 1 ? " request is" : " requests are",
        " in flight, which a measurement would slow down: wait for a pause, or measure all the "
        "same (tessera profile --while-serving)"));
  }

  absl::Status CheckToken(const grpc::CallbackServerContext& context) const {
    if (options_.cluster_token.empty()) return absl::OkStatus();
    if (SecretsEqual(Metadata(context, kClusterTokenKey), options_.cluster_token))
      return absl::OkStatus();
    return absl::UnauthenticatedError(
        absl::StrCat("the cluster token is missing or wrong: ", options_.token_advice()));
  }

  // What the caller has proved in its handshake decides; `claims`: it says that it has
  // --cluster-tls, which tells why there is no proof.
  absl::Status CheckMember(const grpc::CallbackServerContext& context, const std::string& worker,
                           bool claims) const {
    if (!options_.cluster_certificates) {
      if (!claims) return absl::OkStatus();
      return absl::FailedPreconditionError(
          absl::StrCat("worker ", Printable(worker),
                       " has --cluster-tls and the coordinator has not: give it to both, or to "
                       "neither"));
    }
    return CheckClusterMember(ProvenChain(*context.auth_context()),
                              *options_.cluster_certificates(), Printable(worker));
  }

  absl::Status CheckAdmin(const grpc::CallbackServerContext& context) const {
    return options_.admin.Check(Metadata(context, "authorization"));
  }

  static void PlaceWorkers(const v1::DeploymentPlan& plan, v1::GetClusterReply& reply) {
    std::map<std::string, std::pair<int, int>> places;  // stage and rank by device
    for (const v1::Replica& replica : plan.replicas()) {
      for (int stage = 0; stage < replica.stages_size(); ++stage) {
        for (int rank = 0; rank < replica.stages(stage).workers_size(); ++rank)
          places[replica.stages(stage).workers(rank).device()] = {stage, rank};
      }
    }
    for (v1::WorkerStatus& worker : *reply.mutable_workers()) {
      const auto place = places.find(worker.name());
      if (place == places.end()) continue;
      worker.set_stage(place->second.first);
      worker.set_rank(place->second.second);
    }
  }

  std::vector<ReplicaActivity> Activity() const {
    std::vector<ReplicaActivity> all;
    for (const ClusterModel& model : options_.models) {
      std::vector<ReplicaActivity> own = model.flow->activity();
      std::move(own.begin(), own.end(), std::back_inserter(all));
    }
    return all;
  }

  void DescribeModels(v1::GetClusterReply& reply) const {
    int64_t requests = 0;
    for (const ClusterModel& model : options_.models) {
      v1::ModelStatus status;
      status.set_name(model.name);
      status.set_ready(model.flow->ready_replicas() > 0);
      status.set_requests_in_flight(model.flow->requests_in_flight());
      status.set_speculation(model.speculation);
      requests += status.requests_in_flight();
      reply.set_ready(reply.ready() || status.ready());
      if (options_.models.size() > 1) *reply.add_models() = std::move(status);
    }
    reply.set_model(options_.models.front().name);
    reply.set_speculation(options_.models.front().speculation);
    reply.set_requests_in_flight(requests);
  }

  void DescribeReplicas(const std::map<std::string, WorkerRecord>& workers,
                        v1::GetClusterReply& reply) {
    std::map<std::string, bool> ready;
    for (const ReplicaActivity& activity : Activity()) ready[activity.replica] = activity.ready;
    const std::vector<v1::DeploymentPlan> plans = deployment_.plans().plans;
    for (size_t i = 0; i < plans.size(); ++i) {
      for (const v1::Replica& planned : plans[i].replicas()) {
        v1::ReplicaStatus& replica = *reply.add_replicas();
        replica.set_model(options_.models[i].name);
        replica.set_ready(ready[planned.name()]);
        DescribeReplica(planned, workers, replica);
      }
    }
  }

  void DescribeReplica(const v1::Replica& planned,
                       const std::map<std::string, WorkerRecord>& workers,
                       v1::ReplicaStatus& replica) {
    replica.set_name(planned.name());
    replica.set_role(planned.role());
    if (!replica.ready()) replica.set_detail(WhyNotServing(planned, workers));
    {
      std::lock_guard lock(mutex_);
      const TokenRate rate = rates_.Of(planned.name());
      replica.set_prompt_tokens_per_second(rate.prompt_tokens_per_second);
      replica.set_generation_tokens_per_second(rate.generation_tokens_per_second);
    }
    replica.set_planned_generation_tokens_per_second(
        planned.prediction().output_tokens_per_second());
    for (const v1::PlannedWorker* worker : WorkersOf(planned))
      replica.add_workers(worker->device());
  }

  void DescribeHandOvers(v1::GetClusterReply& reply) const {
    for (const ClusterModel& model : options_.models) {
      for (const HandOverRecord& record : model.flow->hand_overs()) {
        v1::HandOverStatus& status = *reply.add_hand_overs();
        status.set_prefill_replica(record.prefill);
        status.set_decode_replica(record.decode);
        status.set_prompts(record.prompts);
        status.set_bytes(record.bytes);
        status.set_seconds(record.seconds);
        status.set_transport(record.transport);
        status.set_failures(record.failures);
        status.set_back_off_seconds(record.back_off_seconds);
      }
    }
  }

  // A replica that is slow and serves says so, and so do its workers that are.
  void DescribeStragglers(v1::GetClusterReply& reply) const {
    if (!options_.stragglers) return;
    for (const Straggler& straggler : options_.stragglers()) {
      const std::string text = coordinator::Describe(straggler);
      for (v1::ReplicaStatus& replica : *reply.mutable_replicas()) {
        if (replica.name() == straggler.replica && replica.ready()) replica.set_detail(text);
      }
      for (v1::WorkerStatus& worker : *reply.mutable_workers()) {
        if (std::ranges::count(straggler.workers, worker.name()) > 0 &&
            worker.state() == v1::WORKER_STATE_READY) {
          worker.set_detail(text);
        }
      }
    }
  }

  const ClusterServiceOptions options_;
  WorkerPool& pool_;
  const Deployment& deployment_;
  std::mutex mutex_;  // guards rates_
  TokenRates rates_;
  Refusals refusals_;
  OneAtATime profile_, check_, replace_;
};

}  // namespace

std::unique_ptr<ClusterService> MakeClusterService(ClusterServiceOptions options, WorkerPool& pool,
                                                   const Deployment& deployment) {
  return std::make_unique<ClusterServiceImpl>(std::move(options), pool, deployment);
}

}  // namespace tessera::coordinator
