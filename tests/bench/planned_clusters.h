// The example clusters as measurements plan them, each with the largest model that fits, and what
// plans serve in the simulation.
//
// Thread rule: pure functions, of files below the working directory. Errors: those of the planner.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/input/workload_samples.h"
#include "scheduler/planner/planner.h"
#include "scheduler/simulator/plan_replicas.h"
#include "scheduler/simulator/report.h"

namespace tessera::scheduler {

// Of deploy/clusters, by name.
std::vector<std::filesystem::path> ExampleClusters();

// Sets input->model to the first of `models` that fits.
absl::StatusOr<v1::DeploymentPlan> PlanFirstThatFits(const std::vector<std::string>& models,
                                                     const PlannerOptions& options,
                                                     PlannerInput* input);

// Of so many requests that come at `rate`, the same ones for every plan.
absl::StatusOr<SimulationReport> SimulatePlan(const PlanReplicas& replicas,
                                              const WorkloadSamples& workload, double rate,
                                              int64_t requests);

}  // namespace tessera::scheduler
