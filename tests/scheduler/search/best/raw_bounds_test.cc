// The bounds as the searches find them, before what they found raises them, against enumeration:
// of few devices, of the configuration program, of the search by class, and of the pricing that
// these two rest on.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <map>
#include <utility>
#include <vector>

#include "scheduler/search/best/class_search.h"
#include "scheduler/search/best/configuration_program.h"
#include "scheduler/search/best/configuration_search.h"
#include "scheduler/search/math/linear_program.h"
#include "scheduler/search/math/seeded_random.h"
#include "tests/scheduler/search/every_layout.h"
#include "tests/scheduler/search/placement_census.h"

namespace tessera::scheduler {
namespace {

using namespace tests;  // NOLINT: instances

constexpr double kRounding = 1e-9;
constexpr std::array kRoles = {Role::kBoth, Role::kPrefill, Role::kDecode};

std::vector<int> AllDevices(const PlacementProblem& problem) {
  std::vector<int> all;
  for (const DevicePool& pool : problem.graph->pools()) all.push_back(pool.count);
  return all;
}

// The most that a replica of the role serves, by the devices that it takes of each class.
std::map<std::vector<int>, double> MostByDevices(const PlacementProblem& problem, Role role,
                                                 const DeviceClasses& classes) {
  std::vector<size_t> class_of(problem.graph->pools().size(), 0);
  for (int c = 0; c < classes.size(); ++c) {
    for (const int pool : classes[c].pools) class_of[static_cast<size_t>(pool)] = c;
  }
  const LengthMoments lengths = MomentsOf(problem.samples);
  const LayoutProblem layout = OnWholeGraph(problem, role);
  std::map<std::vector<int>, double> most;
  ForEveryLayout(layout, [&](const std::vector<LayoutStage>& stages) {
    std::vector<int> devices(static_cast<size_t>(classes.size()), 0);
    for (const LayoutStage& stage : stages)
      devices[class_of[static_cast<size_t>(stage.pool)]] += stage.width;
    double& known = most[devices];
    known = std::max(known, CapacityOf(*problem.model, tests::ReplicaOf(layout, stages), lengths,
                                       problem.options)
                                .requests_per_second);
  });
  return most;
}

// The configuration program over all legal replicas, in any parts of them.
double RelaxedOptimum(const PlacementProblem& problem, const DeviceClasses& classes) {
  LinearProgram program;
  std::vector<int> device_rows;
  for (const DeviceClass& of : classes.all())
    device_rows.push_back(program.AddRow(-kUnbounded, of.devices()));
  const int prefill_row = program.AddRow(-kUnbounded, 0);
  const int decode_row = program.AddRow(-kUnbounded, 0);
  const int split = program.AddVariable(1, 0, kUnbounded, false);
  program.AddTerm(prefill_row, split, 1);
  program.AddTerm(decode_row, split, 1);
  for (const Role role : kRoles) {
    for (const auto& [devices, rate] : MostByDevices(problem, role, classes)) {
      const int y = program.AddVariable(role == Role::kBoth ? rate : 0, 0, kUnbounded, false);
      for (size_t c = 0; c < devices.size(); ++c) program.AddTerm(device_rows[c], y, devices[c]);
      if (role == Role::kPrefill) program.AddTerm(prefill_row, y, -rate);
      if (role == Role::kDecode) program.AddTerm(decode_row, y, -rate);
    }
  }
  const absl::StatusOr<LinearProgram::Solution> solution = program.Solve(true);
  REQUIRE(solution.ok());
  return solution->objective;
}

struct Tightest {
  double few = 1e9, program = 1e9, by_class = 1e9;
};

void CheckBounds(const PlacementProblem& problem, const EnumeratedPlacement& best,
                 Tightest* tightest) {
  const double most = best.requests_per_second;
  const FewDevicesResult few = SearchFewDevices(problem);
  REQUIRE(few.placement);
  CHECK(few.placement->upper_bound >= most * (1 - kRounding));
  CHECK(few.placement->requests_per_second <= most * (1 + 1e-6));
  tightest->few = std::min(tightest->few, few.placement->upper_bound / most);

  const DeviceClasses classes(*problem.graph, AllDevices(problem));
  StageShapes shapes(*problem.model, MomentsOf(problem.samples), problem.options);
  ConfigurationProgram program(problem, classes, &shapes);
  program.Generate({RolesOf(problem)});
  // Parts of replicas serve more than whole ones, and KV passes over no links.
  const double relaxed = RelaxedOptimum(problem, classes);
  REQUIRE(relaxed >= best.over_free_links * (1 - 1e-6));
  CHECK(program.bound() >= relaxed * (1 - 1e-6));
  tightest->program = std::min(tightest->program, program.bound() / relaxed);

  const ClassSearchResult by_class = SearchByClass(problem);
  CHECK(by_class.upper_bound >= relaxed * (1 - 1e-6));
  if (by_class.placement) CHECK(by_class.placement->requests_per_second <= most * (1 + 1e-6));
  tightest->by_class = std::min(tightest->by_class, by_class.upper_bound / relaxed);
}

TEST_CASE("no placement that enumeration finds serves more than any bound") {
  for (const bool unlike_links : {false, true}) {
    int feasible = 0, split = 0;
    Tightest tightest;
    for (int seed = 100; seed < 122; ++seed) {
      if (seed % 10 == 7) continue;  // seven or eight devices: too many layouts
      INFO("seed " << seed << ", unlike links " << unlike_links);
      CensusInstance instance;
      MakeCensusInstance(seed, &instance, unlike_links);
      const EnumeratedPlacement best = EnumeratePlacements(instance.problem);
      if (best.requests_per_second <= 0) continue;
      ++feasible;
      split += TraitsOf(instance.problem, best).split ? 1 : 0;
      CheckBounds(instance.problem, best, &tightest);
    }
    CHECK(feasible >= 14);
    CHECK(split >= 3);
    // They say something.
    CHECK(tightest.few < 1 + 1e-5);
    CHECK(tightest.program < 1.005);
    CHECK(tightest.by_class < 1.05);
  }
}

TEST_CASE("no replica that enumeration finds serves more per price than pricing says") {
  SeededRandom random(11);
  int priced = 0;
  double tightest = 1e9;
  for (int seed = 200; seed < 220; ++seed) {
    if (seed % 10 == 7) continue;
    CensusInstance instance;
    MakeCensusInstance(seed, &instance, seed % 2 == 0);
    const PlacementProblem& problem = instance.problem;
    const DeviceClasses classes(*problem.graph, AllDevices(problem));
    StageShapes shapes(*problem.model, MomentsOf(problem.samples), problem.options);
    ReplicaPricing pricing(classes, &shapes);
    for (const Role role : kRoles) {
      const auto most = MostByDevices(problem, role, classes);
      // Few boxes, and many that are not looked into: the bound has to hold wherever it is left.
      for (const auto& [boxes, tolerance] :
           {std::pair(20000, 0.01), {20000, 0.1}, {100, 0.01}, {20, 0.01}, {5, 0.01}}) {
        INFO("seed " << seed << ", " << Name(role) << ", " << boxes << " boxes, within "
                     << tolerance);
        PricingQuery query;
        query.role = role;
        query.max_boxes = boxes;
        query.tolerance = tolerance;
        for (int c = 0; c < classes.size(); ++c) query.prices.push_back(0.1 + random.Unit());
        double best = 0;
        for (const auto& [devices, rate] : most) {
          double price = 0;
          for (size_t c = 0; c < devices.size(); ++c) price += devices[c] * query.prices[c];
          best = std::max(best, rate / price);
        }
        double bound = 0;
        for (int group = classes.groups() > 1 ? -1 : 0; group < classes.groups(); ++group) {
          query.group = group;
          bound = std::max(bound, pricing.Run(query).bound);
        }
        CHECK(bound >= best * (1 - kRounding));
        if (best <= 0) continue;
        ++priced;
        tightest = std::min(tightest, bound / best);
      }
    }
  }
  CHECK(priced >= 150);
  CHECK(tightest < 1.02);
}

TEST_CASE("a bound below what is served is none, but for rounding") {
  CHECK(BoundOver(3.5, 3) == 3.5);
  CHECK(BoundOver(3 * (1 - 1e-7), 3) == 3);
  CHECK(BoundOver(0, 3) == 0);
  CHECK(BoundOver(3 * (1 - 1e-5), 3) == 0);
}

}  // namespace
}  // namespace tessera::scheduler
