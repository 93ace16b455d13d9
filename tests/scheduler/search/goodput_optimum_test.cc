// Goodput of few devices against every way to deal them to replicas that both prefill and decode,
// with every layout.
#include <algorithm>
#include <catch2/catch.hpp>

#include "scheduler/search/goodput_search.h"
#include "tests/scheduler/search/placement_census.h"

namespace tessera::tests {
namespace {

TEST_CASE("the search for goodput finds the best placement that does not split, or nearly it") {
  int feasible = 0, equal = 0, binding = 0;
  for (int seed = 0; seed < 80; ++seed) {
    CensusInstance instance;
    MakeCensusInstance(seed, &instance);
    if (instance.graph.devices() > 5) continue;  // minutes of trying
    instance.model.layers = 6;
    scheduler::PlacementProblem& problem = instance.problem;
    problem.allow_split = false;
    problem.goal = scheduler::Goal::kGoodput;
    scheduler::RequestClass all;
    all.name = "all";
    all.samples = problem.samples;
    all.limits.ttft_seconds = 0.2 * (1 + seed % 7);
    all.limits.tpot_seconds = 0.01 * (1 + seed % 4);
    all.required_attainment = 0.9;
    problem.classes = {all};
    const EnumeratedPlacement best = EnumeratePlacements(problem);
    if (best.requests_per_second <= 0) continue;
    ++feasible;
    INFO("seed " << seed << ": " << best.requests_per_second << " requests/s are possible");
    const absl::StatusOr<scheduler::Placement> found = scheduler::SearchGoodput(problem);
    REQUIRE(found.status().message() == "");
    const double part = found->requests_per_second / best.requests_per_second;
    CHECK(part >= 0.95);
    // What meets the limits is searched for no closer than that.
    CHECK(part <= 1 + 1e-3);
    equal += part >= 1 - 1e-3 ? 1 : 0;
    // The bound is that of what they serve without limits.
    CHECK(found->upper_bound >= best.requests_per_second * (1 - 1e-6));
    binding += best.requests_per_second < 0.9 * found->upper_bound ? 1 : 0;
  }
  CHECK(feasible >= 40);
  CHECK(equal >= feasible * 97 / 100);
  CHECK(binding >= feasible / 2);
}

}  // namespace
}  // namespace tessera::tests
