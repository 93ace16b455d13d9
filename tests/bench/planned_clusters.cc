#include "tests/bench/planned_clusters.h"

#include <algorithm>

#include "scheduler/input/catalogue.h"
#include "scheduler/simulator/arrivals.h"

namespace tessera::scheduler {
namespace {

constexpr uint64_t kArrivalSeed = 1;

}  // namespace

std::vector<std::filesystem::path> ExampleClusters() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator("deploy/clusters")) {
    // The four workers are for the shipped model alone, and hold none of those that are planned.
    if (entry.path().filename().string().starts_with("four_unlike_workers")) continue;
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

absl::StatusOr<SimulationReport> SimulatePlan(const PlanReplicas& replicas,
                                              const WorkloadSamples& workload, double rate,
                                              int64_t requests) {
  SimulationSetup setup;
  setup.replicas = replicas.replicas;
  setup.transfers = replicas.transfers;
  setup.requests = RequestsFromProcess({rate, workload.arrival_variation, requests, kArrivalSeed},
                                       workload.samples);
  AskForAtMost(0, &setup.requests);
  const auto dispatcher = MakePlanDispatcher({{0, replicas.shares}});
  const absl::StatusOr<SimulationResult> result = Simulate(setup, dispatcher.get());
  if (!result.ok()) return result.status();
  return ReportOf(*result, {});
}

}  // namespace tessera::scheduler
