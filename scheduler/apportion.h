// Whole granules (heads, columns, experts) dealt to ranks in proportion to fractions.
//
// Largest remainder, the lowest rank first, but at least one granule each where there are enough:
// of all such deals the one with the least sum of squared distances to the exact parts. Thread
// rule: pure function. Requires positive fractions; they need not sum to 1. Cost: O(ranks^2).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera::scheduler {

// How many each rank gets, in rank order; fewer granules than ranks: the first ranks get one each.
std::vector<int64_t> Apportion(int64_t granules, std::span<const double> fractions);

}  // namespace tessera::scheduler
