#include "scheduler/search/baselines/exhaustive_search.h"

#include <catch2/catch.hpp>

#include "scheduler/search/baselines/genetic_search.h"
#include "scheduler/search/best/configuration_search.h"
#include "tests/scheduler/search/placement_instance.h"

namespace tessera::scheduler {
namespace {

using namespace tests;  // NOLINT: the instances

TEST_CASE("exact finds what the proved integer program finds, and no search is above its bound") {
  int feasible = 0, reached = 0;
  for (int seed = 3000; seed < 3024; ++seed) {
    INFO("seed " << seed);
    LayoutInstance instance;
    PlacementProblem problem = PlacementInstance(seed, &instance);
    problem.prove = true;
    problem.allow_split = false;
    const absl::StatusOr<Placement> exact = SearchExhaustively(problem);
    const absl::StatusOr<Placement> program = SearchConfigurations(problem);
    REQUIRE(exact.ok() == program.ok());
    if (!exact.ok()) continue;
    ++feasible;
    CHECK(exact->requests_per_second == Approx(program->requests_per_second).epsilon(1e-6));
    CHECK(exact->upper_bound == Approx(exact->requests_per_second).epsilon(1e-9));
    const absl::StatusOr<Placement> genetic = SearchGenetic(problem);
    REQUIRE(genetic.ok());
    CHECK(genetic->requests_per_second <= exact->upper_bound * (1 + 1e-9));
    reached += genetic->requests_per_second >= exact->requests_per_second * (1 - 1e-6) ? 1 : 0;
  }
  CHECK(feasible >= 18);
  CHECK(reached >= feasible * 9 / 10);
}

TEST_CASE("exact with split roles is between the unsplit optimum and the program's bound") {
  int feasible = 0;
  for (int seed = 3000; seed < 3008; ++seed) {
    INFO("seed " << seed);
    LayoutInstance instance;
    PlacementProblem problem = PlacementInstance(seed, &instance);
    problem.prove = true;
    const absl::StatusOr<Placement> split = SearchExhaustively(problem);
    const absl::StatusOr<Placement> program = SearchConfigurations(problem);
    REQUIRE(split.ok() == program.ok());
    if (!split.ok()) continue;
    ++feasible;
    CHECK(split->requests_per_second >= program->requests_per_second * (1 - 1e-6));
    CHECK(split->requests_per_second <= program->upper_bound * (1 + 1e-6));
    CHECK(split->upper_bound == Approx(program->upper_bound).epsilon(1e-5));
  }
  CHECK(feasible >= 5);
}

TEST_CASE("exact claims no bound where it does not try all layouts") {
  LayoutInstance instance;
  PlacementProblem problem = PlacementInstance(3001, &instance);
  problem.allow_split = false;
  const absl::StatusOr<Placement> rate = SearchExhaustively(problem);
  REQUIRE(rate.status().message() == "");
  CHECK(rate->upper_bound > 0);
  CHECK(rate->notes.empty());
  ExhaustiveOptions quick;
  quick.most_proof_work = 0;
  const absl::StatusOr<Placement> unproved = SearchExhaustively(problem, quick);
  REQUIRE(unproved.status().message() == "");
  CHECK(unproved->upper_bound == 0);
  REQUIRE(unproved->notes.size() == 1);
  CHECK(unproved->notes[0].search_limit() == v1::SEARCH_LIMIT_QUICK_LAYOUTS);
  RequestClass all;
  all.name = "all";
  all.samples = problem.samples;
  all.limits.ttft_seconds = 10;
  all.limits.tpot_seconds = 1;
  all.required_attainment = 0.5;
  problem.classes = {all};
  problem.goal = Goal::kGoodput;
  const absl::StatusOr<Placement> goodput = SearchExhaustively(problem);
  REQUIRE(goodput.status().message() == "");
  CHECK(goodput->requests_per_second > 0);
  CHECK(goodput->upper_bound == 0);
  REQUIRE(goodput->notes.size() == 1);
  CHECK(goodput->notes[0].search_limit() == v1::SEARCH_LIMIT_FASTEST_LAYOUTS);
}

TEST_CASE("too many devices are refused by name") {
  LayoutInstance instance;
  const PlacementProblem problem = PlacementInstance(3000, &instance);
  ExhaustiveOptions options;
  options.most_devices = 2;
  const absl::Status status = SearchExhaustively(problem, options).status();
  CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK_THAT(std::string(status.message()), Catch::Contains("at most 2 devices"));
}

}  // namespace
}  // namespace tessera::scheduler
