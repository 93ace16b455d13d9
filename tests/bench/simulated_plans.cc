// Do the plans of the examples serve what they promise? Every cluster of deploy/clusters is
// planned, and its plan simulated with as many requests as it promises to serve (85 % of them for
// the latencies): rates and latencies predicted and simulated, and the ratio of the rates.
//
//   tests/bench/run simulated_plans
//
// Bars: at its promised rate every plan serves at least 0.9 of it in the simulation; at 85 % of it
// the mean TPOT is within a tenth of the predicted one. The predicted mean TTFT is within a factor
// of 1.3 of that at some load within 3 % of that: waits near capacity grow several times as fast as
// the load, and what a replica really serves is not known better.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "proto/document.h"
#include "scheduler/input/catalogue.h"
#include "tests/bench/planned_clusters.h"

namespace tessera::scheduler {
namespace {

constexpr double kBar = 0.9;
constexpr double kTpotBar = 0.1;
constexpr double kTtftBar = 1.3;
constexpr double kSeconds = 1200;  // between first and last arrival
// Where few come these take longer: near capacity waits have a long memory.
constexpr double kMinRequests = 60000;
constexpr double kLatencyLoad = 0.85;
constexpr double kLoadError = 0.03;

absl::StatusOr<SimulationReport> Simulated(const PlanReplicas& replicas, double rate,
                                           const WorkloadSamples& workload) {
  return SimulatePlan(replicas, workload, rate,
                      static_cast<int64_t>(std::max(kSeconds * rate, kMinRequests)));
}

// Whether the bars are met.
absl::StatusOr<bool> Compare(const std::string& name, PlannerInput input) {
  PlannerOptions options;
  if (input.cluster.budget_usd_per_hour() > 0) options.goal = Goal::kBudget;
  const absl::StatusOr<v1::DeploymentPlan> plan =
      PlanFirstThatFits({"Llama-2-70B", "Llama-3-8B"}, options, &input);
  if (!plan.ok()) return plan.status();
  const auto graph = MakeClusterGraph(input.cluster, input.catalogue, name);
  if (!graph.ok()) return graph.status();
  const auto replicas = ReplicasOfPlan(*plan, *graph, {});
  if (!replicas.ok()) return replicas.status();
  const auto workload = SamplesOf(input.workload, {}, input.model.max_positions(), name);
  if (!workload.ok()) return workload.status();
  const v1::Prediction& predicted = plan->prediction();
  const auto full = Simulated(*replicas, predicted.requests_per_second(), *workload);
  if (!full.ok()) return full.status();
  const auto usual =
      Simulated(*replicas, kLatencyLoad * predicted.requests_per_second(), *workload);
  if (!usual.ok()) return usual.status();
  const auto below = Simulated(
      *replicas, (1 - kLoadError) * kLatencyLoad * predicted.requests_per_second(), *workload);
  if (!below.ok()) return below.status();
  const auto above = Simulated(
      *replicas, (1 + kLoadError) * kLatencyLoad * predicted.requests_per_second(), *workload);
  if (!above.ok()) return above.status();
  const double ratio = full->steady_requests_per_second / predicted.requests_per_second();
  std::printf(
      "| %s, %s | %d | %.3f | %.3f | %.3f | %.2f / %.2f (%.2f-%.2f) / %.2f | %.0f / %.0f / %.0f "
      "|\n",
      name.c_str(), input.model.name().c_str(), plan->replicas_size(),
      predicted.requests_per_second(), full->steady_requests_per_second, ratio,
      predicted.time_to_first_token_seconds(), usual->ttft.mean, below->ttft.mean, above->ttft.mean,
      usual->ttft.p99, 1e3 * predicted.time_per_output_token_seconds(), 1e3 * usual->tpot.mean,
      1e3 * usual->tpot.p99);
  std::fflush(stdout);
  const double tpot = usual->tpot.mean / predicted.time_per_output_token_seconds();
  const double ttft = predicted.time_to_first_token_seconds();
  return ratio >= kBar && std::abs(tpot - 1) <= kTpotBar && ttft >= below->ttft.mean / kTtftBar &&
         ttft <= above->ttft.mean * kTtftBar;
}

int Main() {
  PlannerInput input;
  input.catalogue = *BuiltInDevices();
  if (absl::Status s =
          ReadDocumentFile("deploy/workloads/azure_conversation.yaml", &input.workload);
      !s.ok()) {
    std::fprintf(stderr, "%s\n", s.ToString().c_str());
    return 1;
  }
  const std::vector<std::filesystem::path> files = ExampleClusters();
  std::printf(
      "| cluster, model | replicas | promised requests/s | simulated | ratio | TTFT s at 85 %%: "
      "predicted mean / simulated mean (at 3 %% less and more) / p99 | TPOT ms, the same "
      "|\n|---|---|---|---|---|---|---|\n");
  bool met = !files.empty();
  for (const std::filesystem::path& file : files) {
    input.cluster_file = file.filename().string();
    input.cluster.Clear();
    const absl::Status read = ReadDocumentFile(file.string(), &input.cluster);
    const absl::StatusOr<bool> meets =
        read.ok() ? Compare(file.stem().string(), input) : absl::StatusOr<bool>(read);
    if (!meets.ok())
      std::fprintf(stderr, "%s: %s\n", file.c_str(), std::string(meets.status().message()).c_str());
    met &= meets.ok() && *meets;
  }
  return met ? 0 : 1;
}

}  // namespace
}  // namespace tessera::scheduler

int main() { return tessera::scheduler::Main(); }
