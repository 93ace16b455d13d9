// The search called "best": what the programs find (configuration_search, goodput_search), beside
// what is plain: chains, even splits, each machine by itself, the best of each single kind.
//
// For throughput, budgets aside, and goodput its answer is never below any of these. Deterministic.
// Thread rule: pure function; borrows its problem.
#pragma once

#include "scheduler/search/layout/problem.h"

namespace tessera::scheduler {

absl::StatusOr<Placement> SearchBest(const PlacementProblem& problem);

}  // namespace tessera::scheduler
