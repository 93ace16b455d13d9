#include "scheduler/search/best/class_search.h"

#include <catch2/catch.hpp>

#include "proto/document.h"
#include "scheduler/input/catalogue.h"
#include "scheduler/input/workload_samples.h"
#include "scheduler/search/layout/assemble.h"
#include "scheduler/search/layout/device_classes.h"
#include "scheduler/search/layout/layer_dealing.h"
#include "scheduler/search/layout/replica_shaping.h"
#include "tests/scheduler/cost/shapes.h"
#include "tests/scheduler/search/seeded_cluster.h"

namespace tessera::scheduler {
namespace {

using namespace tests;  // NOLINT: instances and models

constexpr double kLoss = 0.001;

struct Case {
  ModelShape model = Llama2_70B();
  absl::StatusOr<ClusterGraph> graph = absl::CancelledError("not read");
  PlacementProblem problem;

  explicit Case(const v1::Cluster& cluster) {
    graph = MakeClusterGraph(cluster, *BuiltInDevices(), "cluster");
    REQUIRE(graph.ok());
    problem.model = &model;
    problem.graph = &*graph;
    problem.samples = {{700, 100, 0.5}, {1500, 300, 0.5}};
    problem.budget_usd_per_hour = graph->budget_usd_per_hour();
  }
};

v1::Cluster Read(const std::string& text) {
  v1::Cluster cluster;
  const absl::Status read = ReadDocument(text, "cluster", &cluster);
  INFO(read.message());
  REQUIRE(read.ok());
  return cluster;
}

std::vector<RequestLengths> Conversation() {
  v1::Workload workload;
  REQUIRE(ReadDocumentFile("deploy/workloads/azure_conversation.yaml", &workload).ok());
  const auto samples = SamplesOf(workload, {}, 4096, "azure_conversation.yaml");
  REQUIRE(samples.ok());
  return samples->samples;
}

PlacedReplica Replica(std::vector<LayoutStage> stages) {
  PlacedReplica replica;
  replica.stages = std::move(stages);
  return replica;
}

void FindsAsMuchAs(const std::vector<std::vector<LayoutStage>>& replicas,
                   const PlacementProblem& problem) {
  std::vector<PlacedReplica> placed;
  for (const std::vector<LayoutStage>& stages : replicas) placed.push_back(Replica(stages));
  const absl::StatusOr<Placement> known = Assemble(problem, placed);
  REQUIRE(known.ok());
  REQUIRE(known->requests_per_second > 1);
  const ClassSearchResult found = SearchByClass(problem);
  REQUIRE(found.placement);
  CHECK(found.placement->requests_per_second >= known->requests_per_second * (1 - kLoss));
  CHECK(found.placement->requests_per_second <= found.upper_bound * (1 + 1e-9));
}

// Columns of the program took pairs of V100 and left the one beside the RTX3090 idle: 8.8 % less.
TEST_CASE("one replica of all devices is found where no column is that") {
  Case c(Read(
      "machines:\n"
      "- {name: m0, rack: r0, devices: [{kind: V100-32, count: 2}], inside: {bandwidth: 4 GB/s, "
      "latency: 30 us}}\n"
      "- {name: m1, rack: r0, devices: [{kind: RTX3090, count: 1}, {kind: V100-32, count: 1}]}\n"
      "- {name: m2, rack: r1, devices: [{kind: V100-32, count: 8}]}\n"
      "tiers: {rack: {bandwidth: 10 Gbit/s, latency: 20 us}, site: {bandwidth: 40 Gbit/s, latency: "
      "50 us}}\n"));
  std::vector<LayoutStage> stages = {{1, 1, 3}, {2, 1, 7}};
  stages.insert(stages.end(), 8, {3, 1, 7});
  stages.insert(stages.end(), 2, {0, 1, 7});
  FindsAsMuchAs({stages}, c.problem);
}

struct Known {
  int seed, devices, sites;
  std::vector<std::vector<LayoutStage>> replicas;
};

// What searches over device groups found and the configuration program, followed by moves that each
// had to help, did not: 0.6 to 2.8 % less.
TEST_CASE("nothing better is known of clusters where rounding leaves much") {
  const std::vector<RequestLengths> samples = Conversation();
  const Known clusters[] = {
      // The stage with the head apart from the others of its machine.
      {5, 13, 3, {{{0, 1, 8}, {0, 1, 9}, {0, 1, 9}, {3, 2, 23}, {3, 2, 23}, {0, 1, 8}}}},
      // All of a machine, in wider stages, with the head in the middle of them.
      {11,
       20,
       3,
       {{{0, 2, 13}, {0, 2, 13}, {0, 2, 13}, {3, 1, 14}, {3, 1, 14}, {0, 2, 13}},
        {{2, 2, 10},
         {2, 1, 7},
         {2, 1, 7},
         {2, 1, 7},
         {2, 1, 7},
         {2, 1, 7},
         {2, 1, 7},
         {1, 1, 14},
         {1, 1, 14}}}},
      {29,
       41,
       3,
       {{{6, 2, 24}, {11, 1, 14}, {11, 1, 14}, {11, 1, 14}, {11, 1, 14}},
        {{4, 1, 20}, {4, 1, 20}, {4, 1, 20}, {4, 1, 20}},
        {{9, 2, 10}, {8, 2, 14}, {1, 1, 14}, {1, 1, 14}, {1, 1, 14}, {1, 1, 14}},
        {{3, 1, 4},
         {3, 1, 4},
         {3, 1, 4},
         {3, 1, 4},
         {3, 1, 4},
         {0, 1, 24},
         {3, 1, 4},
         {3, 1, 4},
         {3, 1, 4},
         {10, 2, 12},
         {10, 2, 12}},
        {{0, 1, 20},
         {7, 2, 10},
         {0, 1, 20},
         {0, 1, 20},
         {5, 1, 2},
         {2, 1, 2},
         {2, 1, 4},
         {2, 1, 2}}}},
      // A device from one replica to another, which gives one to a third.
      {13,
       22,
       2,
       {{{4, 1, 13}, {4, 1, 13}, {4, 1, 14}, {4, 1, 14}, {4, 1, 13}, {4, 1, 13}},
        {{1, 1, 20}, {1, 1, 20}, {1, 1, 20}, {1, 1, 20}},
        {{1, 1, 20}, {1, 1, 20}, {1, 1, 20}, {1, 1, 20}},
        {{0, 2, 10}, {3, 1, 8}, {6, 1, 28}, {3, 1, 8}, {2, 2, 26}}}},
  };
  for (const Known& cluster : clusters) {
    INFO("seed " << cluster.seed);
    Case c(Read(SeededCluster({cluster.seed, cluster.devices, cluster.sites, true})));
    c.problem.samples = samples;
    FindsAsMuchAs(cluster.replicas, c.problem);
  }
}

// Moves look at few ways to deal layers, and at pools of one width or two.
TEST_CASE("in the end layouts are looked at with more care") {
  struct Known {
    std::string cluster;
    std::vector<std::vector<LayoutStage>> replicas;
  };
  const std::vector<RequestLengths> samples = Conversation();
  const Known clusters[] = {
      // Five layers change hands for the KV of some sequences more.
      {"machines:\n"
       "- {name: a, devices: [{kind: A6000, count: 5}]}\n"
       "- {name: b, devices: [{kind: A5000, count: 2}]}\n"
       "- {name: c, devices: [{kind: A4000, count: 2}]}\n"
       "tiers: {site: {bandwidth: 25 Gbit/s, latency: 50 us}}\n",
       {{{1, 2, 15}, {2, 2, 10}, {0, 1, 11}, {0, 1, 11}, {0, 1, 11}, {0, 1, 11}, {0, 1, 11}}}},
      // Stages of one and of two of eight cards, the narrow ones at the ends.
      {SeededCluster({2, 20, 1, true, true}),
       {{{0, 1, 11}, {0, 1, 11}, {0, 2, 18}, {0, 1, 11}, {0, 2, 18}, {0, 1, 11}},
        {{1, 2, 12},
         {1, 2, 12},
         {2, 1, 7},
         {2, 1, 7},
         {2, 1, 7},
         {2, 1, 7},
         {2, 1, 7},
         {2, 1, 7},
         {2, 1, 7},
         {2, 1, 7}}}},
  };
  for (const Known& one : clusters) {
    INFO(one.cluster);
    Case c(Read(one.cluster));
    c.problem.samples = samples;
    FindsAsMuchAs(one.replicas, c.problem);
  }
}

// The RTX4090 first, and a V100 before the A100s beside it: either alone serves less.
TEST_CASE("in the end stages also change places two at a time") {
  Case c(Read(
      "machines:\n"
      "- {name: m0, devices: [{kind: V100-16}]}\n"
      "- {name: m1, devices: [{kind: A100-40, count: 2}, {kind: V100-16}], inside: {bandwidth: 12 "
      "GB/s, latency: 10 us}}\n"
      "- {name: m2, devices: [{kind: A100-40, count: 2}]}\n"
      "- {name: m3, devices: [{kind: A6000, count: 4}, {kind: RTX4090}], inside: {bandwidth: 4 "
      "GB/s, latency: 10 us}}\n"
      "links: [{from: m0, to: m1, link: {bandwidth: 2 Gbit/s, latency: 3 ms}}]\n"
      "tiers: {site: {bandwidth: 1 Gbit/s, latency: 50 us}}\n"));
  c.model = DenseShape("Llama-2-13B", 40, 5120, 40, 40, 13824);
  c.problem.samples = {{200, 600, 1}};
  FindsAsMuchAs({{{4, 1, 20}, {4, 1, 20}},
                 {{4, 1, 20}, {4, 1, 20}},
                 {{3, 2, 40}},
                 {{5, 1, 7}, {0, 1, 4}, {2, 1, 5}, {1, 1, 12}, {1, 1, 12}}},
                c.problem);
}

// Two of four A6000 in one stage between the others, all behind the L40S.
TEST_CASE("in the end the program lays out each replica coarsely, for steps from there") {
  Case c(Read(SeededCluster({1002, 14, 3, true})));
  c.model = Llama30B();
  c.problem.samples = {{512, 128, 1}};
  c.problem.options.max_tpot_seconds = 0.2;
  FindsAsMuchAs({{{4, 1, 10}, {4, 1, 10}, {4, 1, 10}, {1, 1, 8}, {1, 2, 14}, {1, 1, 8}},
                 {{3, 2, 15}, {3, 1, 9}, {2, 1, 9}, {3, 1, 9}, {0, 1, 9}, {0, 1, 9}}},
                c.problem);
}

TEST_CASE("layers are dealt evenly, or for the least time in all") {
  std::vector<DealtStage> stages = {{1, 1, 80, 0}, {0, 2, 80, 0}, {5, 1, 80, 0}};
  REQUIRE(DealLayersEvenly(12, &stages));
  CHECK(stages[0].layers == 7);  // 8 seconds, the others less
  CHECK(stages[1].layers == 3);
  CHECK(stages[2].layers == 2);
  stages[0].most = 3;
  REQUIRE(DealLayersEvenly(12, &stages));
  CHECK(stages[0].layers == 3);
  CHECK(stages[1].layers == 5);
  CHECK(stages[2].layers == 4);
  stages[0].most = 80;
  REQUIRE(DealLayersWithin(12, 10, &stages));  // as little as can be on the slow one
  CHECK(stages[0].layers == 9);
  CHECK(stages[1].layers == 1);
  CHECK(stages[2].layers == 2);
  CHECK_FALSE(DealLayersWithin(12, 5, &stages));
  stages = {{0, 1, 2, 0}, {0, 1, 2, 0}};
  CHECK_FALSE(DealLayersEvenly(5, &stages));
  CHECK_FALSE(DealLayersEvenly(1, &stages));
}

// Four stages of one A6000 were taken for the best that a machine of four can be.
TEST_CASE("what is rented is laid out in the widths that serve most") {
  Case c(Read(
      "budget: 12 USD/h\n"
      "machines:\n"
      "- {name: h100x2, available: 4, price: 5.0 USD/h, devices: [{kind: H100-SXM, count: 2}]}\n"
      "- {name: a100x2, available: 4, price: 3.0 USD/h, devices: [{kind: A100-80, count: 2}]}\n"
      "- {name: a6000x4, available: 6, price: 2.0 USD/h, devices: [{kind: A6000, count: 4}]}\n"
      "- {name: l40x4, available: 4, price: 3.2 USD/h, devices: [{kind: L40, count: 4}]}\n"
      "- {name: rtx4090x4, available: 8, price: 1.8 USD/h, devices: [{kind: RTX4090, count: 4}]}\n"
      "tiers: {site: {bandwidth: 10 Gbit/s, latency: 60 us}}\n"));
  c.problem.goal = Goal::kBudget;
  const absl::StatusOr<Placement> known =
      Assemble(c.problem, {Replica({{0, 1, 20}, {0, 1, 20}, {1, 1, 20}, {1, 1, 20}}),
                           Replica({{8, 2, 40}, {8, 2, 40}})});
  REQUIRE(known.ok());
  REQUIRE(known->usd_per_hour == Approx(12));
  REQUIRE(known->requests_per_second > 1);
  const ClassSearchResult found = SearchByClass(c.problem);
  REQUIRE(found.placement);
  CHECK(found.placement->usd_per_hour <= 12 * (1 + 1e-9));
  CHECK(found.placement->requests_per_second >= known->requests_per_second * (1 - kLoss));
}

TEST_CASE("a shaped replica uses no more than it was given, and most of what a layout reaches") {
  int compared = 0;
  for (int seed = 1; seed <= 6; ++seed) {
    INFO("seed " << seed);
    Case c(Read(SeededCluster({seed, 8, 1})));
    StageShapes shapes(c.model, MomentsOf(c.problem.samples), c.problem.options);
    ReplicaShaping shaping(c.problem, &shapes);
    ReplicaShaping::Devices all;
    LayoutProblem layout;
    layout.model = &c.model;
    layout.graph = &*c.graph;
    layout.lengths = MomentsOf(c.problem.samples);
    for (size_t p = 0; p < c.graph->pools().size(); ++p) {
      const DevicePool& pool = c.graph->pools()[p];
      all.emplace_back(static_cast<int>(p), pool.count);
      layout.pools.push_back({pool.spec, pool.machine, pool.count});
    }
    layout.layer_step = 5;
    const Layout best = BestLayout(layout);
    const PlacedReplica& shaped = shaping.Shape(all);
    if (best.stages.empty()) continue;
    ++compared;
    CHECK(shaped.rate.requests_per_second >= 0.95 * best.rate.requests_per_second);
    const absl::StatusOr<Placement> placed = Assemble(c.problem, {shaped});
    REQUIRE(placed.ok());
    CHECK(placed->requests_per_second == Approx(shaped.rate.requests_per_second));
  }
  CHECK(compared >= 4);
}

TEST_CASE("many devices are bounded as one group and placed in each") {
  Case c(Read(SeededCluster({3, 120, 2})));
  c.problem.allow_split = false;
  const ClassSearchResult whole = SearchByClass(c.problem);
  REQUIRE(whole.placement);
  CHECK(whole.placement->requests_per_second <= whole.upper_bound);
  CHECK(whole.placement->requests_per_second >= 0.9 * whole.upper_bound);
  std::vector<int> free;
  for (const DevicePool& pool : c.graph->pools()) free.push_back(pool.count);
  const DeviceClasses apart(*c.graph, free), merged(*c.graph, free, true);
  CHECK(merged.groups() == 1);
  CHECK(merged.size() < apart.size());
  // Who is stopped still uses most of them.
  for (const int most : {0, 3}) {
    INFO("stopped when it asks after " << most << " times");
    int asked = 0;
    c.problem.watch.stop = [&] { return ++asked > most; };
    const ClassSearchResult stopped = SearchByClass(c.problem);
    REQUIRE(stopped.placement);
    CHECK(stopped.placement->interrupted);
    CHECK(stopped.placement->requests_per_second >= 0.75 * whole.placement->requests_per_second);
  }
}

TEST_CASE("the same problem gets the same placement") {
  Case c(Read(SeededCluster({7, 24, 2})));
  const ClassSearchResult first = SearchByClass(c.problem), second = SearchByClass(c.problem);
  REQUIRE(first.placement);
  REQUIRE(second.placement);
  CHECK(first.upper_bound == second.upper_bound);
  CHECK(first.placement->requests_per_second == second.placement->requests_per_second);
  CHECK(first.placement->replicas.size() == second.placement->replicas.size());
}

}  // namespace
}  // namespace tessera::scheduler
