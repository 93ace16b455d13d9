// Which of the placements a practitioner would take: within limits of latency, and of those that
// serve nearly as much as the best the simplest.
//
// A placement is found with the limit of TPOT in force; it, the search's others and what is plain
// (plain_placements.h) are then compared. Those whose predicted TTFT is too long are out; of the
// rest that serve at most `simpler_within` less than the best, the one whose longest pipeline has
// the fewest stages is taken, of these the one that keeps most when a machine is lost. A limit that
// no placement meets is dropped, and a line says by how much it is missed. Thread rule: pure
// functions. Deterministic. Units: seconds, parts.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/search/layout/problem.h"

namespace tessera::scheduler {

struct Preference {
  double max_tpot_seconds = 0;  // while all decode that may; 0: no limit
  double max_ttft_seconds = 0;  // predicted mean; 0: no limit
  double simpler_within = 0;    // of the best rate; 0: the best, whatever its stages

  bool any() const { return max_tpot_seconds > 0 || max_ttft_seconds > 0 || simpler_within > 0; }
};

// What counts where nobody says otherwise: 100 ms, 5 s, 5 %.
Preference UsualPreference();

struct PreferredPlacement {
  Placement placement;
  std::vector<v1::Note> notes;  // what limits and simplicity cost, and which limits are missed
};

// `problem` has no limit of TPOT where `preference` has one, and gets it. Errors: the search's.
absl::StatusOr<PreferredPlacement> SearchPreferred(PlacementProblem* problem,
                                                   const Preference& preference,
                                                   const Search& search);

// Stages of the longest pipeline that serves anything.
int MostStages(const Placement& placement);

}  // namespace tessera::scheduler
