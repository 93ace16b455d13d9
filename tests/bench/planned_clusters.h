// The example clusters as measurements plan them: each with the largest model that fits.
//
// Thread rule: pure functions, of files below the working directory. Errors: those of the planner.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/planner/planner.h"

namespace tessera::scheduler {

// Of deploy/clusters, by name.
std::vector<std::filesystem::path> ExampleClusters();

// Sets input->model to the first of `models` that fits.
absl::StatusOr<v1::DeploymentPlan> PlanFirstThatFits(const std::vector<std::string>& models,
                                                     const PlannerOptions& options,
                                                     PlannerInput* input);

}  // namespace tessera::scheduler
