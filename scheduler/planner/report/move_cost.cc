#include "scheduler/planner/report/move_cost.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "google/protobuf/util/message_differencer.h"
#include "scheduler/planner/report/plan_diff.h"

namespace tessera::scheduler {
namespace {

std::string MachineOf(const std::string& device) { return device.substr(0, device.rfind('/')); }

double Read(double by_disk, const MoveOptions& options) {
  const double network = options.network_bytes_per_second;
  return network > 0 ? std::min(by_disk, network) : by_disk;
}

// By machine of the graph: the description names machines that a market has several of once.
class ReadRates {
 public:
  ReadRates(const v1::Cluster& cluster, const MoveOptions& options)
      : default_(Read(options.disk_bytes_per_second, options)) {
    for (const v1::Machine& machine : cluster.machines()) {
      const double own = machine.weight_read_bytes_per_second();
      if (own > 0) own_[machine.name()] = Read(own, options);
    }
  }

  double Of(const std::string& machine) const {
    auto found = own_.find(machine);
    if (found == own_.end()) found = own_.find(machine.substr(0, machine.rfind('.')));
    return found == own_.end() ? default_ : found->second;
  }

 private:
  double default_;
  std::map<std::string, double> own_;
};

// The same devices with the same shares, whatever the role.
bool SameStages(const v1::Replica& a, const v1::Replica& b) {
  if (a.stages_size() != b.stages_size()) return false;
  for (int j = 0; j < a.stages_size(); ++j) {
    const v1::Stage &one = a.stages(j), &other = b.stages(j);
    if (one.workers_size() != other.workers_size()) return false;
    for (int rank = 0; rank < one.workers_size(); ++rank) {
      const v1::PlannedWorker &x = one.workers(rank), &y = other.workers(rank);
      if (x.device() != y.device() ||
          !google::protobuf::util::MessageDifferencer::Equals(x.share(), y.share()))
        return false;
    }
  }
  return true;
}

bool SameWeights(const v1::DeploymentPlan& a, const v1::DeploymentPlan& b) {
  return a.weight_dtype() == b.weight_dtype() &&
         google::protobuf::util::MessageDifferencer::Equals(a.model(), b.model());
}

struct Served {
  double both = 0, prefill = 0, decode = 0;

  void Add(const v1::Replica& replica, double rate) {
    if (replica.role() == v1::REPLICA_ROLE_BOTH) both += rate;
    if (replica.role() == v1::REPLICA_ROLE_PREFILL) prefill += rate;
    if (replica.role() == v1::REPLICA_ROLE_DECODE) decode += rate;
  }
  double rate() const { return both + std::min(prefill, decode); }
};

class Mover {
 public:
  Mover(const v1::Cluster& cluster, const MoveOptions& options, const v1::DeploymentPlan* running,
        v1::DeploymentPlan* plan)
      : rates_(cluster, options), options_(options), running_(running), plan_(*plan) {}

  // Also sums the bytes that are read.
  std::vector<ReplicaMove> Moves(double* bytes) const {
    const std::map<std::string, double> read =
        BytesToLoad(options_.keeps_weights ? *running_ : v1::DeploymentPlan(), plan_);
    std::map<std::string, double> by_machine;  // of all workers that read
    std::vector<std::set<std::string>> machines(static_cast<size_t>(plan_.replicas_size()));
    std::vector<ReplicaMove> moves(machines.size());
    for (int i = 0; i < plan_.replicas_size(); ++i) {
      const auto [change, old] = ChangeOf(plan_.replicas(i));
      if (change == Change::kStays) {
        moves[static_cast<size_t>(i)].stays_as = old;
        continue;
      }
      if (change == Change::kFlips) continue;  // its workers keep their weights
      for (const v1::Stage& stage : plan_.replicas(i).stages()) {
        for (const v1::PlannedWorker& worker : stage.workers()) {
          const auto found = read.find(worker.device());
          if (found == read.end()) continue;
          const std::string machine = MachineOf(worker.device());
          machines[static_cast<size_t>(i)].insert(machine);
          by_machine[machine] += found->second;
          *bytes += found->second;
        }
      }
    }
    for (size_t i = 0; i < moves.size(); ++i) {
      for (const std::string& machine : machines[i]) {
        moves[i].ready_seconds =
            std::max(moves[i].ready_seconds, by_machine.at(machine) / rates_.Of(machine));
      }
    }
    return moves;
  }

  void Run() {
    v1::Move& move = *plan_.mutable_move();
    const std::map<std::string, double> all = BytesToLoad(v1::DeploymentPlan(), plan_);
    std::map<std::string, double> by_machine;
    for (const auto& [device, bytes] : all) by_machine[MachineOf(device)] += bytes;
    for (const auto& [machine, bytes] : by_machine) {
      const double seconds = bytes / rates_.Of(machine);
      if (seconds <= move.load_seconds()) continue;
      move.set_load_seconds(seconds);
      move.set_slowest_machine(machine);
    }
    for (v1::Replica& replica : *plan_.mutable_replicas())
      replica.set_load_seconds(Alone(replica, all));
    if (running_ != nullptr) FromRunning(&move);
  }

