// `best` is never below what people write down: a chain, even splits, the best of a single kind.
#include "scheduler/search/best/plain_placements.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <set>
#include <string>

#include "proto/document.h"
#include "scheduler/input/catalogue.h"
#include "scheduler/search/layout/assemble.h"
#include "scheduler/search/searches.h"
#include "tests/scheduler/cost/shapes.h"
#include "tests/scheduler/search/seeded_cluster.h"

namespace tessera::scheduler {
namespace {

struct Instance {
  ModelShape model;
  ClusterGraph graph;
  PlacementProblem problem;

  Instance(const std::string& text, ModelShape shape) : model(std::move(shape)) {
    v1::Cluster cluster;
    REQUIRE(ReadDocument(text, "c.yaml", &cluster).message() == "");
    auto read = MakeClusterGraph(cluster, *BuiltInDevices(), "c.yaml");
    REQUIRE(read.status().message() == "");
    graph = *std::move(read);
    problem.model = &model;
    problem.graph = &graph;
    problem.samples = {{1155, 211, 1}};
    problem.allow_split = false;
  }

  // Pools, one entry per device; in the order of the description.
  std::vector<int> Devices() const {
    std::vector<int> devices;
    for (size_t p = 0; p < graph.pools().size(); ++p)
      devices.insert(devices.end(), static_cast<size_t>(graph.pools()[p].count),
                     static_cast<int>(p));
    return devices;
  }

  // `replicas` chains of as many devices each, layers as even as can be.
  double EvenSplit(size_t replicas) const {
    const std::vector<int> devices = Devices();
    const auto stages = static_cast<int>(devices.size() / replicas);
    if (stages < 1 || stages > model.layers) return 0;
    std::vector<PlacedReplica> chains(replicas);
    for (size_t r = 0; r < replicas; ++r) {
      for (int j = 0; j < stages; ++j) {
        chains[r].stages.push_back(
            {devices[r * static_cast<size_t>(stages) + static_cast<size_t>(j)], 1,
             model.layers / stages + (j < model.layers % stages ? 1 : 0)});
      }
    }
    const auto placed = Assemble(problem, std::move(chains));
    return placed.ok() ? placed->requests_per_second : 0;
  }

  double OneKind(const std::string& kind) const {
    std::vector<int> counts, kept;
    for (const DevicePool& pool : graph.pools())
      counts.push_back(pool.spec->kind == kind ? pool.count : 0);
    const ClusterGraph part = graph.Part(counts, &kept);
    PlacementProblem one = problem;
    one.graph = &part;
    const auto placed = (*FindSearch("best"))(one);
    return placed.ok() ? placed->requests_per_second : 0;
  }

  std::set<std::string> Kinds() const {
    std::set<std::string> kinds;
    for (const DevicePool& pool : graph.pools()) kinds.insert(pool.spec->kind);
    return kinds;
  }

  void CheckNotBelowPlain() const {
    const auto best = (*FindSearch("best"))(problem);
    const double served = best.ok() ? best->requests_per_second * (1 + 1e-9) : 0;
    const size_t devices = Devices().size();
    for (size_t replicas = 1; replicas <= devices; ++replicas) {
      INFO(replicas << " even chains");
      if (devices % replicas == 0) CHECK(EvenSplit(replicas) <= served);
    }
    for (const std::string& kind : Kinds()) {
      INFO("only " << kind);
      CHECK(OneKind(kind) <= served);
    }
  }
};

// The published cluster of 24 machines over equal links, beside an engine that keeps 3.5 GiB.
TEST_CASE("24 machines with equal links: the plain chain is not better") {
  std::string text = "machines:\n";
  int machines = 0;
  for (const auto& [kind, count] : {std::pair("A100-40", 4), {"L4", 8}, {"T4", 12}}) {
    for (int i = 0; i < count; ++i)
      text += "- {name: m" + std::to_string(machines++) + ", devices: [{kind: " + kind + "}]}\n";
  }
  text += "tiers: {site: {bandwidth: 10 Gbit/s, latency: 1 ms}}\n";
  Instance instance(text, tests::Llama30B());
  instance.problem.options.memory.runtime_reserve_bytes = 3.5 * 1073741824;
  REQUIRE(instance.EvenSplit(1) > 0);
  instance.CheckNotBelowPlain();
}

TEST_CASE("20 seeded clusters: nothing plain is better than the plan") {
  for (int seed = 0; seed < 20; ++seed) {
    INFO("seed " << seed);
    tests::SeededClusterOptions options;
    options.seed = seed;
    options.devices = 9 + seed % 12;
    options.sites = 1 + seed % 3;
    Instance(tests::SeededCluster(options), tests::Llama3_8B()).CheckNotBelowPlain();
  }
}

// By hand a practitioner gives the quicker machine more of the layers, and lets it begin.
TEST_CASE("a large model over two unlike machines is cut by speed, not evenly") {
  Instance instance(
      "machines:\n"
      "- {name: h, devices: [{kind: H100-SXM, count: 8}], rack: r1}\n"
      "- {name: a, devices: [{kind: A100-80, count: 8}], rack: r1}\n"
      "- {name: l1, devices: [{kind: L40S, count: 8}], rack: r2}\n"
      "- {name: l2, devices: [{kind: L40S, count: 8}], rack: r2}\n"
      "tiers: {rack: {bandwidth: 100 Gbit/s, latency: 15 us}, "
      "site: {bandwidth: 25 Gbit/s, latency: 30 us}}",
      *MakeModelShape(*BuiltInModel("Llama-3.1-405B")));
  const auto pool_of = [&](const std::string& kind) {
    const auto& pools = instance.graph.pools();
    return static_cast<int>(
        std::find_if(pools.begin(), pools.end(),
                     [&](const auto& pool) { return pool.spec->kind == kind; }) -
        pools.begin());
  };
  PlacedReplica by_hand;
  by_hand.stages = {{pool_of("H100-SXM"), 8, 66}, {pool_of("A100-80"), 8, 60}};
  const auto written = Assemble(instance.problem, {by_hand});
  REQUIRE(written.ok());
  REQUIRE(written->requests_per_second > 0);
  const auto found = (*FindSearch("best"))(instance.problem);
  REQUIRE(found.status().message() == "");
  CHECK(found->requests_per_second >= 0.999 * written->requests_per_second);
}

// What is judged beside the search is there, whatever the search finds.
TEST_CASE("chains, even splits and machines by themselves are judged") {
  Instance instance(
      "machines: [{name: a, devices: [{kind: A40, count: 4}]}, {name: b, devices: [{kind: A40, "
      "count: 4}]}]\ntiers: {site: {bandwidth: 10 Gbit/s, latency: 50 us}}",
      tests::Llama3_8B());
  ReplicaJudge judge(instance.problem);
  std::set<std::pair<size_t, size_t>> shapes;  // replicas, stages of the first
  for (const Placement& placement : JudgedPlain(instance.problem, &judge))
    shapes.emplace(placement.replicas.size(), placement.replicas.front().stages.size());
  for (const auto& wanted : {std::pair<size_t, size_t>(1, 8), {2, 4}, {4, 2}, {8, 1}, {2, 1}})
    CHECK(shapes.contains(wanted));
}

}  // namespace
}  // namespace tessera::scheduler
