#include "coordinator/replanning/registered_roles.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tessera::coordinator {
namespace {

using Names = std::map<std::string, std::string>;

// FailedPrecondition names the device that has no other name.
absl::Status GiveNames(const Names& names, v1::DeploymentPlan* plan) {
  for (v1::Replica& replica : *plan->mutable_replicas()) {
    for (v1::Stage& stage : *replica.mutable_stages()) {
      for (v1::PlannedWorker& worker : *stage.mutable_workers()) {
        const auto found = names.find(worker.device());
        if (found == names.end()) {
          return absl::FailedPreconditionError(
              absl::StrCat("replica ", replica.name(), " needs ", worker.device(),
                           ", which is not there or not described"));
        }
        worker.set_device(found->second);
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<scheduler::RoleChoice> RolesForRegistered(
    const ClusterQuestion& start, const v1::Model& model,
    const std::map<std::string, WorkerRecord>& workers, const v1::DeploymentPlan& running) {
  std::optional<scheduler::RoleChoice> choice;
  const auto search = [&](const scheduler::PlannerInput& input,
                          const scheduler::PlannerOptions& options,
                          const Names& names) -> absl::StatusOr<v1::DeploymentPlan> {
    Names places;
    for (const auto& [place, name] : names) places[name] = place;
    v1::DeploymentPlan placed = running;
    if (absl::Status s = GiveNames(places, &placed); !s.ok()) return s;
    absl::StatusOr<scheduler::RoleChoice> best = scheduler::BestRoles(input, options, placed);
    if (!best.ok()) return best.status();
    choice = *std::move(best);
    if (absl::Status s = GiveNames(names, &choice->plan); !s.ok()) return s;
    return choice->plan;
  };
  const absl::StatusOr<v1::DeploymentPlan> plan = PlanForRegistered(start, model, workers, search);
  if (!plan.ok()) return plan.status();
  return *std::move(choice);
}

ClusterQuestion WithWorkload(ClusterQuestion start, v1::Workload observed) {
  const v1::WorkloadClass* largest = nullptr;
  for (const v1::WorkloadClass& one : start.input.workload.classes()) {
    if (one.has_objectives() && (largest == nullptr || one.share() > largest->share()))
      largest = &one;
  }
  if (start.input.workload.has_objectives()) {
    *observed.mutable_objectives() = start.input.workload.objectives();
  } else if (largest != nullptr) {
    *observed.mutable_objectives() = largest->objectives();
  }
  start.input.workload = std::move(observed);
  start.input.trace.clear();
  start.input.workload_file = "the workload of the last minutes";
  return start;
}

}  // namespace tessera::coordinator
