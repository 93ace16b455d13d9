// The search called "best": replicas as columns of an integer program.
//
// Problem: which replicas, of which devices, in which roles. Idea: any legal replica is a column
// (devices per pool, role, rate, price); its best layout comes from stage_layout. Columns are made
// for device sets that could be worth it: all sets where there are few; else every count of one
// pool, pairs of pools, and chains of pools that grow along the best links until the model fits. A
// merged set must beat its parts served apart. An integer program (Cbc) then packs columns into the
// cluster: maximise (or, for a price, bound from below) what replicas of role both serve plus the
// smaller of what the prefilling and the decoding ones do. The chosen columns get their layouts
// again at full resolution. The relaxation's duals are the shadow prices. Complexity: O(pools^2)
// layouts, like ones computed once; one integer program. Deterministic; no clock. Source: our own;
// the packing is the plain integer program behind Demystifying Cost-Efficiency (ICML 2025). Limits:
// sets are not complete beyond kAllSetsUpTo, so its relaxation is no bound; prices count devices,
// not whole machines.
#pragma once

#include "scheduler/search/problem.h"

namespace tessera::scheduler {

absl::StatusOr<Placement> SearchConfigurations(const PlacementProblem& problem);

}  // namespace tessera::scheduler
