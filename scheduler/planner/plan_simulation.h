// A plan simulated at a given rate, as its `simulated` figures say it.
//
// How many requests: enough for 25 times those that are in the system at once, or, where these are
// many, for 12 times, within limits, so that the cost is bounded: a core simulates 20,000 requests
// a second and more. Fewer would show how a large deployment fills, not what it serves.
// Thread rule: pure functions, deterministic. Errors: those of plan_replicas and simulator, such as
// InvalidArgument where the simulator has no figures for a layout, Cancelled where `watch` stopped
// it. Units: seconds, requests per second.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/plan.pb.h"
#include "scheduler/input/cluster_graph.h"
#include "scheduler/input/workload_samples.h"
#include "scheduler/search/layout/problem.h"
#include "scheduler/simulator/plan_replicas.h"

namespace tessera::scheduler {

struct SimulatedQuestion {
  const ClusterGraph* graph = nullptr;        // borrowed, as below
  const WorkloadSamples* workload = nullptr;  // requests_per_second 0: as many as can be served
  int64_t least_requests = 2000;
  int64_t enough_requests = 4000;
  int64_t max_requests = 30'000;
  uint64_t seed = 1;
  SearchWatch watch = {};
};

// For which figures requests are drawn: times need fewer, as they need no second half.
enum class Seen { kServed, kLatencies };

int64_t RequestsFor(const SimulatedQuestion& question, const v1::DeploymentPlan& plan, double rate,
                    Seen seen);

// What is finished while `rate` come.
absl::Status SeeServed(const SimulatedQuestion& question, const PlanReplicas& replicas, double rate,
                       int64_t requests, v1::SimulatedFigures* figures);

// Latencies and attainment at `rate`; beside them the limits that the means of a class miss.
absl::Status SeeLatencies(const SimulatedQuestion& question, const PlanReplicas& replicas,
                          double rate, int64_t requests, v1::SimulatedFigures* figures,
                          std::vector<v1::MissedLimit>* missed = nullptr);

bool HasObjectives(const WorkloadSamples& workload);

}  // namespace tessera::scheduler
