// The plans of all served models that are in force together. A device serves one model at a time.
//
// Thread rule: plain data and pure functions.
#pragma once

#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/model.pb.h"
#include "proto/plan.pb.h"
#include "scheduler/plan_change.h"

namespace tessera::coordinator {

struct PlanSet {
  // One for each served model, in the order of the coordinator's flags; names of replicas are
  // unique over all. Without any: no plan has been in force yet.
  std::vector<v1::DeploymentPlan> plans;
  // The devices were chosen, so that others have nothing to do; else every worker that registers is
  // a replica.
  bool names_devices = false;

  bool has_replicas() const;
};

// Stage by stage, rank by rank.
std::vector<const v1::PlannedWorker*> WorkersOf(const v1::Replica& replica);
std::set<std::string> DevicesOf(const PlanSet& set);

// One plan with the replicas and routes of all; its other fields are those of the first.
v1::DeploymentPlan Joined(const PlanSet& set);

// As scheduler::ChangeOf, model by model.
std::vector<scheduler::PlanChange> ChangesOf(const PlanSet& from, const PlanSet& to);

// The plans by model, which have their served names: each is for the model that its own names, else
// for the only one of that shape. Nothing for models without a plan. INVALID_ARGUMENT naming the
// served models where none or several fit, or two plans are for one.
absl::StatusOr<std::vector<std::optional<v1::DeploymentPlan>>> ByModel(
    std::vector<v1::DeploymentPlan> plans, std::span<const v1::Model> models);

// Where several models are served, puts "NAME/" before the names of a model's replicas, and the
// served name into the plan's model.
void NameReplicas(std::span<const v1::Model> models, PlanSet* set);

// FAILED_PRECONDITION naming a device that several plans use, and their models.
absl::Status CheckDevicesApart(std::span<const v1::Model> models, const PlanSet& set);

}  // namespace tessera::coordinator
