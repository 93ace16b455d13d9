// Plans that must serve on when any one machine is lost: what remains of a placement, and a search
// for the placement of which most remains.
//
// A placement's surviving rate is what the worst machine leaves (machine_losses), for goodput of
// requests of which enough are within their limits. Idea of the search: columns are replicas that
// the search asked for finds on the whole cluster, on single machines, on sites, on few machines,
// and on what is left without a machine; a mixed-integer program takes those of which most
// survives,
//   max X, for every machine m: X <= sum of rates of columns that do not use m,
// (prefill and decode counted apart, links left to Assemble), then the replicas of the worst
// machine are planned again until nothing is gained. Heuristic; but no plan keeps more than what
// the whole cluster without some machine serves, so the smallest such bound bounds it.
// Deterministic: budgets count searches. Thread rule: pure functions. Units: requests per second.
#pragma once

#include "scheduler/planner/machine_losses.h"
#include "scheduler/search/layout/problem.h"

namespace tessera::scheduler {

struct SurvivalOptions {
  int most_searches = 64;            // of parts of the cluster
  int most_searched_devices = 1000;  // of all these parts together
  int all_sets_up_to = 64;           // device sets that are all searched
  int most_program_cells = 60000;    // columns times machines of the mixed-integer program
  int most_rounds = 6;               // of planning the worst machine's replicas again
};

// Makes any search one for placements that survive. For a price: the cheapest whose surviving rate
// is the asked one. ResourceExhausted, naming the machine that everything depends on, where nothing
// survives.
Search SurvivingSearch(Search search, const SurvivalOptions& options = {});

}  // namespace tessera::scheduler
