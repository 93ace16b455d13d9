#include <algorithm>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "scheduler/plan_check/parts.h"

namespace tessera::scheduler {
namespace {

constexpr double kRounding = 1 + 1e-6;

std::string MachineOf(const std::string& device) { return device.substr(0, device.rfind('/')); }

bool Uses(const v1::Replica& replica, const std::string& machine) {
  for (const v1::Stage& stage : replica.stages()) {
    for (const v1::PlannedWorker& worker : stage.workers()) {
      if (MachineOf(worker.device()) == machine) return true;
    }
  }
  return false;
}

// The rate of the replicas that do not use the machine, each fully used.
double LeftWithout(const v1::DeploymentPlan& plan, const std::string& machine) {
  double both = 0, prefill = 0, decode = 0;
  for (const v1::Replica& replica : plan.replicas()) {
    if (Uses(replica, machine)) continue;
    const double rate = replica.prediction().requests_per_second();
    if (replica.role() == v1::REPLICA_ROLE_BOTH) both += rate;
    if (replica.role() == v1::REPLICA_ROLE_PREFILL) prefill += rate;
    if (replica.role() == v1::REPLICA_ROLE_DECODE) decode += rate;
  }
  return both + std::min(prefill, decode);
}

}  // namespace

absl::Status CheckSurvival(const v1::DeploymentPlan& plan) {
  if (!plan.has_survival()) return absl::OkStatus();
  const double promised = plan.survival().requests_per_second();
  if (!(promised >= 0) || promised > plan.prediction().requests_per_second() * kRounding) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "survival: %.3f requests/s after the loss of a machine, of %.3f with all of them", promised,
        plan.prediction().requests_per_second()));
  }
  std::set<std::string> machines;
  for (const v1::Replica& replica : plan.replicas()) {
    for (const v1::Stage& stage : replica.stages()) {
      for (const v1::PlannedWorker& worker : stage.workers())
        machines.insert(MachineOf(worker.device()));
    }
  }
  if (!machines.contains(plan.survival().worst_machine())) {
    return absl::InvalidArgumentError(absl::StrCat("survival: no replica uses machine \"",
                                                   plan.survival().worst_machine(), "\""));
  }
  for (const std::string& machine : machines) {
    const double left = LeftWithout(plan, machine);
    if (promised <= left * kRounding) continue;
    return absl::InvalidArgumentError(absl::StrFormat(
        "survival: %.3f requests/s are promised when any machine is lost, but without %s the other "
        "replicas serve %.3f at most",
        promised, machine, left));
  }
  return absl::OkStatus();
}

}  // namespace tessera::scheduler
