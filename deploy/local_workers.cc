#include "deploy/local_workers.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "deploy/plan_file.h"
#include "proto/cluster.pb.h"
#include "proto/document.h"
#include "scheduler/input/catalogue.h"
#include "scheduler/input/cluster_graph.h"

namespace tessera::deploy {
namespace {

absl::Status SeveralMachines(const std::string& flag, const std::string& file, size_t machines) {
  return absl::InvalidArgumentError(absl::StrCat(
      flag, " ", file, " describes ", machines,
      " machines, but tessera up starts workers on this machine only: start tessera-coordinator "
      "MODEL ",
      flag, " ", file,
      ", and on each machine tessera-worker --coordinator HOST:PORT --name MACHINE/INDEX, one for "
      "each of its devices"));
}

int64_t DescribedMemory(const v1::Cluster& cluster, const v1::DeviceGroup& group) {
  if (group.memory_bytes() > 0) return group.memory_bytes();
  for (const v1::DeviceKind& kind : cluster.kinds()) {
    if (kind.name() == group.kind()) return kind.memory_bytes();
  }
  return 0;
}

// The catalogue holds accelerators alone; of others only what the description says is known, and
// that drivers begin the names of their cards so.
bool IsGpu(const v1::DeviceCatalogue& catalogue, const v1::DeviceKind* described,
           const std::string& kind) {
  for (const char* maker : {"NVIDIA ", "Tesla ", "Quadro "}) {
    if (kind.starts_with(maker)) return true;
  }
  return scheduler::FindKind(catalogue, kind) != nullptr ||
         (described != nullptr && described->compute_capability() > 0);
}

// What the plan counts on, whichever of its figures says more.
int64_t PlannedMemory(const v1::PlannedWorker& worker) {
  return std::max(worker.available_bytes(),
                  worker.weight_bytes() + worker.kv_bytes() + worker.activation_bytes());
}

}  // namespace

absl::StatusOr<std::vector<LocalWorker>> WorkersOfCluster(const std::string& file) {
  v1::Cluster cluster;
  if (absl::Status s = ReadDocumentFile(file, &cluster); !s.ok()) return s;
  size_t machines = 0;
  for (const v1::Machine& machine : cluster.machines())
    machines += static_cast<size_t>(std::max(1, machine.available()));
  if (machines > 1) return SeveralMachines("--cluster", file, machines);
  std::vector<LocalWorker> workers;
  if (machines == 0) return workers;  // the coordinator says what is wrong with it
  const absl::StatusOr<v1::DeviceCatalogue> catalogue = scheduler::BuiltInDevices();
  if (!catalogue.ok()) return catalogue.status();
  const v1::Machine& machine = cluster.machines(0);
  int index = 0;
  for (const v1::DeviceGroup& group : machine.devices()) {
    const auto kind = scheduler::DescribedKind(cluster, *catalogue, group.kind());
    for (int i = 0; i < std::max(1, group.count()); ++i) {
      workers.push_back({.name = absl::StrCat(machine.name(), "/", index++),
                         .memory_bytes = DescribedMemory(cluster, group),
                         .kind = group.kind(),
                         .is_gpu = IsGpu(*catalogue, kind ? &*kind : nullptr, group.kind()),
                         .is_supported = !kind || scheduler::HasWorker(*kind)});
    }
  }
  return workers;
}

absl::StatusOr<std::vector<LocalWorker>> WorkersOfPlan(const std::string& file) {
  const absl::StatusOr<v1::DeploymentPlan> plan = ReadPlanFile(file);
  if (!plan.ok()) return plan.status();
  const absl::StatusOr<v1::DeviceCatalogue> catalogue = scheduler::BuiltInDevices();
  if (!catalogue.ok()) return catalogue.status();
  std::vector<LocalWorker> workers;
  std::set<std::string> machines;
  for (const v1::Replica& replica : plan->replicas()) {
    for (const v1::Stage& stage : replica.stages()) {
      for (const v1::PlannedWorker& worker : stage.workers()) {
        machines.insert(worker.device().substr(0, worker.device().rfind('/')));
        workers.push_back({.name = worker.device(),
                           .memory_bytes = PlannedMemory(worker),
                           .kind = worker.kind(),
                           .is_gpu = IsGpu(*catalogue, nullptr, worker.kind())});
      }
    }
  }
  if (machines.size() > 1) return SeveralMachines("--plan", file, machines.size());
  return workers;
}

}  // namespace tessera::deploy
