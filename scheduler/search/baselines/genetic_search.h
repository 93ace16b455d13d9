// The search called "hexgen": a genetic search over device groups, a layout program in each.
//
// Source: HexGen (ICML 2024). Start: clusters of the communication matrix. Mutations merge two
// groups, split one, swap or move devices; a group's stages come from dynamic programming. The
// paper's fitness is the share of requests within a deadline, simulated; ours is what Assemble
// says, like for every search. Replicas do both prefill and decode. Deterministic from the seed.
// Complexity: one layout per new group; O(groups) per candidate. Errors: ResourceExhausted where no
// candidate serves.
#pragma once

#include "scheduler/search/layout/device_groups.h"

namespace tessera::scheduler {

struct GeneticOptions {
  int population = 16;           // ours
  int most_evaluations = 4000;   // ours: candidates judged
  int most_layouts = 1000;       // ours: layouts of unlike groups, which is where time goes
  int patience = 600;            // ours: candidates without a new best after which it ends
  double second_mutation = 0.3;  // ours: chance that another mutation follows
  int start_growth = 4;          // ours: starts of n groups are followed by one of n + n / this
  uint64_t seed = 1;
  GroupLayoutOptions layouts;
};

absl::StatusOr<Placement> SearchGenetic(const PlacementProblem& problem,
                                        const GeneticOptions& options = {});

}  // namespace tessera::scheduler
