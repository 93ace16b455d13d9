// Why there is no plan, in words: what a goal needs and was not given, and what a search without an
// answer finds when it is asked again without the limit that was in the way. Faults are named as
// the asker wrote them: a flag, or file and key.
//
// Thread rule: pure functions.
#pragma once

#include "absl/status/status.h"
#include "scheduler/planner/planner_input.h"
#include "scheduler/search/layout/problem.h"

namespace tessera::scheduler {

// A plan that serves less is refused: one request in three hours helps nobody. Limits that only an
// empty replica keeps lead to such rates.
inline constexpr double kMinRequestsPerSecond = 1e-4;

// InvalidArgument where the goal asks for limits, a rate, a budget or prices that `input` lacks.
absl::Status CheckGoal(const PlacementProblem& problem, const PlannerInput& input);

// `found` is what `search` said of `problem`: a status, or OK where its placement serves less than
// kMinRequestsPerSecond. The answer is always an error. Costs one or two more searches.
absl::Status WhyNoPlan(const Search& search, const PlacementProblem& problem,
                       const absl::Status& found, const PlannerInput& input);

}  // namespace tessera::scheduler
