#include "coordinator/deployment/plan_set.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "scheduler/plan_check/plan_check.h"

namespace tessera::coordinator {
namespace {

std::string NamesOf(std::span<const v1::Model> models) {
  return absl::StrJoin(models, ", ", [](std::string* out, const v1::Model& model) {
    absl::StrAppend(out, model.name());
  });
}

// INVALID_ARGUMENT where the plan is for none of them, or may be for several.
absl::StatusOr<size_t> ModelOf(const v1::DeploymentPlan& plan, std::span<const v1::Model> models) {
  if (models.size() == 1) return 0;
  std::vector<size_t> fitting;
  for (size_t i = 0; i < models.size(); ++i) {
    if (models[i].name() == plan.model().name()) return i;
    if (scheduler::CheckPlanIsFor(plan, models[i]).ok()) fitting.push_back(i);
  }
  if (fitting.size() == 1) return fitting.front();
  return absl::InvalidArgumentError(
      absl::StrCat("the plan was made for ", plan.model().name(), ", which ",
                   fitting.empty() ? "is not served" : "may be several of the served models",
                   "; served: ", NamesOf(models), ": write one of these names into its model"));
}

}  // namespace

bool PlanSet::has_replicas() const {
  return std::any_of(plans.begin(), plans.end(),
                     [](const v1::DeploymentPlan& plan) { return !plan.replicas().empty(); });
}

std::vector<const v1::PlannedWorker*> WorkersOf(const v1::Replica& replica) {
  std::vector<const v1::PlannedWorker*> workers;
  for (const v1::Stage& stage : replica.stages()) {
    for (const v1::PlannedWorker& worker : stage.workers()) workers.push_back(&worker);
  }
  return workers;
}

std::set<std::string> DevicesOf(const PlanSet& set) {
  std::set<std::string> devices;
  for (const v1::DeploymentPlan& plan : set.plans) {
    for (const v1::Replica& replica : plan.replicas()) {
      for (const v1::PlannedWorker* worker : WorkersOf(replica)) devices.insert(worker->device());
    }
  }
  return devices;
}

v1::DeploymentPlan Joined(const PlanSet& set) {
  v1::DeploymentPlan joined;
  for (const v1::DeploymentPlan& plan : set.plans) {
    if (&plan == &set.plans.front()) {
      joined = plan;
    } else {
      joined.mutable_replicas()->MergeFrom(plan.replicas());
      joined.mutable_routing()->MergeFrom(plan.routing());
    }
  }
  return joined;
}

std::vector<scheduler::PlanChange> ChangesOf(const PlanSet& from, const PlanSet& to) {
  std::vector<scheduler::PlanChange> changes;
  const v1::DeploymentPlan none;
  for (size_t i = 0; i < to.plans.size(); ++i)
    changes.push_back(
        scheduler::ChangeOf(i < from.plans.size() ? from.plans[i] : none, to.plans[i]));
  return changes;
}

absl::StatusOr<std::vector<std::optional<v1::DeploymentPlan>>> ByModel(
    std::vector<v1::DeploymentPlan> plans, std::span<const v1::Model> models) {
  std::vector<std::optional<v1::DeploymentPlan>> sorted(models.size());
  for (v1::DeploymentPlan& plan : plans) {
    const absl::StatusOr<size_t> model = ModelOf(plan, models);
    if (!model.ok()) return model.status();
    if (sorted[*model].has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("two plans are for the model ", models[*model].name(), ": give one"));
    }
    sorted[*model] = std::move(plan);
  }
  return sorted;
}

void NameReplicas(std::span<const v1::Model> models, PlanSet* set) {
  if (models.size() < 2) return;
  for (size_t i = 0; i < set->plans.size(); ++i) {
    const std::string prefix = absl::StrCat(models[i].name(), "/");
    const auto name = [&prefix](std::string* replica) {
      if (!absl::StartsWith(*replica, prefix)) replica->insert(0, prefix);
    };
    v1::DeploymentPlan& plan = set->plans[i];
    plan.mutable_model()->set_name(models[i].name());
    for (v1::Replica& replica : *plan.mutable_replicas()) name(replica.mutable_name());
    for (v1::RoutingShare& route : *plan.mutable_routing()) {
      name(route.mutable_prefill_replica());
      name(route.mutable_decode_replica());
    }
  }
}

absl::Status CheckDevicesApart(std::span<const v1::Model> models, const PlanSet& set) {
  std::map<std::string, size_t> model_of;  // by device
  for (size_t i = 0; i < set.plans.size(); ++i) {
    for (const std::string& device : DevicesOf({{set.plans[i]}, true})) {
      const auto [found, is_new] = model_of.emplace(device, i);
      if (is_new) continue;
      return absl::FailedPreconditionError(absl::StrCat(
          "device ", device, " is in the plans of ", models[found->second].name(), " and ",
          models[i].name(), ": give it to one of them, and apply both plans together"));
    }
  }
  return absl::OkStatus();
}

}  // namespace tessera::coordinator
