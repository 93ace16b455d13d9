// The part of `best` for throughput and money: replicas as columns of an integer program.
//
// Problem: which replicas, of which devices, in which roles. Up to eight devices every device set
// is a column, and the placement is proved best (few_devices_search); else columns are made by
// classes of devices (class_search); where money counts and machines are rented whole, sets of
// these are planned (rental_search). All give a bound on every placement. Deterministic; no clock.
// Source: our own; the packing is the plain integer program behind Demystifying Cost-Efficiency
// (ICML 2025).
#pragma once

#include "scheduler/search/best/few_devices_search.h"
#include "scheduler/search/layout/problem.h"

namespace tessera::scheduler {

// `known`: of few devices, from one search to the next; null: nothing is.
absl::StatusOr<Placement> SearchConfigurations(const PlacementProblem& problem,
                                               KnownLayouts* known = nullptr);

}  // namespace tessera::scheduler
