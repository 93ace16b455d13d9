#include "scheduler/search/baselines/cost_program.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "scheduler/search/baselines/cost_search.h"
#include "scheduler/search/baselines/exhaustive_search.h"
#include "tests/scheduler/search/placement_instance.h"

namespace tessera::scheduler {
namespace {

using namespace tests;  // NOLINT: the instances

CostProgram RandomProgram(uint64_t seed) {
  SeededRandom random(seed);
  CostProgram program;
  const size_t classes = 1 + seed % 4;
  for (size_t w = 0; w < classes; ++w) program.class_rates.push_back(1 + 9 * random.Unit());
  for (int n = 0; n < 4; ++n) program.available.push_back(1 + random.Below(6));
  for (int c = 0; c < 8; ++c) {
    CostProgram::Configuration configuration;
    configuration.devices.assign(4, 0);
    configuration.devices[static_cast<size_t>(random.Below(4))] = 1 + random.Below(2);
    configuration.usd_per_hour = 0.5 + 4 * random.Unit();
    for (size_t w = 0; w < classes; ++w)
      configuration.requests_per_second.push_back(0.5 + 10 * random.Unit());
    program.configurations.push_back(configuration);
  }
  if (seed % 2 == 0) program.budget_usd_per_hour = 4 + 6 * random.Unit();
  return program;
}

void CheckWithinLimits(const CostProgram& program, const Rental& rental) {
  CHECK(rental.usd_per_hour <= program.budget_usd_per_hour * (1 + 1e-9));
  for (size_t n = 0; n < program.available.size(); ++n) {
    int used = 0;
    for (size_t c = 0; c < program.configurations.size(); ++c)
      used += rental.copies[c] * program.configurations[c].devices[n];
    CHECK(used <= program.available[n]);
  }
  for (size_t w = 0; w < program.class_rates.size(); ++w) {
    double sum = 0;
    for (const std::vector<double>& shares : rental.shares) sum += shares[w];
    CHECK(sum == Approx(rental.served).epsilon(1e-6));
  }
  for (size_t c = 0; c < program.configurations.size(); ++c) {
    double work = 0;
    for (size_t w = 0; w < program.class_rates.size(); ++w)
      work += rental.shares[c][w] * program.class_rates[w] /
              program.configurations[c].requests_per_second[w];
    CHECK(work <= rental.copies[c] + 1e-6);
  }
}

TEST_CASE("bisection reaches the plain program's optimum within its gap") {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    INFO("seed " << seed);
    const CostProgram program = RandomProgram(seed);
    const auto plain = LargestRental(program), bisection = LargestRentalByBisection(program);
    REQUIRE(plain.ok() == bisection.ok());
    if (!plain.ok()) continue;
    CheckWithinLimits(program, *plain);
    CheckWithinLimits(program, *bisection);
    CHECK(bisection->served <= plain->served * (1 + 1e-6));
    CHECK(bisection->served >= plain->served * (1 - 0.001 - 1e-6));
    CHECK(bisection->programs >= 1);
  }
}

TEST_CASE("the least price serves what was asked, and a little more budget buys no less") {
  for (uint64_t seed = 1; seed < 20; seed += 2) {
    INFO("seed " << seed);
    CostProgram program = RandomProgram(seed);
    const auto most = LargestRental(program);
    REQUIRE(most.ok());
    for (double& rate : program.class_rates) rate *= most->served / 2;
    const auto cheapest = CheapestRental(program);
    REQUIRE(cheapest.ok());
    CheckWithinLimits(program, *cheapest);
    CHECK(cheapest->served == Approx(1));
    // Nothing cheaper serves it: the most for a cent less is below one.
    program.budget_usd_per_hour = cheapest->usd_per_hour - 0.01;
    const auto less = LargestRental(program);
    CHECK((!less.ok() || less->served < 1));
  }
}

TEST_CASE("what cannot be served is refused") {
  CostProgram program = RandomProgram(3);
  for (CostProgram::Configuration& configuration : program.configurations)
    configuration.requests_per_second[0] = 0;
  CHECK(LargestRental(program).status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(CheapestRental(program).status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(LargestRentalByBisection(program).status().code() == absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("who stops a program gets what was found until then, within its limits") {
  int cheapest = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    INFO("seed " << seed);
    CostProgram program = RandomProgram(seed);
    const auto whole = LargestRental(program);
    const auto least = CheapestRental(program);
    int asked = 0;
    program.stop = [&] { return ++asked > 0; };
    for (const auto& rental : {LargestRental(program), LargestRentalByBisection(program)}) {
      REQUIRE(rental.ok() == whole.ok());
      if (!rental.ok()) continue;
      CHECK(rental->served > 0);
      CHECK(rental->served <= whole->served * (1 + 1e-6));
      CheckWithinLimits(program, *rental);
    }
    CHECK(asked > 0);
    const auto stopped = CheapestRental(program);  // rounding may serve too little
    if (!stopped.ok()) continue;
    ++cheapest;
    REQUIRE(least.ok());
    CHECK(stopped->served >= 1 - 1e-6);
    CHECK(stopped->usd_per_hour >= least->usd_per_hour - 1e-6);
  }
  CHECK(cheapest > 0);
}

// The toy example of Melange's public code: requests of 2 x 2 sizes, 30 per second, on A10G at 1.01
// and A100 at 3.67 USD per hour; requests per second of one card by size.
TEST_CASE("Melange's toy: the known least prices for every slice factor") {
  for (const auto& [slices, price] :
       {std::pair(1, 6.70), {2, 5.69}, {3, 4.68}, {4, 5.69}, {8, 5.69}}) {
    INFO(slices << " slices");
    CostProgram program;
    program.configurations = {{{}, 1.01, {2, 1, 5, 2}}, {{}, 3.67, {20, 20, 40, 20}}};
    program.class_rates = {0.2 * 30, 0.1 * 30, 0.5 * 30, 0.2 * 30};
    program.slices = slices;
    const auto rental = CheapestRental(program);
    REQUIRE(rental.ok());
    CHECK(rental->usd_per_hour == Approx(price).margin(1e-9));
    for (const std::vector<double>& shares : rental->shares) {
      for (const double share : shares)
        CHECK(share * slices == Approx(std::round(share * slices)).margin(1e-6));
    }
  }
}

TEST_CASE("the search cost is near the optimum without split roles, and never above it") {
  int feasible = 0, near = 0;
  for (int seed = 3000; seed < 3016; ++seed) {
    INFO("seed " << seed);
    LayoutInstance instance;
    PlacementProblem problem = PlacementInstance(seed, &instance);
    problem.prove = true;
    problem.allow_split = false;
    const auto best = SearchExhaustively(problem), found = SearchByCost(problem);
    // Its configurations are of at most two kinds, so it may find none.
    if (!best.ok() || !found.ok()) {
      CHECK((best.ok() || !found.ok()));
      continue;
    }
    ++feasible;
    CHECK(found->requests_per_second <= best->requests_per_second * (1 + 1e-9));
    near += found->requests_per_second >= best->requests_per_second * 0.98 ? 1 : 0;
  }
  CHECK(feasible >= 8);
  CHECK(near >= feasible / 2);
}

}  // namespace
}  // namespace tessera::scheduler
