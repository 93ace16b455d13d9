// Everything a plan takes for granted: options with their defaults, the workload, and where the
// figures of each device kind come from, estimates apart from measurements. Thread rule: pure
// functions.
#pragma once

#include "proto/plan_assumptions.pb.h"
#include "scheduler/planner/planner_input.h"

namespace tessera::scheduler {

struct AssumedFigures {
  const PlannerInput* input = nullptr;
  const PlannerOptions* options = nullptr;
  const PlacementProblem* problem = nullptr;
  const WorkloadSamples* workload = nullptr;
  int64_t context_tokens = 0;
  bool simulates = false;
};

v1::Assumptions AssumptionsOf(const AssumedFigures& figures);

// Adds kDraftsAlone and kDraftsAtRate to the constants, where steps may have drafts.
void AddDraftCounts(const PlacementProblem& problem, const Placement& placement,
                    v1::PlanningTerms* terms);

v1::Objective ObjectiveOf(Goal goal);

}  // namespace tessera::scheduler
