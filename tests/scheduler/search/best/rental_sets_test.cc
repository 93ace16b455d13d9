#include "scheduler/search/best/rental_sets.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "scheduler/search/math/seeded_random.h"

namespace tessera::scheduler {
namespace {

// Every set within the budget into which nothing more fits, by its worth, negated.
struct Brute {
  const std::vector<RentalItem>& items;
  double budget;
  std::vector<double> worths = {};

  void Grow(size_t item, double left, double worth, std::vector<int>* counts) {
    if (item == items.size()) {
      bool full = true;
      for (size_t i = 0; i < items.size(); ++i)
        full = full && ((*counts)[i] == items[i].available ||
                        items[i].UsdOf((*counts)[i] + 1) - items[i].UsdOf((*counts)[i]) > left);
      if (full) worths.push_back(-worth);
      return;
    }
    const RentalItem& of = items[item];
    for (int count = 0; count <= of.available && of.UsdOf(count) <= left; ++count) {
      counts->push_back(count);
      Grow(item + 1, left - of.UsdOf(count), worth + count * of.worth, counts);
      counts->pop_back();
    }
  }
};

std::vector<RentalItem> RandomItems(uint64_t seed) {
  SeededRandom random(seed);
  std::vector<RentalItem> items(static_cast<size_t>(1 + random.Below(4)));
  for (RentalItem& item : items)
    item = {random.Unit() * 3, 0.3 + random.Unit(), 1 + random.Below(3)};
  // Of some the first costs more than those after it.
  for (RentalItem& item : items) {
    if (random.Below(2) == 0) continue;
    item.prices = {0};
    for (int count = 1; count <= item.available; ++count)
      item.prices.push_back(count * item.usd_per_hour + 0.2);
  }
  return items;
}

TEST_CASE("the sets worth most are those of a trial of all") {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    INFO("seed " << seed);
    const std::vector<RentalItem> items = RandomItems(seed);
    const double budget = 0.2 + static_cast<double>(seed % 7) * 0.6;
    Brute brute{items, budget};
    std::vector<int> counts;
    brute.Grow(0, budget, 0, &counts);
    std::sort(brute.worths.begin(), brute.worths.end());
    const RentalSets sets = MostWorth(items, budget, 5, 100000);
    REQUIRE(sets.best.size() == std::min<size_t>(5, brute.worths.size()));
    CHECK(sets.bound == Approx(-brute.worths.front()).margin(1e-9));
    for (size_t i = 0; i < sets.best.size(); ++i) {
      const RentalSets::Set& set = sets.best[i];
      CHECK(set.worth == Approx(-brute.worths[i]).margin(1e-9));
      double worth = 0, usd = 0;
      for (size_t n = 0; n < items.size(); ++n) {
        CHECK(set.counts[n] <= items[n].available);
        worth += set.counts[n] * items[n].worth;
        usd += items[n].UsdOf(set.counts[n]);
      }
      CHECK(set.worth == Approx(worth).margin(1e-9));
      CHECK(set.usd_per_hour == Approx(usd).margin(1e-9));
      CHECK(usd <= budget * (1 + 1e-6));
    }
  }
}

TEST_CASE("where the nodes run out the bound is one all the same") {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    INFO("seed " << seed);
    const std::vector<RentalItem> items = RandomItems(seed);
    const double most = MostWorth(items, 2, 1, 100000).bound;
    for (const int nodes : {0, 1, 3, 10}) CHECK(MostWorth(items, 2, 1, nodes).bound >= most - 1e-9);
  }
}

TEST_CASE("what costs nothing is always in, and nothing is rented where nothing fits") {
  const RentalSets free = MostWorth({{1, 0, 4}, {1, 1, 4}}, 2.5, 3, 1000);
  REQUIRE(free.best.size() == 1);
  CHECK(free.best[0].counts == std::vector<int>{4, 2});
  const RentalSets nothing = MostWorth({{1, 3, 4}}, 2.5, 3, 1000);
  CHECK(nothing.best.front().worth == 0);
  CHECK(nothing.bound == 0);
}

}  // namespace
}  // namespace tessera::scheduler
