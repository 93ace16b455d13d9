// Few devices whose machines are joined by links of their own, other ones in either direction, with
// uplinks here and there: what is found is the best of every placement, and so is what is proved.
#include <catch2/catch.hpp>
#include <cmath>

#include "scheduler/search/best/configuration_search.h"
#include "tests/scheduler/search/placement_census.h"

namespace tessera::tests {
namespace {

TEST_CASE("with links by pair the best placement of few devices is found, and proved") {
  int feasible = 0, split = 0, differ = 0;
  for (int seed = 100; seed < 130; ++seed) {
    if (seed % 10 == 7) continue;  // seven or eight devices: minutes of trying
    INFO("seed " << seed);
    CensusInstance instance, alike;
    MakeCensusInstance(seed, &instance, true);
    MakeCensusInstance(seed, &alike);
    const EnumeratedPlacement best = EnumeratePlacements(instance.problem);
    const absl::StatusOr<scheduler::Placement> found =
        scheduler::SearchConfigurations(instance.problem);
    REQUIRE(found.ok() == (best.requests_per_second > 0));
    if (!found.ok()) continue;
    ++feasible;
    split += TraitsOf(instance.problem, best).split ? 1 : 0;
    const absl::StatusOr<scheduler::Placement> other =
        scheduler::SearchConfigurations(alike.problem);
    differ +=
        !other.ok() || std::abs(other->requests_per_second / best.requests_per_second - 1) > 1e-3
            ? 1
            : 0;
    CAPTURE(found->requests_per_second, found->upper_bound, best.requests_per_second);
    const Verdict verdict = JudgeFound(*found, best);
    CHECK(verdict.optimal);
    CHECK(verdict.proved);
  }
  CHECK(feasible >= 20);
  CHECK(split >= 4);
  CHECK(differ >= 10);  // the links decide
}

}  // namespace
}  // namespace tessera::tests
