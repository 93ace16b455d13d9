#include "worker/emulation/rehearsed_plan.h"

#include <algorithm>
#include <map>
#include <utility>

#include "proto/emulated_kind.h"
#include "proto/file_text.h"
#include "proto/json_message.h"
#include "proto/layers/layer_sizes.h"
#include "proto/layers/layers.h"
#include "scheduler/input/catalogue.h"
#include "scheduler/input/cluster_graph.h"
#include "scheduler/plan_file.h"
#include "scheduler/simulator/plan_replicas.h"
#include "third_party/absl/str_cat.h"

namespace tessera::worker {
namespace {

constexpr const char* kOneDevice = "machine/0";

std::string FileIn(const std::string& folder, std::string_view name) {
  return StrCat(folder, "/", name);
}

}  // namespace

struct RehearsedPlan::Costs {
  scheduler::ClusterGraph graph;  // whose devices the tables borrow
  std::map<std::string, std::shared_ptr<const scheduler::CostTable>> tables;  // by replica
  std::map<std::string, double> kv_seconds;  // by replica that hands over, of a token
};

absl::StatusOr<std::shared_ptr<const RehearsedPlan>> RehearsedPlan::Read(
    const std::string& folder) {
  const std::string plan_file = FileIn(folder, kRehearsedPlanFile);
  const auto text = ReadFileText(plan_file, scheduler::kMaxPlanBytes);
  if (!text.ok()) return text.status();
  auto plan = scheduler::ParsePlan(*text, plan_file);
  if (!plan.ok()) return plan.status();
  v1::Cluster cluster;
  const std::string cluster_file = FileIn(folder, kRehearsedClusterFile);
  if (absl::Status s = ReadJsonMessage(cluster_file, &cluster); !s.ok()) return s;
  auto read = std::make_shared<RehearsedPlan>();
  read->plan_ = *std::move(plan);
  if (absl::Status s = read->Price(cluster, cluster_file); !s.ok()) return s;
  return std::shared_ptr<const RehearsedPlan>(std::move(read));
}

absl::StatusOr<std::shared_ptr<const RehearsedPlan>> RehearsedPlan::OfOneDevice(
    const std::string& kind, const v1::ConfigureRequest& request) {
  if (request.peers_size() > 1) {
    return absl::FailedPreconditionError(
        StrCat("replica ", request.replica(), " has ", request.peers_size(),
               " workers, whose links an emulated device knows from a plan alone: run the plan by "
               "`tessera rehearse`, or name its folder (--rehearsal-folder)"));
  }
  v1::Cluster cluster;
  v1::Machine& machine = *cluster.add_machines();
  machine.set_name("machine");
  machine.add_devices()->set_kind(kind);
  auto made = std::make_shared<RehearsedPlan>();
  *made->plan_.mutable_model() = request.model();
  made->plan_.set_weight_dtype(request.weight_dtype());
  made->plan_.set_kv_dtype(request.kv_dtype());
  v1::Replica& replica = *made->plan_.add_replicas();
  replica.set_name(request.replica());
  replica.set_role(v1::REPLICA_ROLE_BOTH);
  v1::PlannedWorker& worker = *replica.add_stages()->add_workers();
  worker.set_device(kOneDevice);
  *worker.mutable_share() = request.share();
  if (absl::Status s = made->Price(cluster, kind); !s.ok()) return s;
  return std::shared_ptr<const RehearsedPlan>(std::move(made));
}

absl::Status RehearsedPlan::Price(const v1::Cluster& cluster, const std::string& file) {
  const auto catalogue = scheduler::BuiltInDevices();
  if (!catalogue.ok()) return catalogue.status();
  auto graph = scheduler::MakeClusterGraph(cluster, *catalogue, file);
  if (!graph.ok()) return graph.status();
  auto costs = std::make_shared<Costs>();
  costs->graph = *std::move(graph);
  auto replicas = scheduler::ReplicasOfPlan(plan_, costs->graph, {});
  if (!replicas.ok()) return replicas.status();
  for (scheduler::ReplicaSetup& setup : replicas->replicas)
    costs->tables[setup.name] = std::move(setup.cost);
  for (const scheduler::PairShare& pair : replicas->shares) {
    if (pair.prefill == pair.decode) continue;
    double& seconds = costs->kv_seconds[plan_.replicas(pair.prefill).name()];
    seconds = std::max(seconds, pair.kv_seconds_per_token);
  }
  costs_ = std::move(costs);
  return absl::OkStatus();
}

const v1::PlannedWorker* RehearsedPlan::FindWorker(const std::string& device) const {
  for (const v1::Replica& replica : plan_.replicas()) {
    for (const v1::Stage& stage : replica.stages()) {
      for (const v1::PlannedWorker& worker : stage.workers()) {
        if (worker.device() == device) return &worker;
      }
    }
  }
  return nullptr;
}

double RehearsedPlan::KvSecondsOf(const std::string& device) const {
  double heads = 0;  // of all layers
  for (int64_t layer = 0; layer < LayerCount(plan_.model()); ++layer)
    heads += static_cast<double>(ShapeOf(plan_.model(), KindOf(plan_.model(), layer)).kv_heads);
  for (const v1::Replica& replica : plan_.replicas()) {
    const auto found = costs_->kv_seconds.find(replica.name());
    if (found == costs_->kv_seconds.end() || heads == 0) continue;
    for (const v1::Stage& stage : replica.stages()) {
      for (const v1::PlannedWorker& worker : stage.workers()) {
        if (worker.device() == device) return found->second / heads;
      }
    }
  }
  return 0;
}

absl::StatusOr<std::shared_ptr<const StepCost>> RehearsedPlan::CostOf(const std::string& replica,
                                                                      int stages) const {
  const auto found = costs_->tables.find(replica);
  if (found == costs_->tables.end() || found->second->stages() != stages) {
    return absl::NotFoundError(StrCat("the rehearsed plan has no replica ", replica, " of ", stages,
                                      " stages: emulated devices run that plan alone"));
  }
  return std::make_shared<const StepCost>(found->second, costs_);
}

absl::StatusOr<int64_t> CatalogueMemory(const std::string& kind) {
  const auto catalogue = scheduler::BuiltInDevices();
  if (!catalogue.ok()) return catalogue.status();
  if (const v1::DeviceKind* found = scheduler::FindKind(*catalogue, kind); found != nullptr)
    return found->memory_bytes();
  std::string names;
  for (const v1::DeviceKind& known : catalogue->kinds())
    names += StrCat(names.empty() ? "" : ", ", known.name());
  return absl::NotFoundError(
      StrCat("--device ", kEmulatedKind, kind, ": there is no such kind; there are ", names));
}

}  // namespace tessera::worker
