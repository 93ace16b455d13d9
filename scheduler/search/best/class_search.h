// Placements of many devices: the configuration program on classes, made whole and put on machines.
//
// Idea: the program's relaxation says how many of which replicas, and bounds every placement. Whole
// numbers of them are placed by branch and bound; what is left is planned again, group by group and
// then all together, until no replica fits any more. Then moves put right what rounding left; for
// few devices also moves that lose at first. Many devices are bounded as if all groups were one,
// which leaves a tenth of the classes, and planned group by group from that program's columns.
// Deterministic: budgets count rounds and nodes. Thread rule: pure function.
#pragma once

#include <optional>

#include "scheduler/search/layout/problem.h"

namespace tessera::scheduler {

struct ClassSearchResult {
  std::optional<Placement> placement;  // none: no replica was found that fits
  double upper_bound = 0;              // of requests per second, as it was found; 0: none
};

// A name in PlacementProblem::search_options: what is found shows where a closer search, which
// follows, is to look. Fewer rounds of columns, and no moves that lose at first.
inline constexpr char kRoughSearch[] = "best.rough";

ClassSearchResult SearchByClass(const PlacementProblem& problem);

// A bound of the throughput. The relaxation serves at least 1 - `gap` of the bound, unless the
// program's budget of rounds ends first.
struct ClassBound {
  double upper_bound = 0;               // requests per second; 0: none
  std::vector<PlacedReplica> replicas;  // of the relaxation, each as if it stood there alone
};
ClassBound BoundByClass(const PlacementProblem& problem, double gap);

}  // namespace tessera::scheduler
