#include "scheduler/search/best/split_placement.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "proto/document.h"
#include "scheduler/input/catalogue.h"
#include "scheduler/search/searches.h"
#include "tests/scheduler/cost/shapes.h"
#include "tests/scheduler/search/placement_census.h"
#include "tests/scheduler/search/placement_enumerator.h"
#include "tests/scheduler/search/seeded_cluster.h"

namespace tessera::scheduler {
namespace {

using namespace tests;  // NOLINT: instances and models

bool AllSplit(const auto& replicas) {
  return std::all_of(replicas.begin(), replicas.end(),
                     [](const auto& replica) { return replica.role != Role::kBoth; });
}

TEST_CASE("where the best of all placements is split, what is found comes near it") {
  int split = 0;
  double sum = 0, worst = 1;
  for (int seed = 0; seed < 80; ++seed) {
    INFO("seed " << seed);
    CensusInstance instance;
    MakeCensusInstance(seed, &instance);
    instance.problem.codec_rates.strongest = KvCodec::kInt4;
    const std::optional<Placement> found = SplitPlacement(instance.problem);
    if (found) CHECK(AllSplit(found->replicas));
    if (seed % 10 == 7) continue;  // eight devices: enumerating takes seconds
    const EnumeratedPlacement best = EnumeratePlacements(instance.problem);
    if (found) CHECK(found->requests_per_second <= best.requests_per_second * (1 + 1e-6));
    if (best.replicas.empty() || !AllSplit(best.replicas)) continue;
    ++split;
    const double part = found ? found->requests_per_second / best.requests_per_second : 0;
    sum += part;
    worst = std::min(worst, part);
  }
  INFO("in the middle " << sum / split << ", at worst " << worst);
  CHECK(split >= 10);
  CHECK(sum >= 0.92 * split);
  CHECK(worst >= 0.5);
}

TEST_CASE("the searches that split for the sake of it find little better on larger clusters") {
  int beside = 0;
  for (int seed = 0; seed < 8; ++seed) {
    INFO("seed " << seed);
    v1::Cluster cluster;
    REQUIRE(ReadDocument(SeededCluster({seed, 12 + seed, 1 + seed % 3}), "cluster", &cluster).ok());
    const ModelShape model = Llama2_70B();
    const absl::StatusOr<ClusterGraph> graph =
        MakeClusterGraph(cluster, *BuiltInDevices(), "cluster");
    REQUIRE(graph.ok());
    PlacementProblem problem;
    problem.model = &model;
    problem.graph = &*graph;
    problem.samples = {{700, 100, 0.5}, {1500, 300, 0.5}};
    const std::optional<Placement> found = SplitPlacement(problem);
    for (const char* name : {"hexgen2", "thunderserve"}) {
      INFO(name);
      const absl::StatusOr<Placement> other = (*FindSearch(name))(problem);
      if (!other.ok() || !AllSplit(other->replicas)) continue;
      ++beside;
      REQUIRE(found);
      CHECK(found->requests_per_second >= 0.96 * other->requests_per_second);
    }
  }
  CHECK(beside >= 6);
}

}  // namespace
}  // namespace tessera::scheduler
