#include "tests/bench/planned_clusters.h"

#include <algorithm>

#include "scheduler/input/catalogue.h"

namespace tessera::scheduler {

std::vector<std::filesystem::path> ExampleClusters() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator("deploy/clusters")) {
    if (entry.path().extension() == ".yaml") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

absl::StatusOr<v1::DeploymentPlan> PlanFirstThatFits(const std::vector<std::string>& models,
                                                     const PlannerOptions& options,
                                                     PlannerInput* input) {
  absl::StatusOr<v1::DeploymentPlan> plan = absl::NotFoundError("no model was tried");
  for (const std::string& model : models) {
    input->model = *BuiltInModel(model);
    plan = MakePlan(*input, options);
    if (plan.ok()) break;
  }
  return plan;
}

}  // namespace tessera::scheduler
