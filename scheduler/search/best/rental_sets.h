// Which of what is offered for rent fits into a budget: the sets that are worth most, and a bound.
//
// Problem: of every offer any number up to what is available, each at its price; a set is worth the
// sum of its parts. Idea: depth first over the offers, those that are worth most for their price
// first, cut off where even parts of offers could not bring what is left to the worst set kept (a
// bounded knapsack), at the least price there is. Only sets that nothing fits into any more are
// kept. Deterministic: the budget counts nodes. Complexity: exponential in the worst case, up to
// that budget. Thread rule: pure function.
#pragma once

#include <cstddef>
#include <vector>

namespace tessera::scheduler {

struct RentalItem {
  double worth = 0;
  double usd_per_hour = 0;  // 0: always in
  int available = 0;
  // Prices of none, one, two ... of it, rising, where that is more than in proportion.
  std::vector<double> prices = {};

  double UsdOf(int count) const {
    return prices.empty() ? count * usd_per_hour : prices[static_cast<std::size_t>(count)];
  }
};

struct RentalSets {
  struct Set {
    std::vector<int> counts;  // by item
    double worth = 0;
    double usd_per_hour = 0;
  };
  std::vector<Set> best;  // most worth first
  double bound = 0;       // no set within the budget is worth more
};

RentalSets MostWorth(const std::vector<RentalItem>& items, double budget_usd_per_hour,
                     std::size_t most, int max_nodes);

}  // namespace tessera::scheduler
