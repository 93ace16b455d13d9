// Goodput of few devices against every way to deal them to replicas that both prefill and decode,
// with every layout.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>

#include "scheduler/search/best/goodput_search.h"
#include "tests/scheduler/search/placement_census.h"

namespace tessera::tests {
namespace {

// Bazel's parts of a test: which one this is, of how many.
struct Shard {
  int index = 0, count = 1;
};

Shard ThisShard() {
  const char* index = std::getenv("TEST_SHARD_INDEX");
  const char* count = std::getenv("TEST_TOTAL_SHARDS");
  if (index == nullptr || count == nullptr || std::atoi(count) < 1) return {};
  if (const char* heeded = std::getenv("TEST_SHARD_STATUS_FILE")) std::ofstream{heeded};
  return {std::atoi(index), std::atoi(count)};
}

TEST_CASE("the search for goodput finds the best placement that does not split, or nearly it") {
  int feasible = 0, equal = 0, binding = 0;
  const Shard shard = ThisShard();
  for (int seed = shard.index; seed < 80; seed += shard.count) {
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
  CHECK(feasible >= 40 / shard.count);
  CHECK(equal >= feasible - (shard.count > 1 ? 1 : 3));
  CHECK(binding >= feasible / 2);
}

}  // namespace
}  // namespace tessera::tests
