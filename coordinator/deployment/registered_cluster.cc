#include "coordinator/deployment/registered_cluster.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "scheduler/input/catalogue.h"
#include "scheduler/input/cluster_graph.h"
#include "scheduler/input/described_device.h"
#include "scheduler/input/runtime_reserve.h"
#include "scheduler/planner/planner.h"
#include "scheduler/planner/preference.h"

namespace tessera::coordinator {
namespace {

std::string DeviceName(const std::string& machine, int index) {
  return absl::StrCat(machine, "/", index);
}

bool IsLive(const std::map<std::string, WorkerRecord>& workers, const std::string& device) {
  const auto found = workers.find(device);
  return found != workers.end() && found->second.state != v1::WORKER_STATE_LOST;
}

// What the description itself gives a device of memory; 0: nothing. The catalogue's figure is of no
// card in particular, and limits none.
int64_t DescribedMemory(const v1::Cluster& cluster, const v1::DeviceGroup& group) {
  if (group.memory_bytes() > 0) return group.memory_bytes();
  const auto own = scheduler::DescribedKind(cluster, v1::DeviceCatalogue(), group.kind());
  return own.has_value() ? own->memory_bytes() : 0;
}

// Devices that get less than their workers registered, by the bytes that the description gives.
using Limited = std::map<int64_t, std::vector<std::string>>;

// A worker registers all that its host lets it take, and so does its neighbour: what people wrote
// for a device is its share.
void SetMemory(int64_t described, int64_t registered, const std::string& device,
               v1::DeviceGroup* group, Limited* limited) {
  if (registered <= 0) return;
  const bool limits = described > 0 && described < registered;
  group->set_memory_bytes(limits ? described : registered);
  if (limits) (*limited)[described].push_back(device);
}

// Those of the slower device where both were measured with the same weights and rows; else none,
// as a product's rate is one of all devices of a group or of none.
void KeepCommonProducts(const v1::MeasuredProfile& one, v1::MeasuredProfile* group) {
  const auto same = [](const v1::ProductRate& a, const v1::ProductRate& b) {
    return a.weights() == b.weights() && a.rows() == b.rows();
  };
  auto* products = group->mutable_products();
  if (!std::equal(products->begin(), products->end(), one.products().begin(), one.products().end(),
                  same)) {
    return products->Clear();
  }
  for (int i = 0; i < products->size(); ++i) {
    v1::ProductRate& product = (*products)[i];
    product.set_read_bytes_per_second(
        std::min(product.read_bytes_per_second(), one.products(i).read_bytes_per_second()));
  }
}

// Adds a device to `machine`, whose groups from `begun` on were one in the description: to the last
// of them where it has the same memory, as a stage may be split over the devices of a group. Each
// waits for the slowest of them.
void AddDevice(const v1::DeviceGroup& one, int begun, v1::Machine* machine) {
  const int last = machine->devices_size() - 1;
  if (last < begun || machine->devices(last).memory_bytes() != one.memory_bytes()) {
    *machine->add_devices() = one;
    return;
  }
  v1::DeviceGroup* group = machine->mutable_devices(last);
  group->set_count(group->count() + 1);
  const double rate = one.profile().memory_read_bytes_per_second();
  const double codec = one.profile().kv_codec_bytes_per_second();
  v1::MeasuredProfile* profile = group->mutable_profile();
  const double known_codec = profile->kv_codec_bytes_per_second();
  if (codec > 0 && (known_codec == 0 || codec < known_codec))
    profile->set_kv_codec_bytes_per_second(codec);
  KeepCommonProducts(one.profile(), profile);
  const double known = profile->memory_read_bytes_per_second();
  if (known == 0 || (rate > 0 && rate < known)) profile->set_memory_read_bytes_per_second(rate);
  if (profile->ByteSizeLong() == 0) group->clear_profile();
}

// The description with only the devices that are there; those of one group with the same memory
// stay one. A plan of it names devices by their place among those; `names` says who they really
// are.
v1::Cluster OnlyRegistered(const v1::Cluster& described,
                           const std::map<std::string, WorkerRecord>& workers,
                           std::map<std::string, std::string>* names, Limited* limited) {
  v1::Cluster cluster = described;
  cluster.clear_machines();
  for (const v1::Machine& machine : described.machines()) {
    v1::Machine present = machine;
    present.clear_devices();
    int index = 0, there = 0;
    for (const v1::DeviceGroup& group : machine.devices()) {
      const int begun = present.devices_size();
      for (int i = 0; i < std::max(1, group.count()); ++i, ++index) {
        const std::string device = DeviceName(machine.name(), index);
        if (!IsLive(workers, device)) continue;
        const v1::DeviceInfo& info = workers.at(device).registration.device();
        (*names)[DeviceName(machine.name(), there++)] = device;
        v1::DeviceGroup one = group;
        one.set_count(1);
        SetMemory(DescribedMemory(described, group), info.memory_bytes(), device, &one, limited);
        if (info.memory_read_bytes_per_second() > 0) {
          one.mutable_profile()->set_memory_read_bytes_per_second(
              info.memory_read_bytes_per_second());
        }
        if (info.kv_codec_bytes_per_second() > 0)
          one.mutable_profile()->set_kv_codec_bytes_per_second(info.kv_codec_bytes_per_second());
        // Those of the description were measured with nothing beside, and over a longer time.
        // What no description may say is left out: nobody could correct it.
        v1::MeasuredProfile measured;
        *measured.mutable_products() = info.products();
        if (one.profile().products().empty() && !info.products().empty() &&
            scheduler::WhyNoProfile(measured).empty()) {
          *one.mutable_profile()->mutable_products() = info.products();
        }
        AddDevice(one, begun, &present);
      }
    }
    if (!present.devices().empty()) *cluster.add_machines() = present;
  }
  auto* links = cluster.mutable_links();
  const auto stands = [&](const std::string& place) {
    return std::any_of(
        cluster.machines().begin(), cluster.machines().end(),
        [&](const v1::Machine& m) { return m.name() == place || m.site() == place; });
  };
  for (int i = links->size() - 1; i >= 0; --i) {
    if (!stands(links->Get(i).from()) || !stands(links->Get(i).to())) links->DeleteSubrange(i, 1);
  }
  auto* sites = cluster.mutable_sites();
  for (int i = sites->size() - 1; i >= 0; --i) {
    if (!stands(sites->Get(i).name())) sites->DeleteSubrange(i, 1);
  }
  return cluster;
}

// Their workers take nothing beyond the memory that they registered; other devices' runtimes do.
bool NoneHasRuntime(const std::map<std::string, std::string>& names,
                    const std::map<std::string, WorkerRecord>& workers) {
  return std::all_of(names.begin(), names.end(), [&](const auto& name) {
    return scheduler::HasNoRuntime(workers.at(name.second).registration.device().kind());
  });
}

void Rename(const std::map<std::string, std::string>& names, v1::DeploymentPlan* plan) {
  for (v1::Replica& replica : *plan->mutable_replicas()) {
    for (v1::Stage& stage : *replica.mutable_stages()) {
      for (v1::PlannedWorker& worker : *stage.mutable_workers())
        worker.set_device(names.at(worker.device()));
    }
  }
}

// The planner names flags of `tessera plan`; this program's have other names.
absl::Status WithOwnFlags(const absl::Status& refusal) {
  return absl::Status(
      refusal.code(),
      absl::StrReplaceAll(std::string(refusal.message()),
                          {{"--dtype int8", "--quantization int8"},
                           {"--max-batched-tokens", "--max-num-batched-tokens"},
                           {"--utilisation", "tessera-worker --gpu-memory-utilization"},
                           {"--reserve", "tessera plan --reserve"},
                           {" (--rate)", ""}}));
}

}  // namespace

std::vector<std::string> MissingDevices(const v1::Cluster& cluster,
                                        const std::map<std::string, WorkerRecord>& workers) {
  std::vector<std::string> missing;
  const absl::StatusOr<v1::DeviceCatalogue> catalogue = scheduler::BuiltInDevices();
  for (const v1::Machine& machine : cluster.machines()) {
    int index = 0;
    for (const v1::DeviceGroup& group : machine.devices()) {
      const auto kind = catalogue.ok() ? scheduler::DescribedKind(cluster, *catalogue, group.kind())
                                       : std::nullopt;
      const bool may_come = !kind || scheduler::HasWorker(*kind);
      for (int i = 0; i < std::max(1, group.count()); ++i, ++index) {
        const std::string name = DeviceName(machine.name(), index);
        if (may_come && !IsLive(workers, name)) missing.push_back(name);
      }
    }
  }
  return missing;
}

scheduler::PlannerOptions UsualPlannerOptions() {
  scheduler::PlannerOptions options;
  options.preference = scheduler::UsualPreference();
  options.max_step_tokens = kDefaultBatchedTokens;
  return options;
}

absl::StatusOr<v1::DeploymentPlan> PlanForRegistered(
    const ClusterQuestion& start, const v1::Model& model,
    const std::map<std::string, WorkerRecord>& workers, const RegisteredPlanner& other) {
  std::map<std::string, std::string> names;
  scheduler::PlannerInput input = start.input;
  Limited limited;
  input.cluster = OnlyRegistered(start.input.cluster, workers, &names, &limited);
  if (input.cluster.machines().empty()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no worker of ", input.cluster_file,
                     " has registered; workers are named as the description names devices: "
                     "tessera-worker --name MACHINE/INDEX"));
  }
  absl::StatusOr<v1::DeviceCatalogue> catalogue = scheduler::BuiltInDevices();
  if (!catalogue.ok()) return catalogue.status();
  input.catalogue = *std::move(catalogue);
  input.model = model;
  scheduler::PlannerOptions options = start.options;
  if (NoneHasRuntime(names, workers)) options.runtime_reserve_bytes = 0;
  if (other) return other(input, options, names);
  absl::StatusOr<v1::DeploymentPlan> plan = scheduler::MakePlan(input, options);
  if (!plan.ok()) return WithOwnFlags(plan.status());
  Rename(names, &*plan);
  for (const auto& [bytes, devices] : limited) {
    v1::RegisteredMemory& memory = *plan->mutable_assumptions()->add_memory();
    memory.set_bytes(bytes);
    memory.mutable_devices()->Assign(devices.begin(), devices.end());
    memory.set_cluster_file(input.cluster_file);
  }
  for (const auto& [name, worker] : workers) {
    const bool used = std::any_of(names.begin(), names.end(),
                                  [&, &name = name](const auto& n) { return n.second == name; });
    if (used || worker.state == v1::WORKER_STATE_LOST) continue;
    v1::UnknownWorker& unknown = *plan->add_notes()->mutable_unknown_worker();
    unknown.set_worker(name);
    unknown.set_cluster_file(input.cluster_file);
  }
  return plan;
}

}  // namespace tessera::coordinator
