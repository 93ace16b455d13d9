// The oracle of the searches for a few devices: every way to deal devices to replicas and roles,
// each replica with every layout, idle devices included, and the best of them all.
//
// Shares the cost model and the problem's types with the searches and nothing else: what links
// carry of split replicas is worked out here, with a simplex method of its own. Of layouts that put
// every layer on the same machine only the best is kept: KV and rates depend on nothing else. A
// grouping whose replicas cannot beat the best even over free links is not looked into. Complexity:
// exponential; meant for at most eight devices and 16 layers. Deterministic.
#pragma once

#include <vector>

#include "scheduler/search/layout/problem.h"

namespace tessera::tests {

struct EnumeratedReplica {
  scheduler::Role role = scheduler::Role::kBoth;
  std::vector<scheduler::LayoutStage> stages;  // pools of the graph
};

struct EnumeratedPlacement {
  std::vector<EnumeratedReplica> replicas;
  double requests_per_second = 0;  // 0: nothing serves
  double over_free_links = 0;      // the best if links carried all KV between replicas
  long layouts = 0;                // looked at
};

// Goal kThroughput, or kGoodput where nothing may be split: then replicas are worth what the one
// evaluator of goodput says, and serve together what each serves alone.
EnumeratedPlacement EnumeratePlacements(const scheduler::PlacementProblem& problem);

}  // namespace tessera::tests
