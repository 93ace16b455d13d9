// The search called "cost": which configurations to rent, by bisection on the time a unit of work
// takes.
//
// Source: Demystifying Cost-Efficiency (ICML 2025), see cost_program.h. A configuration is a set of
// devices with its best layout: some cards of one machine, whole machines of one kind side by side,
// or machines of two kinds. The goals decide: most within availability (and budget, for kBudget),
// or the least price that serves the required rate. Where the workload has several classes (or
// buckets by lengths are asked for) each is served by whichever configurations suit it, in the
// program; the placement is judged as all are, with shares that know no classes, and a note says
// what the program counted on. Replicas do both phases. Deterministic. Complexity: O(pools^2)
// layouts, like ones once; tens of integer programs. Errors: ResourceExhausted where nothing
// serves.
#pragma once

#include "scheduler/search/baselines/cost_program.h"
#include "scheduler/search/layout/device_groups.h"

namespace tessera::scheduler {

struct CostSearchOptions {
  int most_machines_side_by_side = 4;  // ours: of one kind, joined to one pipeline
  int most_layouts = 1000;             // ours: layouts of unlike groups, which is where time goes
  // Melange's: requests in four classes by the lengths of prompt and answer, where the workload has
  // no classes itself. Ours: off, since shares of a plan know no classes.
  bool length_buckets = false;
  double bucket_prompt_tokens = 512;  // from here on a prompt is long; the literature's cut
  double bucket_output_tokens = 128;  // the same of answers
  BisectionOptions bisection;
  GroupLayoutOptions layouts;
};

absl::StatusOr<Placement> SearchByCost(const PlacementProblem& problem,
                                       const CostSearchOptions& options = {});

}  // namespace tessera::scheduler
