// How far from the best a plan can be, in words. Thread rule: pure function.
#pragma once

#include <string>

#include "scheduler/search/layout/problem.h"

namespace tessera::scheduler {

struct BoundedPlacement {
  const PlacementProblem* problem = nullptr;
  const Placement* placement = nullptr;
  double promised = 0;    // requests per second that the plan is judged by
  bool cheapest = false;  // nothing that serves what is asked costs less: proved
  bool survives = false;  // what is promised is left after the loss of a machine
};

// Of an upper bound: (bound - promised) / bound, at least 0.
double GapOf(const BoundedPlacement& bounded);

// "proved optimum: ...", "heuristic, not proved to be the best: ..." or "heuristic: ...".
std::string BoundLine(const BoundedPlacement& bounded);

// "this holds among ...": the placements that bounds speak of.
std::string BoundedLayouts();

}  // namespace tessera::scheduler
