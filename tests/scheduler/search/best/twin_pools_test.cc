// Pools that are alike: which are, and what stands for what.
#include "scheduler/search/best/twin_pools.h"

#include <catch2/catch.hpp>

#include "proto/document.h"
#include "scheduler/input/catalogue.h"

namespace tessera::scheduler {
namespace {

ClusterGraph GraphOf(const std::string& machines, const std::string& links = "") {
  v1::Cluster cluster;
  const std::string text =
      "machines:\n" + machines + "tiers: {site: {bandwidth: 10 Gbit/s, latency: 60 us}}\n" + links;
  REQUIRE(ReadDocument(text, "cluster.yaml", &cluster).message() == "");
  auto graph = MakeClusterGraph(cluster, *BuiltInDevices(), "cluster.yaml");
  REQUIRE(graph.status().message() == "");
  return *std::move(graph);
}

std::string Machine(const std::string& name, const std::string& devices,
                    const std::string& inside = "24 GB/s") {
  return "- {name: " + name + ", devices: [" + devices + "], inside: {bandwidth: " + inside +
         ", latency: 10 us}}\n";
}

constexpr char kFour[] = "{kind: L4, count: 4}";

using Groups = std::vector<std::vector<size_t>>;

TEST_CASE("pools are twins where devices, their machines and all links are alike") {
  const std::string two = Machine("a", kFour) + Machine("b", kFour);
  CHECK(TwinPools(GraphOf(two)).groups() == Groups{{0, 1}});
  CHECK(TwinPools(GraphOf(two + Machine("c", "{kind: L4, count: 2}"))).groups() ==
        Groups{{0, 1}, {2}});
  CHECK(TwinPools(GraphOf(two + Machine("c", "{kind: L40S, count: 4}"))).groups() ==
        Groups{{0, 1}, {2}});
  CHECK(TwinPools(GraphOf(two + Machine("c", kFour, "12 GB/s"))).groups() == Groups{{0, 1}, {2}});
  const std::string uplinked =
      "- {name: c, devices: [{kind: L4, count: 4}], inside: {bandwidth: 24 GB/s, latency: 10 us}, "
      "uplink: {bandwidth: 100 Gbit/s, latency: 5 us}}\n";
  CHECK(TwinPools(GraphOf(two + uplinked)).groups() == Groups{{0, 1}, {2}});
  // In a machine with others it matters which of them.
  const std::string mixed = std::string(kFour) + ", {kind: L40S, count: 1}";
  CHECK(TwinPools(GraphOf(two + Machine("c", mixed))).groups() == Groups{{0, 1}, {2}, {3}});
}

TEST_CASE("of very many pools nobody is taken for a twin") {
  std::string many;
  for (size_t p = 0; p < TwinPools::kMaxPools; ++p) many += Machine("m" + std::to_string(p), kFour);
  CHECK(TwinPools(GraphOf(many)).groups().size() == 1);
  const TwinPools twins(GraphOf(many + Machine("z", kFour)));
  REQUIRE(twins.groups().size() == TwinPools::kMaxPools + 1);
  TwinPools::Counts set(twins.groups().size(), 0);
  set.back() = 3;
  CHECK(twins.FirstCopy(set) == set);
}

TEST_CASE("who has a link of its own is nobody's twin, nor are those that it leads to") {
  const std::string three = Machine("a", kFour) + Machine("b", kFour) + Machine("c", kFour);
  CHECK(TwinPools(GraphOf(three)).groups() == Groups{{0, 1, 2}});
  CHECK(
      TwinPools(GraphOf(three,
                        "links:\n- {from: b, to: c, link: {bandwidth: 1 Gbit/s, latency: 1 ms}}\n"))
          .groups() == Groups{{0}, {1, 2}});
}

TEST_CASE("a set has one first copy, to which its replica moves and from which it comes back") {
  const TwinPools twins(GraphOf(Machine("a", kFour) + Machine("b", kFour) +
                                Machine("c", "{kind: L40S, count: 2}") + Machine("d", kFour)));
  REQUIRE(twins.groups() == Groups{{0, 1, 3}, {2}});
  const TwinPools::Counts set = {1, 0, 2, 4}, first = {4, 1, 2, 0};
  CHECK(twins.FirstCopy(set) == first);
  CHECK(twins.FirstCopy({0, 4, 2, 1}) == first);
  CHECK(twins.FirstCopy(first) == first);
  PlacedReplica replica;
  replica.stages = {{3, 4, 50}, {2, 2, 20}, {0, 1, 10}};
  const PlacedReplica moved = twins.ToFirstCopy(set, replica);
  CHECK(DevicesByPool(moved.stages, 4) == first);
  CHECK(moved.stages[0].layers == 50);
  CHECK(moved.stages[0].pool == 0);
  const PlacedReplica back = twins.FromFirstCopy(set, moved);
  for (size_t i = 0; i < replica.stages.size(); ++i)
    CHECK(back.stages[i].pool == replica.stages[i].pool);
}

TEST_CASE("a copy goes where least is left over, or nowhere") {
  const TwinPools twins(GraphOf(Machine("a", kFour) + Machine("b", kFour) + Machine("c", kFour)));
  CHECK(*twins.CopyWithin({2, 0, 0}, {4, 2, 3}) == TwinPools::Counts{0, 2, 0});
  CHECK(*twins.CopyWithin({3, 2, 0}, {4, 2, 3}) == TwinPools::Counts{0, 2, 3});
  CHECK(!twins.CopyWithin({4, 0, 0}, {3, 3, 3}));
  CHECK(!twins.CopyWithin({2, 2, 0}, {4, 1, 1}));  // in machines of their own
}

}  // namespace
}  // namespace tessera::scheduler
