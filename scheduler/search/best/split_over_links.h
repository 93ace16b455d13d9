// The best layouts of split replicas where links hold them below what they could serve.
//
// Problem: which layouts of given device sets, some prefilling and some decoding, serve most over
// the links between them: the fastest layouts need not lie well for the KV. Idea: KV goes from the
// machine of a layer to the machine of that layer, so of layouts that put every layer on the same
// machine only the fastest matters, and only if it serves enough; all combinations of these are
// tried, fastest first, as long as their rates could still be better. Complexity: layouts of a set,
// and products of their maps of machines; both have limits. Deterministic. Thread rule: pure
// functions; borrow the problem.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "scheduler/search/layout/problem.h"

namespace tessera::scheduler {

// The fastest layouts by map of machines, of those that serve more than `floor`, fastest first;
// stages name the problem's pools. None where more than `most` layouts and parts of them would have
// to be looked at: parts are left out when a stage alone, or the devices that are left, cannot
// serve that much.
std::optional<std::vector<Layout>> LayoutsByMachines(const LayoutProblem& problem, int64_t most,
                                                     double floor);

struct SplitSet {
  Role role = Role::kPrefill;
  std::vector<int> pools;                        // of the graph, by pool of the layouts
  const std::vector<Layout>* layouts = nullptr;  // of LayoutsByMachines
};

struct SplitOverLinks {
  double requests_per_second = 0;
  std::vector<PlacedReplica> replicas;  // by set; empty: nothing above the floor
};

// The best of the sets' layouts that serves more than `floor`; none where more than `most`
// combinations would have to be tried.
std::optional<SplitOverLinks> BestSplitOverLinks(const PlacementProblem& problem,
                                                 const std::vector<SplitSet>& sets, double floor,
                                                 int64_t most);

}  // namespace tessera::scheduler
