// Placements of up to eight devices, proved best: the part of "best" for few devices; for the least
// price also of more, where they make few sets.
//
// Idea: a column is a set of devices in a role, with the best layout known and a bound on all its
// layouts (layout_bound; for models whose layers differ the exact program of stage_layout). The
// grouping that serves most by the bounds (grouping_program) is bounded further, column by column,
// just as far as it takes to fall to the best placement known; columns whose best layouts turn out
// better make better placements. When no grouping is above the placement any more it is proved
// best. For the least price groupings come by what they cost, and of dearer sets nothing is asked.
// Sets within a set are bounded by it; sets that are alike (same devices, same links) are bounded
// once. Splitting replicas of different machines is bounded by what the links between them carry.
// Budget: tests of layouts, more where a proof is asked for. Deterministic. Thread rule: pure
// function. Limits: where links bind replicas of several machines, and where tests run out, the
// bound stays above the placement.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "scheduler/search/layout/problem.h"

namespace tessera::scheduler {

// Few enough devices, or sets of them, for this search, and layers that it can bound.
bool AreFewDevices(const PlacementProblem& problem);

// What a search knows of the layouts of device sets, for the next one: of problems that differ in
// nothing but the limit of TPOT and whether replicas may be split. A bound holds for tighter limits
// too, a layout may still be the best one. Such searches are steps of another one, which wants the
// placement and its bound: sets are bounded only where a grouping asks for them, and prices of
// devices, alternatives and what lost are left out.
struct KnownLayouts {
  struct Set {
    double max_tpot_seconds = 0;
    double upper = 0;  // of the rate
    std::vector<LayoutStage> stages;
  };
  std::map<std::string, Set> by_key;
};

struct FewDevicesResult {
  std::optional<Placement> placement;  // its bound as it was found, see BoundOver
  bool fits = false;                   // a replica does
  // Nothing better exists, by more than is asked for; without a placement: none that serves what is
  // required.
  bool settled = false;
};

FewDevicesResult SearchFewDevices(const PlacementProblem& problem, KnownLayouts* known = nullptr);

}  // namespace tessera::scheduler
