// What users of a plan would see, by simulation; and which of several plans serves most there.
//
// Every candidate gets the same requests (lengths, order and moments of coming: common seeds),
// twice: as many per second as the best of them promises, for what it sustains; and at the rate at
// which its latencies were predicted. The predicted value keeps its bound; the simulated one stands
// beside it, unbounded. A candidate whose simulated value is more than `clearly` above that of the
// one chosen so far is chosen in its place; what it shows is then simulated at its own rates. The
// value is requests per second sustained, times the part of them within the objectives where there
// are any; for a price it is what is sustained of the asked rate (more than all of it does not
// count), the cheaper plan first. One that promises too little for that is not simulated.
//
// For goodput it is the largest rate, up to the promised one, at which every class attains what it
// asks for: the cost model's formula knows neither how a router evens out replicas nor how waits
// hang together, and near capacity a few per cent of rate decide. Each rate that is tried takes a
// run of at least `goodput_requests`.
//
// How many requests are drawn: see plan_simulation.h. Thread rule: pure function, deterministic.
// Errors: those of plan_replicas and simulator, such as InvalidArgument where the simulator has no
// figures for a layout, Cancelled where `watch` stopped it; the candidates are then as they were.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/plan.pb.h"
#include "proto/workload.pb.h"
#include "scheduler/input/cluster_graph.h"
#include "scheduler/input/workload_samples.h"
#include "scheduler/search/layout/problem.h"

namespace tessera::scheduler {

struct JudgementQuestion {
  const ClusterGraph* graph = nullptr;        // borrowed, as below
  const WorkloadSamples* workload = nullptr;  // requests_per_second 0: as many as can be served
  Goal goal = Goal::kThroughput;
  int64_t least_requests = 2000;
  int64_t enough_requests = 6000;
  int64_t most_requests = 30'000;
  int64_t goodput_requests = 10'000;  // at least, for the part of them that is in time
  uint64_t seed = 1;
  double clearly = 0.02;
  SearchWatch watch;
};

// The index of the chosen one of `candidates` (at least one, the first the one with the best
// predicted value), in which `simulated` and, beside others, a line of `explanation` are filled.
absl::StatusOr<size_t> JudgeBySimulation(const JudgementQuestion& question,
                                         std::vector<v1::DeploymentPlan>* candidates);

}  // namespace tessera::scheduler
