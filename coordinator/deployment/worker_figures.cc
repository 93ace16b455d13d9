#include "coordinator/deployment/worker_figures.h"

#include <cstdint>
#include <optional>
#include <utility>

namespace tessera::coordinator {
namespace {

// "machine" of "machine/index".
std::string MachineOf(const std::string& device) { return device.substr(0, device.rfind('/')); }

class Figures {
 public:
  Figures(const std::map<std::string, WorkerRecord>& workers, const v1::DeploymentPlan& plan) {
    for (const auto& [name, record] : workers) names_[record.registration.incarnation()] = name;
    for (const v1::LinkLoad& load : plan.links())
      capacities_[{load.from(), load.to()}] = load.capacity_bytes_per_second();
    for (const v1::Replica& replica : plan.replicas()) {
      for (const v1::Stage& stage : replica.stages()) {
        for (const v1::PlannedWorker& worker : stage.workers())
          busy_shares_[worker.device()] = stage.busy_share();
      }
    }
  }

  void Show(const WorkerRecord& record, v1::WorkerStatus* worker) const {
    *worker->mutable_counters() = record.counters;
    if (const std::optional<double> share = record.busy.Share()) worker->set_busy_share(*share);
    const auto planned = busy_shares_.find(worker->name());
    if (planned != busy_shares_.end()) worker->set_planned_busy_share(planned->second);
    for (const v1::LinkCounters& counters : record.counters.links()) {
      if (counters.peer_incarnation() != 0) ShowLink(counters, worker);
    }
  }

 private:
  void ShowLink(const v1::LinkCounters& counters, v1::WorkerStatus* worker) const {
    v1::LinkStatus& link = *worker->add_links();
    link.set_kind(counters.kind());
    link.set_transport(counters.transport());
    link.set_bytes_sent(counters.bytes_sent());
    link.set_bytes_received(counters.bytes_received());
    if (counters.timed_seconds() > 0) {
      link.set_received_bytes_per_second(static_cast<double>(counters.timed_bytes()) /
                                         counters.timed_seconds());
    }
    const auto peer = names_.find(counters.peer_incarnation());
    if (peer == names_.end()) return;
    link.set_peer(peer->second);
    const auto capacity = capacities_.find({MachineOf(peer->second), MachineOf(worker->name())});
    if (capacity != capacities_.end()) link.set_planned_bytes_per_second(capacity->second);
  }

  std::map<uint64_t, std::string> names_;                             // by incarnation
  std::map<std::pair<std::string, std::string>, double> capacities_;  // from machine, to machine
  std::map<std::string, double> busy_shares_;                         // by device
};

}  // namespace

void ShowFigures(const std::map<std::string, WorkerRecord>& workers, const v1::DeploymentPlan& plan,
                 v1::GetClusterReply* reply) {
  const Figures figures(workers, plan);
  for (v1::WorkerStatus& worker : *reply->mutable_workers()) {
    const auto record = workers.find(worker.name());
    if (record != workers.end()) figures.Show(record->second, &worker);
  }
}

}  // namespace tessera::coordinator
