// Clusters where the best replica of some devices leaves others idle that are too few to hold the
// model, though both serve more where it gives some of its own up.
#include <catch2/catch.hpp>
#include <string>

#include "proto/document.h"
#include "scheduler/input/catalogue.h"
#include "scheduler/search/layout/problem.h"
#include "scheduler/search/searches.h"

namespace tessera::scheduler {
namespace {

struct IdleCase {
  const char* cluster;
  RequestLengths lengths;
  double max_tpot_seconds;
  const char* other;  // a search that uses all
};

// A mixture of experts: much to hold for what it computes, so that many cards share a replica.
const IdleCase kCases[] = {
    // Two A4000 help A5000 a little; with five T4, which are not enough, they hold the model.
    {R"(
machines:
- {name: m0, devices: [{kind: V100-32, count: 4}], inside: {bandwidth: 50 GB/s, latency: 10 us}}
- {name: m1, devices: [{kind: A5000, count: 2}], inside: {bandwidth: 25 GB/s, latency: 10 us}}
- {name: m2, devices: [{kind: A5000, count: 4}], inside: {bandwidth: 50 GB/s, latency: 10 us}}
- {name: m3, devices: [{kind: T4, count: 4}]}
- {name: m4, devices: [{kind: T4}]}
- {name: m5, devices: [{kind: V100-16, count: 4}], inside: {bandwidth: 50 GB/s, latency: 10 us}}
- {name: m6, devices: [{kind: A4000, count: 2}]}
tiers: {site: {bandwidth: 5 Gbit/s, latency: 50 us}}
)",
     {1155, 211, 1},
     0.2,
     "cost"},
    // The same between replicas that only prefill or only decode: one A5000 was idle.
    {R"(
machines:
- {name: m0, devices: [{kind: L40S}]}
- {name: m1, devices: [{kind: A5000}]}
- {name: m2, devices: [{kind: L40S, count: 4}]}
- {name: m3, devices: [{kind: V100-32}]}
- {name: m4, devices: [{kind: A4000, count: 4}]}
- {name: m5, devices: [{kind: V100-32, count: 2}]}
- {name: m6, devices: [{kind: A10, count: 2}]}
- {name: m7, devices: [{kind: A10, count: 2}], inside: {bandwidth: 12 GB/s, latency: 10 us}}
- {name: m8, devices: [{kind: L40S, count: 4}], inside: {bandwidth: 25 GB/s, latency: 10 us}}
links: [{from: m0, to: m1, link: {bandwidth: 2 Gbit/s, latency: 3 ms}}]
tiers: {site: {bandwidth: 1 Gbit/s, latency: 50 us}}
)",
     {1155, 211, 1},
     0.06,
     "thunderserve"},
};

TEST_CASE("idle devices hold a replica with some of another's") {
  const auto model = MakeModelShape(*BuiltInModel("Qwen3-30B-A3B"), v1::DATA_TYPE_UNSPECIFIED,
                                    v1::DATA_TYPE_UNSPECIFIED);
  REQUIRE(model.ok());
  for (const IdleCase& one : kCases) {
    INFO(one.cluster);
    v1::Cluster cluster;
    REQUIRE(ReadDocument(one.cluster, "cluster", &cluster).ok());
    const auto graph = MakeClusterGraph(cluster, *BuiltInDevices(), "cluster");
    REQUIRE(graph.ok());
    PlacementProblem problem;
    problem.model = &*model;
    problem.graph = &*graph;
    problem.samples = {one.lengths};
    problem.options.max_tpot_seconds = one.max_tpot_seconds;
    const absl::StatusOr<Placement> best = (*FindSearch("best"))(problem);
    const absl::StatusOr<Placement> other = (*FindSearch(one.other))(problem);
    REQUIRE(best.ok());
    REQUIRE(other.ok());
    CHECK(best->requests_per_second >= other->requests_per_second * (1 - 1e-9));
  }
}

}  // namespace
}  // namespace tessera::scheduler
