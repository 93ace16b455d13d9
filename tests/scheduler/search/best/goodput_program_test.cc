// Replicas whose rates are given: which serve most together, and at what prices.
#include "scheduler/search/best/goodput_program.h"

#include <catch2/catch.hpp>

#include "proto/document.h"
#include "scheduler/input/catalogue.h"
#include "tests/scheduler/cost/shapes.h"

namespace tessera::scheduler {
namespace {

// a and b are twins; c is another kind.
constexpr char kCluster[] = R"(
machines:
- {name: a, devices: [{kind: L40S, count: 4}], inside: {bandwidth: 24 GB/s, latency: 10 us}}
- {name: b, devices: [{kind: L40S, count: 4}], inside: {bandwidth: 24 GB/s, latency: 10 us}}
- {name: c, devices: [{kind: L4, count: 8}], inside: {bandwidth: 24 GB/s, latency: 10 us}}
tiers: {site: {bandwidth: %s, latency: 60 us}}
)";

struct Given {
  ModelShape model = tests::Llama3_8B();
  ClusterGraph graph;
  PlacementProblem problem;

  explicit Given(const std::string& bandwidth = "400 Gbit/s") {
    std::string text = kCluster;
    text.replace(text.find("%s"), 2, bandwidth);
    v1::Cluster cluster;
    REQUIRE(ReadDocument(text, "cluster.yaml", &cluster).message() == "");
    graph = *MakeClusterGraph(cluster, *BuiltInDevices(), "cluster.yaml");
    problem.model = &model;
    problem.graph = &graph;
    problem.samples = {{1000, 100}};
    problem.goal = Goal::kGoodput;
  }
};

PlacedReplica Replica(Role role, int pool, int devices, double rate) {
  PlacedReplica replica;
  replica.role = role;
  replica.stages = {{pool, devices, 32}};
  replica.rate.requests_per_second = rate;
  return replica;
}

TEST_CASE("whole replicas fill the devices of twins, each in a machine of its own") {
  const Given given;
  const TwinPools twins(given.graph);
  GoodputProgram program(given.problem, twins);
  program.Add(Replica(Role::kBoth, 1, 3, 10));  // of the twins, whichever
  program.Add(Replica(Role::kBoth, 0, 1, 3));
  program.Add(Replica(Role::kBoth, 0, 1, 1));  // worse than what is known
  REQUIRE(program.Relax(true));
  CHECK(program.value() == Approx(26));
  CHECK(program.PriceOf({1, 0, 0}) == Approx(3));
  CHECK(program.PriceOf({0, 1, 8}) == Approx(3));  // nobody asks for the third kind
  const std::vector<PlacedReplica> packed = program.Pack(true);
  CHECK(program.packed_value() == Approx(26));
  std::vector<int> used(3, 0);
  for (const PlacedReplica& replica : packed) {
    CHECK(replica.stages.size() == 1);
    used[static_cast<size_t>(replica.stages[0].pool)] += replica.stages[0].width;
  }
  CHECK(used == std::vector<int>{4, 4, 0});
}

TEST_CASE("twins have no more large replicas than there are of them") {
  const Given given;
  const TwinPools twins(given.graph);
  GoodputProgram program(given.problem, twins);
  program.Add(Replica(Role::kBoth, 0, 3, 10));
  REQUIRE(program.Relax(true));
  CHECK(program.value() == Approx(20));  // not 8 / 3 of them
  CHECK(program.Pack(true).size() == 2);
}

TEST_CASE("a device is worth its part of the replica that one more of it would be a part of") {
  const Given given;
  const TwinPools twins(given.graph);
  GoodputProgram program(given.problem, twins);
  program.Add(Replica(Role::kBoth, 0, 2, 6));
  program.Add(Replica(Role::kBoth, 2, 4, 4));
  program.Add(Replica(Role::kBoth, 2, 1, 0.5));
  REQUIRE(program.Relax(false));
  const std::vector<double> prices = program.DevicePrices();
  REQUIRE(prices.size() == 3);
  CHECK(prices[0] == Approx(3));
  CHECK(prices[1] == Approx(3));
  CHECK(prices[2] == Approx(1));
}

TEST_CASE("who prefills and who decodes serve as much as the less of both, at prices that say so") {
  const Given given;
  const TwinPools twins(given.graph);
  GoodputProgram program(given.problem, twins);
  program.Add(Replica(Role::kPrefill, 0, 4, 12));
  program.Add(Replica(Role::kDecode, 2, 8, 9));
  REQUIRE(program.Relax(true));
  CHECK(program.value() == Approx(9));
  CHECK(program.WorthOf(Role::kDecode, {0, 0, 8}) == Approx(1));
  CHECK(program.WorthOf(Role::kPrefill, {4, 0, 0}) == Approx(0).margin(1e-9));
  CHECK(program.used().size() == 2);
  CHECK(program.Pack(true).size() >= 2);  // of prefilling ones it may be two
  CHECK(program.packed_value() == Approx(9));
  CHECK(program.Pack(false).empty());
}

TEST_CASE("more than half of the links serves nobody") {
  // 131 KB of KV a token: 131 MB a request of 1,000 tokens, raw; int4 would be 0.28 of that.
  const Given given("1 Gbit/s");
  const TwinPools twins(given.graph);
  GoodputProgram program(given.problem, twins);
  program.Add(Replica(Role::kPrefill, 0, 4, 12));
  program.Add(Replica(Role::kDecode, 2, 8, 9));
  REQUIRE(program.Relax(true));
  const double raw_seconds = 2 * 8 * 128 * 2 * 32 * 1000 / 0.125e9;
  CHECK(program.value() >= 0.5 / raw_seconds);
  CHECK(program.value() <= 0.5 / (0.28 * raw_seconds));
  // Two in one machine need no link.
  program.Add(Replica(Role::kDecode, 2, 4, 5));
  program.Add(Replica(Role::kPrefill, 2, 4, 4));
  REQUIRE(program.Relax(true));
  CHECK(program.value() >= 4);
}

TEST_CASE("who served less than its column says comes down, towards that") {
  const Given given;
  const TwinPools twins(given.graph);
  GoodputProgram program(given.problem, twins);
  const std::vector<PlacedReplica> dealt = {Replica(Role::kPrefill, 0, 4, 12),
                                            Replica(Role::kDecode, 2, 8, 9)};
  for (const PlacedReplica& replica : dealt) program.Add(replica);
  Placement placement;
  placement.shares = {{0, 1, 100}};
  CHECK(!program.Learn(dealt, placement));  // more than they say
  placement.shares = {{0, 1, 8.5}};
  CHECK(program.Learn(dealt, placement));
  REQUIRE(program.Relax(true));
  CHECK(program.value() == Approx(8.5));
  placement.shares = {{0, 1, 1}};
  CHECK(program.Learn(dealt, placement));
  REQUIRE(program.Relax(true));
  CHECK(program.value() == Approx(0.8 * 8.5));     // but not at once
  program.Add(Replica(Role::kDecode, 2, 8, 8.9));  // no better than what was said
  program.Add(Replica(Role::kDecode, 2, 8, 10));
  REQUIRE(program.Relax(true));
  CHECK(program.value() == Approx(0.8 * 8.5 / 9 * 10));  // what was learnt holds for better ones
}

TEST_CASE("what was packed once is not forgotten for what only looks better") {
  const Given given;
  const TwinPools twins(given.graph);
  GoodputProgram program(given.problem, twins);
  program.Add(Replica(Role::kBoth, 2, 8, 8));
  program.Pack(false);
  CHECK(program.packed_value() == Approx(8));
  // Worth more per device, so that the first is far from its price; but only one fits.
  program.Add(Replica(Role::kBoth, 2, 5, 7));
  program.Pack(false);
  CHECK(program.packed_value() == Approx(8));
}

}  // namespace
}  // namespace tessera::scheduler
