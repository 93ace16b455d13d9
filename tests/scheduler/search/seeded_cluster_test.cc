// The clusters of the benchmarks are as unlike as the bars on them say.
#include "tests/scheduler/search/seeded_cluster.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>
#include <string>

#include "proto/cluster.pb.h"
#include "proto/document.h"

namespace tessera::tests {
namespace {

TEST_CASE("seeded clusters have kinds, shapes and links of many sorts, and all devices asked for") {
  for (const int devices : {320, 10'000}) {
    INFO(devices << " devices");
    v1::Cluster cluster;
    REQUIRE(ReadDocument(SeededCluster({1, devices, devices > 1000 ? 10 : 2}), "seeded", &cluster)
                .message() == "");
    std::set<std::string> kinds, shapes, sites;
    std::set<double> rates;
    int all = 0, smallest = 8, largest = 1;
    for (const v1::Machine& machine : cluster.machines()) {
      int own = 0;
      std::string shape;
      for (const v1::DeviceGroup& group : machine.devices()) {
        kinds.insert(group.kind());
        shape += group.kind() + std::to_string(group.count());
        own += group.count();
      }
      all += own;
      smallest = std::min(smallest, own);
      largest = std::max(largest, own);
      shapes.insert(shape);
      sites.insert(machine.site());
      rates.insert(machine.uplink().bandwidth_bytes_per_second());
    }
    for (const v1::PairLink& pair : cluster.links())
      rates.insert(pair.link().bandwidth_bytes_per_second());
    CHECK(all == devices);
    CHECK(kinds.size() >= 8);
    CHECK(shapes.size() >= (devices > 1000 ? 30 : 25));
    CHECK(smallest == 1);
    CHECK(largest == 8);
    CHECK(rates.size() >= 4);
    CHECK(sites.size() == (devices > 1000 ? 10 : 2));
  }
}

TEST_CASE("a seed is one cluster, another seed another") {
  CHECK(SeededCluster({3, 32, 1}) == SeededCluster({3, 32, 1}));
  CHECK(SeededCluster({3, 32, 1}) != SeededCluster({4, 32, 1}));
}

}  // namespace
}  // namespace tessera::tests
