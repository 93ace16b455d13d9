// The rate of a plan that simulation attains: what is printed first.
//
// The promise of a plan is a formula's. Here as many requests per second as it promises are
// simulated with several seeds; the rate is lowered until every one of them is served, and for
// goodput until every class attains what it asks for in each. Where so many requests would take
// more than about two seconds of a core, by the steps that they take, fewer are simulated; how many
// is said. Thread rule: pure function, deterministic. Errors: those of plan_replicas and the
// simulator; Cancelled where `watch` stopped it.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "proto/plan.pb.h"
#include "scheduler/input/cluster_graph.h"
#include "scheduler/input/workload_samples.h"
#include "scheduler/search/layout/problem.h"

namespace tessera::scheduler {

struct AttainedQuestion {
  const ClusterGraph* graph = nullptr;        // borrowed, as the next
  const WorkloadSamples* workload = nullptr;  // with the limits of its classes
  Goal goal = Goal::kThroughput;
  int64_t requests = 20'000;  // of each seed; a large deployment takes up to three times as many
  int seeds = 3;
  // How long the simulations may be, in planned steps: a core simulates about a million a second.
  double work = 2e6;
  SearchWatch watch = {};
};

// Sets `simulated.attained_requests_per_second`, `attained_requests` and `attained_seeds`. Of a
// deployment that so many requests would not fill nothing is set.
absl::Status AddAttained(const AttainedQuestion& question, v1::DeploymentPlan* plan);

}  // namespace tessera::scheduler
