#include "scheduler/search/best/configuration_program.h"

#include <catch2/catch.hpp>
#include <set>

#include "absl/strings/str_format.h"
#include "proto/document.h"
#include "scheduler/input/catalogue.h"
#include "scheduler/search/best/class_search.h"
#include "scheduler/search/searches.h"
#include "tests/scheduler/cost/shapes.h"
#include "tests/scheduler/search/placement_instance.h"
#include "tests/scheduler/search/seeded_cluster.h"

namespace tessera::scheduler {
namespace {

using namespace tests;  // NOLINT: instances and models

double BoundOf(const PlacementProblem& problem) {
  std::vector<int> free;
  for (const DevicePool& pool : problem.graph->pools()) free.push_back(pool.count);
  const DeviceClasses classes(*problem.graph, free);
  StageShapes shapes(*problem.model, MomentsOf(problem.samples), problem.options);
  ConfigurationProgram program(problem, classes, &shapes);
  program.Generate({RolesOf(problem)});
  return program.bound();
}

TEST_CASE("no placement that enumeration finds serves more than the bound") {
  int feasible = 0;
  double tightest = 1e9;
  for (int seed = 4000; seed < 4040; ++seed) {
    INFO("seed " << seed);
    LayoutInstance instance;
    PlacementProblem problem = PlacementInstance(seed, &instance);
    problem.prove = true;
    if (seed % 3 == 0) problem.options.max_tpot_seconds = 0.03 + 0.01 * (seed % 7);
    problem.allow_split = seed % 2 == 0;
    const absl::StatusOr<Search> exact = FindSearch("exact");
    REQUIRE(exact.ok());
    const absl::StatusOr<Placement> best = (*exact)(problem);
    if (!best.ok()) continue;
    ++feasible;
    const double bound = BoundOf(problem);
    CHECK(bound >= best->requests_per_second * (1 - 1e-9));
    tightest = std::min(tightest, bound / best->requests_per_second);
    const ClassSearchResult found = SearchByClass(problem);
    if (found.placement)
      CHECK(found.placement->requests_per_second <= best->requests_per_second * (1 + 1e-6));
  }
  CHECK(feasible >= 20);
  CHECK(tightest < 1.05);
}

// Two kinds that hold the model alone, one that takes two; none fits a cent more than its price.
constexpr char kPriced[] = R"(
machines:
- {name: a, devices: [{kind: A100-80, count: 2%s}]%s}
- {name: b, devices: [{kind: A6000, count: 2%s}]%s}
- {name: c, devices: [{kind: L4, count: 1%s}]%s}
tiers: {site: {bandwidth: 25 Gbit/s, latency: 50 us}}
)";

std::string PricedByDevice() {
  return absl::StrFormat(kPriced, ", price: 1.5 USD/h", "", ", price: 0.5 USD/h", "",
                         ", price: 0.4 USD/h", "");
}

std::string PricedByMachine() {
  return absl::StrFormat(kPriced, "", ", price: 3 USD/h", "", ", price: 1 USD/h", "",
                         ", price: 0.4 USD/h");
}

struct PricedProblem {
  ModelShape model;
  ClusterGraph graph;
  PlacementProblem problem;

