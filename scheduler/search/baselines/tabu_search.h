// The search called "thunderserve": tabu search over device groups and their roles.
//
// Source: ThunderServe (MLSys 2025). A step looks at some neighbours (a role flipped, a group split
// or moved from, two groups merged) that are not on the tabu list and goes to the best of them, be
// it worse. A group's stages come from stage_layout; requests are sent from prefilling to decoding
// groups by the transportation program; what it weighs by attainment in the paper is judged here as
// for every search (rate_program.h). With allow_split off, or where only one group holds the model,
// groups do both. Deterministic from the seed. Errors: ResourceExhausted where nothing serves.
#pragma once

#include "scheduler/search/layout/device_groups.h"

namespace tessera::scheduler {

struct TabuOptions {
  int steps = 200;          // ours; the paper's own number is not known to us
  int neighbours = 12;      // ours: looked at per step
  int tabu_length = 24;     // ours: groupings that are not gone back to
  int patience = 60;        // ours: steps without a new best after which it ends
  int most_layouts = 1000;  // ours: layouts of unlike groups, which is where time goes
  int start_growth = 4;     // ours: starts of n groups are followed by one of n + n / this
  uint64_t seed = 1;
  GroupLayoutOptions layouts;
};

absl::StatusOr<Placement> SearchTabu(const PlacementProblem& problem,
                                     const TabuOptions& options = {});

}  // namespace tessera::scheduler
