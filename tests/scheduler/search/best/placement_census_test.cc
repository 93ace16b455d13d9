// A sample of tests/bench/placement_optimum.
#include "tests/scheduler/search/placement_census.h"

#include <catch2/catch.hpp>

#include "scheduler/search/best/configuration_search.h"

namespace tessera::tests {
namespace {

TEST_CASE("the search finds the best placement of few devices and proves it, asked or not") {
  int feasible = 0, split = 0, links = 0;
  for (int seed = 0; seed < 30; ++seed) {
    if (seed % 10 == 7) continue;  // seven or eight devices: the benchmark's
    INFO("seed " << seed);
    CensusInstance instance;
    MakeCensusInstance(seed, &instance);
    const EnumeratedPlacement best = EnumeratePlacements(instance.problem);
    const absl::StatusOr<scheduler::Placement> found =
        scheduler::SearchConfigurations(instance.problem);
    REQUIRE(found.ok() == (best.requests_per_second > 0));
    if (!found.ok()) continue;
    ++feasible;
    split += TraitsOf(instance.problem, best).split ? 1 : 0;
    links += best.over_free_links > best.requests_per_second * (1 + 1e-6) ? 1 : 0;
    CAPTURE(found->requests_per_second, found->upper_bound, best.requests_per_second);
    const Verdict verdict = JudgeFound(*found, best);
    CHECK(verdict.optimal);
    CHECK(verdict.proved);
  }
  CHECK(feasible >= 20);
  CHECK(split >= 4);
  CHECK(links >= 1);
}

}  // namespace
}  // namespace tessera::tests
