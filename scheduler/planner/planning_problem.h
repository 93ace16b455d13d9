// What planning reads once: the descriptions as shape, graph and samples, and the problem that
// searches are asked.
//
// Thread rule: plain values; the problem borrows shape and graph, and all borrow input and options.
// Read `input` here, not the caller's.
// Errors: InvalidArgument, which names the file or option, for a description that cannot be.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "scheduler/planner/planner_input.h"
#include "scheduler/search/layout/problem.h"

namespace tessera::scheduler {

struct PlanningProblem {
  PlanningProblem() = default;
  PlanningProblem(const PlanningProblem&) = delete;
  PlanningProblem& operator=(const PlanningProblem&) = delete;

  bool spot() const { return options->spot.share > 0; }

  const PlannerInput* input = nullptr;  // as given, or `held`
  std::optional<PlannerInput> held;     // where devices keep less of its model than it says
  const PlannerOptions* options = nullptr;
  ModelShape shape;
  ClusterGraph graph;
  std::map<std::string, int> left_out;  // devices, by kind, that are not in `graph`
  WorkloadSamples workload;
  int64_t context_tokens = 0;  // of the longest sequence
  PlacementProblem problem;
};

// Whether plans that use so many devices, of which the one found splits or does not, are simulated.
bool Simulates(const PlannerOptions& options, int devices, bool splits);

absl::StatusOr<std::unique_ptr<PlanningProblem>> ReadPlanningProblem(const PlannerInput& input,
                                                                     const PlannerOptions& options);

}  // namespace tessera::scheduler