 private:
  double Alone(const v1::Replica& replica, const std::map<std::string, double>& bytes) const {
    std::map<std::string, double> by_machine;
    for (const v1::Stage& stage : replica.stages()) {
      for (const v1::PlannedWorker& worker : stage.workers()) {
        const auto found = bytes.find(worker.device());
        if (found != bytes.end()) by_machine[MachineOf(worker.device())] += found->second;
      }
    }
    double seconds = 0;
    for (const auto& [machine, sum] : by_machine)
      seconds = std::max(seconds, sum / rates_.Of(machine));
    return seconds;
  }

  enum class Change { kStays, kFlips, kRebuilt };
  // And which running replica stays or flips.
  std::pair<Change, int> ChangeOf(const v1::Replica& replica) const {
    if (!SameWeights(*running_, plan_)) return {Change::kRebuilt, -1};
    for (int i = 0; i < running_->replicas_size(); ++i) {
      const v1::Replica& old = running_->replicas(i);
      if (!SameStages(old, replica)) continue;
      return {old.role() == replica.role() ? Change::kStays : Change::kFlips, i};
    }
    return {Change::kRebuilt, -1};
  }

  void FromRunning(v1::Move* move) {
    double bytes = 0;
    const std::vector<ReplicaMove> moves = Moves(&bytes);
    std::vector<std::pair<double, const v1::Replica*>> ready;
    Served meanwhile;
    for (int i = 0; i < plan_.replicas_size(); ++i) {
      const v1::Replica& replica = plan_.replicas(i);
      const Change change = ChangeOf(replica).first;
      if (change == Change::kStays) {
        move->add_stay(replica.name());
        meanwhile.Add(replica, replica.prediction().requests_per_second());
        continue;
      }
      *(change == Change::kFlips ? move->add_flip() : move->add_rebuilt()) = replica.name();
      ready.push_back({moves[static_cast<size_t>(i)].ready_seconds, &replica});
    }
    Lose(std::move(ready), meanwhile, move);
    move->set_bytes(bytes);
    move->set_running_requests_per_second(running_->prediction().requests_per_second());
    move->set_gone(running_->replicas_size() - move->stay_size());
  }

  // Replicas come back one by one; until then the running plan's rate is not reached.
  void Lose(std::vector<std::pair<double, const v1::Replica*>> ready, Served up,
            v1::Move* move) const {
    std::stable_sort(ready.begin(), ready.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    const double before = running_->prediction().requests_per_second();
    move->set_meanwhile_requests_per_second(std::min(up.rate(), before));
    double now = 0, lost = 0;
    for (const auto& [seconds, replica] : ready) {
      lost += (seconds - now) * std::max(0.0, before - up.rate());
      now = seconds;
      up.Add(*replica, replica->prediction().requests_per_second());
    }
    move->set_seconds(now);
    move->set_lost_requests(lost);
  }

  const ReadRates rates_;
  const MoveOptions& options_;
  const v1::DeploymentPlan* const running_;  // may be null
  v1::DeploymentPlan& plan_;
};

}  // namespace

absl::Status CheckMoveOptions(const MoveOptions& options) {
  if (!(options.disk_bytes_per_second > 0) || !std::isfinite(options.disk_bytes_per_second)) {
    return absl::InvalidArgumentError(
        "--weight-read: must be above 0, for example \"2 GB/s\": the rate at which a machine reads "
        "from its disk");
  }
  if (!(options.network_bytes_per_second >= 0) ||
      !std::isfinite(options.network_bytes_per_second)) {
    return absl::InvalidArgumentError(
        "--weight-network: must not be negative, for example \"10 Gbit/s\"; leave it out where "
        "machines have the weights on their disks");
  }
  return absl::OkStatus();
}

std::vector<ReplicaMove> MovesOf(const v1::Cluster& cluster, const MoveOptions& options,
                                 const v1::DeploymentPlan& running,
                                 const v1::DeploymentPlan& plan) {
  v1::DeploymentPlan next = plan;
  double bytes = 0;
  return Mover(cluster, options, &running, &next).Moves(&bytes);
}

void AddMove(const v1::Cluster& cluster, const MoveOptions& options,
             const v1::DeploymentPlan* running, v1::DeploymentPlan* plan) {
  Mover(cluster, options, running, plan).Run();
}

v1::MoveTerms MoveTermsOf(const MoveOptions& options) {
  v1::MoveTerms terms;
  terms.set_disk_bytes_per_second(options.disk_bytes_per_second);
  terms.set_disk_given(options.disk_bytes_per_second != MoveOptions().disk_bytes_per_second);
  terms.set_network_bytes_per_second(options.network_bytes_per_second);
  terms.set_keeps_weights(options.keeps_weights);
  return terms;
}

}  // namespace tessera::scheduler
