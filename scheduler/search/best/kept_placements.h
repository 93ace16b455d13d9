// Placements that lost to the best one of a search, for who judges them by other means
// (Placement::alternatives).
//
// Thread rule: one thread per object; borrows its problem.
#pragma once

#include <vector>

#include "scheduler/search/layout/problem.h"

namespace tessera::scheduler {

class KeptPlacements {
 public:
  explicit KeptPlacements(const PlacementProblem& problem) : problem_(problem) {}

  // The best three stay, each once; those that serve nothing, or for a price too little, do not.
  void Keep(Placement placement);
  // The placements within a fifth of the value of `best`, the best first; takes
  // them out.
  std::vector<Placement> Near(const Placement& best);

 private:
  bool Better(const Placement& a, const Placement& b) const;

  const PlacementProblem& problem_;
  std::vector<Placement> kept_;  // the best first
};

}  // namespace tessera::scheduler
