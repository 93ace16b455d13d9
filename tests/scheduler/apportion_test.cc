#include "scheduler/apportion.h"

#include <catch2/catch.hpp>
#include <functional>
#include <numeric>

#include "scheduler/search/math/seeded_random.h"

namespace tessera::scheduler {
namespace {

double Distance(const std::vector<int64_t>& counts, const std::vector<double>& fractions) {
  const double sum = std::accumulate(fractions.begin(), fractions.end(), 0.0);
  const int64_t granules = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  double distance = 0;
  for (size_t r = 0; r < counts.size(); ++r) {
    const double missing =
        static_cast<double>(counts[r]) - static_cast<double>(granules) * fractions[r] / sum;
    distance += missing * missing;
  }
  return distance;
}

// The least distance of all deals that give every rank a granule.
double LeastDistance(int64_t granules, const std::vector<double>& fractions) {
  double least = 1e18;
  std::vector<int64_t> counts(fractions.size(), 1);
  const std::function<void(size_t, int64_t)> deal = [&](size_t rank, int64_t left) {
    if (rank + 1 == counts.size()) {
      counts[rank] = left;
      least = std::min(least, Distance(counts, fractions));
      return;
    }
    const auto others = static_cast<int64_t>(counts.size() - rank - 1);
    for (counts[rank] = 1; counts[rank] <= left - others; ++counts[rank])
      deal(rank + 1, left - counts[rank]);
  };
  deal(0, granules);
  return least;
}

TEST_CASE("granules are dealt as near to the fractions as any deal of up to 4 ranks is") {
  SeededRandom random(7);
  for (size_t ranks = 1; ranks <= 4; ++ranks) {
    for (int64_t granules = static_cast<int64_t>(ranks); granules <= 12; ++granules) {
      for (int draw = 0; draw < 30; ++draw) {
        std::vector<double> fractions;
        for (size_t r = 0; r < ranks; ++r)
          fractions.push_back(1 + static_cast<double>(random.Below(50)));
        const std::vector<int64_t> counts = Apportion(granules, fractions);
        CHECK(std::accumulate(counts.begin(), counts.end(), int64_t{0}) == granules);
        CHECK(*std::min_element(counts.begin(), counts.end()) >= 1);
        CHECK(Distance(counts, fractions) ==
              Approx(LeastDistance(granules, fractions)).margin(1e-9));
      }
    }
  }
}

TEST_CASE("cuts of cards that people own") {
  CHECK(Apportion(8, std::vector<double>{1792, 936}) == std::vector<int64_t>{5, 3});
  CHECK(Apportion(4, std::vector<double>{0.64, 0.36}) == std::vector<int64_t>{3, 1});
  CHECK(Apportion(8, std::vector<double>{0.47, 0.27, 0.27}) == std::vector<int64_t>{4, 2, 2});
  CHECK(Apportion(10, std::vector<double>{1, 1, 1}) == std::vector<int64_t>{4, 3, 3});
  CHECK(Apportion(8, std::vector<double>{1, 100}) == std::vector<int64_t>{1, 7});
  CHECK(Apportion(0, std::vector<double>{1, 2}) == std::vector<int64_t>{0, 0});
  CHECK(Apportion(2, std::vector<double>{1, 2, 3}) == std::vector<int64_t>{1, 1, 0});
}

}  // namespace
}  // namespace tessera::scheduler
