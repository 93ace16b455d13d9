// What one more device of each kind is worth by the search's shadow prices. Thread rule: pure
// function.
#pragma once

#include <string>
#include <vector>

#include "proto/plan.pb.h"
#include "scheduler/search/layout/problem.h"

namespace tessera::scheduler {

// One per kind that is worth something, one for the others; one that says so where the search has
// no prices. `survives`: the placement is judged by what a machine's loss leaves.
std::vector<v1::DevicePrice> ShadowPrices(const PlacementProblem& problem,
                                          const Placement& placement, const std::string& search,
                                          bool survives);

}  // namespace tessera::scheduler
