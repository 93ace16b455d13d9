// The search called "cost": which configurations to rent, by bisection on the time a unit of work
// takes.
//
// Source: Demystifying Cost-Efficiency (ICML 2025), see cost_program.h. A configuration is a set of
// devices with its best layout: some cards of one machine, whole machines of one kind side by side,
// or machines of two kinds. The goals decide: most within availability (and budget, for kBudget),
// or the least price that serves the required rate. Requests are one class, since a placement's
// shares know no classes. Replicas do both phases. Deterministic. Complexity: O(pools^2) layouts,
// like ones once; tens of integer programs. Errors: ResourceExhausted where nothing serves.
#pragma once

#include "scheduler/search/cost_program.h"
#include "scheduler/search/device_groups.h"

namespace tessera::scheduler {

struct CostSearchOptions {
  int most_machines_side_by_side = 4;  // ours: of one kind, joined to one pipeline
  int most_layouts = 1000;             // ours: layouts of unlike groups, which is where time goes
  BisectionOptions bisection;
  GroupLayoutOptions layouts;
};

absl::StatusOr<Placement> SearchByCost(const PlacementProblem& problem,
                                       const CostSearchOptions& options = {});

}  // namespace tessera::scheduler
