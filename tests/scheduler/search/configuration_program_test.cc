#include "scheduler/search/configuration_program.h"

#include <catch2/catch.hpp>

#include "proto/document.h"
#include "scheduler/input/catalogue.h"
#include "scheduler/search/class_search.h"
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
  program.Generate({problem.allow_split});
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
