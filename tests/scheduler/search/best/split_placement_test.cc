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

// Three gated delta nets for each layer that attends, with much to keep of each sequence.
void KeepStates(ModelShape* model) {
  LayerShape delta = model->kinds[0];
  delta.heads = delta.kv_heads = delta.head_dim = 0;
  delta.key_groups = 16;
  delta.group_columns = 768;
  delta.group_values = 256;
  delta.group_gates = 4;
  delta.conv_taps = 4;
  delta.group_state_elements = 400000;
  model->kinds.push_back(delta);
  model->layers = 8;
  model->max_positions = 16384;
  for (int layer = 0; layer < model->layers; ++layer)
    model->kind_of_layer.push_back(layer % 4 == 3 ? 0 : 1);
}

TEST_CASE("of models that keep states, what is found is mostly the best of all, split or not") {
  int compared = 0, best_found = 0, split = 0, seated = 0;
  for (int seed = 0; seed < 25; ++seed) {
    CensusInstance instance;
    MakeCensusInstance(seed, &instance);
    if (instance.graph.devices() > 5) continue;  // more take minutes to enumerate
    KeepStates(&instance.model);
    INFO("seed " << seed);
    const EnumeratedPlacement best = EnumeratePlacements(instance.problem);
    const absl::StatusOr<Placement> found = (*FindSearch("best"))(instance.problem);
    if (best.replicas.empty()) {
      CHECK(!found.ok());
      continue;
    }
    REQUIRE(found.status().message() == "");
    CAPTURE(found->requests_per_second, best.requests_per_second);
    const double part = found->requests_per_second / best.requests_per_second;
    CHECK(part <= 1 + 1e-6);
    CHECK(part >= 0.85);
    ++compared;
    best_found += part >= 0.995 ? 1 : 0;
    CHECK(found->requests_per_second <= found->upper_bound * (1 + 1e-6));
    if (AllSplit(best.replicas)) ++split;
    for (const PlacedReplica& replica : found->replicas) {
      const double rows = replica.rate.decode_rows * replica.rate.micro_batches;
      CHECK(rows <= replica.rate.seats * (1 + 1e-9));
      seated += rows > 0.999 * replica.rate.seats ? 1 : 0;
    }
  }
  CAPTURE(compared, best_found, split, seated);
  CHECK(compared >= 10);
  CHECK(best_found >= compared - 1);  // its bounds count the cheapest layer for all
  CHECK(split >= 3);
  CHECK(seated >= 3);
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

TEST_CASE("a cluster of more devices than are split is refused by name, at once") {
  v1::Cluster cluster;
  REQUIRE(ReadDocument(SeededCluster({1, kSplitUpTo + 200, 2}), "cluster", &cluster).ok());
  const ModelShape model = Llama2_70B();
  const absl::StatusOr<ClusterGraph> graph =
      MakeClusterGraph(cluster, *BuiltInDevices(), "cluster");
  REQUIRE(graph.ok());
  PlacementProblem problem;
  problem.model = &model;
  problem.graph = &*graph;
  problem.samples = {{700, 100, 1}};
  const absl::StatusOr<Placement> found = SplitSearch(problem);
  REQUIRE(absl::IsInvalidArgument(found.status()));
  CHECK(found.status().message().find("on up to 1000 devices") != std::string::npos);
  CHECK(found.status().message().find("leave --split out") != std::string::npos);
}

}  // namespace
}  // namespace tessera::scheduler