  PricedProblem(const std::string& text, double budget) {
    const absl::StatusOr<v1::Model> known = BuiltInModel("Qwen2.5-14B");
    REQUIRE(known.ok());
    model = *MakeModelShape(*known);
    v1::Cluster cluster;
    REQUIRE(ReadDocument(text, "c", &cluster).message() == "");
    absl::StatusOr<ClusterGraph> made = MakeClusterGraph(cluster, *BuiltInDevices(), "c");
    REQUIRE(made.status().message() == "");
    graph = *std::move(made);
    problem.model = &model;
    problem.graph = &graph;
    problem.samples = {{700, 100, 0.5}, {1500, 300, 0.5}};
    problem.goal = Goal::kBudget;
    problem.budget_usd_per_hour = budget;
  }
};

// What the budgets buy, the bound of each checked.
std::set<double> CheckBudgets(const std::string& described, const std::vector<double>& budgets) {
  std::set<double> values;
  for (const double budget : budgets) {
    INFO("budget " << budget);
    const PricedProblem priced(described, budget);
    const absl::StatusOr<Placement> best = (*FindSearch("exact"))(priced.problem);
    REQUIRE(best.status().message() == "");
    CHECK(best->usd_per_hour <= budget * (1 + 1e-9));
    const double bound = BoundOf(priced.problem);
    CHECK(bound >= best->requests_per_second * (1 - 1e-9));
    CHECK(bound <= best->requests_per_second * 2.5);
    const absl::StatusOr<Placement> ours = (*FindSearch("best"))(priced.problem);
    REQUIRE(ours.status().message() == "");
    CHECK(ours->requests_per_second == Approx(best->requests_per_second));
    values.insert(best->requests_per_second);
  }
  return values;
}

TEST_CASE("within a budget too, no placement that enumeration finds serves more than the bound") {
  // The budget is what binds.
  CHECK(CheckBudgets(PricedByDevice(), {0.6, 1.1, 1.6, 2.1, 3.1, 4.1, 5.0}).size() >= 5);
}

TEST_CASE("where machines are rented whole, none serves more than the bound within a budget") {
  CHECK(CheckBudgets(PricedByMachine(), {1.1, 1.6, 3.1, 3.5, 4.1, 5.0}).size() >= 4);
  // One A6000 would do, but two are rented, which the L4 within the budget cannot stand in for.
  const PricedProblem too_little(PricedByMachine(), 0.6);
  for (const char* search : {"exact", "best"})
    CHECK_FALSE((*FindSearch(search))(too_little.problem).ok());
}

TEST_CASE("no search's placement serves more than the bound") {
  const ModelShape model = Llama2_70B();
  for (int seed = 1; seed <= 2; ++seed) {
    INFO("seed " << seed);
    v1::Cluster cluster;
    REQUIRE(ReadDocument(SeededCluster({seed, 10, seed}), "seeded cluster", &cluster).ok());
    const auto graph = MakeClusterGraph(cluster, *BuiltInDevices(), "seeded cluster");
    REQUIRE(graph.ok());
    PlacementProblem problem;
    problem.model = &model;
    problem.graph = &*graph;
    problem.samples = {{700, 100, 0.5}, {1500, 300, 0.5}};
    const double bound = BoundOf(problem);
    for (const std::string& name : SearchNames()) {
      if (name == "exact") continue;  // too many devices
      INFO(name);
      // Nobody waits for a search to converge: after some questions it is told to stop.
      int asked = 0;
      problem.watch.stop = [&asked] { return ++asked > 4; };
      const absl::StatusOr<Placement> found = (*FindSearch(name))(problem);
      if (found.ok()) CHECK(found->requests_per_second <= bound * (1 + 1e-9));
    }
  }
}

TEST_CASE("columns serve what they promise, and like devices are counted once") {
  const ModelShape model = Llama2_70B();
  v1::Cluster cluster;
  REQUIRE(ReadDocument("machines: [{name: a, available: 50, devices: [{kind: A100-80, count: 4}], "
                       "uplink: {bandwidth: 50 Gbit/s, latency: 20 us}}]\n"
                       "tiers: {site: {bandwidth: 100 Gbit/s, latency: 20 us}}",
                       "c", &cluster)
              .ok());
  const auto graph = MakeClusterGraph(cluster, *BuiltInDevices(), "c");
  REQUIRE(graph.ok());
  PlacementProblem problem;
  problem.model = &model;
  problem.graph = &*graph;
  problem.samples = {{1000, 200, 1}};
  const std::vector<int> free(graph->pools().size(), 4);
  const DeviceClasses classes(*graph, free);
  REQUIRE(classes.size() == 1);
  CHECK(classes[0].devices() == 200);
  CHECK(classes.Apart(0, 0).bytes_per_second == Approx(50e9 / 8));
  const ClassSearchResult found = SearchByClass(problem);
  REQUIRE(found.placement);
  CHECK(found.upper_bound >= found.placement->requests_per_second);
  CHECK(found.placement->requests_per_second >= 0.95 * found.upper_bound);
}

}  // namespace
}  // namespace tessera::scheduler
