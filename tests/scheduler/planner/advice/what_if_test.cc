#include "scheduler/planner/advice/what_if.h"

#include <catch2/catch.hpp>
#include <string>

#include "proto/document.h"

namespace tessera::scheduler {
namespace {

v1::Cluster Sites() {
  v1::Cluster cluster;
  REQUIRE(ReadDocument(R"(
machines:
- {name: north-1, site: north, rack: r1, devices: [{kind: A100-40, count: 4}]}
- {name: south-1, site: south, devices: [{kind: L4, count: 4}, {kind: T4}]}
- {name: rent, site: south, available: 3, devices: [{kind: L4, count: 2}]}
tiers:
  site: {bandwidth: 25 Gbit/s, latency: 40 us}
  region: {bandwidth: 1 Gbit/s, latency: 10 ms}
links:
- {from: north, to: south, link: {bandwidth: 5 Gbit/s, latency: 6 ms}}
sites:
- {name: north, uplink: {bandwidth: 10 Gbit/s, latency: 0.1 ms}}
)",
                       "sites.yaml", &cluster)
              .message() == "");
  return cluster;
}

std::string Reason(const std::string& changes) {
  v1::Cluster cluster = Sites();
  return std::string(ApplyChanges(changes, &cluster).message());
}

using Catch::Contains;

}  // namespace

TEST_CASE("devices are added beside their like, on a machine, or at a site") {
  v1::Cluster cluster = Sites();
  REQUIRE(ApplyChanges("+2 T4, +H100 at north, +1 L4 on south-1", &cluster).message() == "");
  REQUIRE(cluster.machines_size() == 5);
  CHECK(cluster.machines(3).name() == "added");
  CHECK(cluster.machines(3).site() == "south");
  CHECK(cluster.machines(3).devices(0).count() == 2);
  CHECK(cluster.machines(4).name() == "added-2");
  CHECK(cluster.machines(4).site() == "north");
  CHECK(cluster.machines(4).rack() == "r1");
  CHECK(cluster.machines(4).devices(0).kind() == "H100");
  CHECK(cluster.machines(1).devices(0).count() == 5);
  cluster = Sites();
  REQUIRE(ApplyChanges("+L4 on rent.2", &cluster).message() == "");
  REQUIRE(cluster.machines_size() == 5);  // of the three alike, one alone has more
  CHECK(cluster.machines(2).name() == "rent.1");
  CHECK(cluster.machines(2).devices(0).count() == 2);
  CHECK(cluster.machines(3).devices(0).count() == 3);
}

TEST_CASE("machines, sites and devices are taken away, and their links with them") {
  v1::Cluster cluster = Sites();
  REQUIRE(ApplyChanges("-north-1", &cluster).message() == "");
  CHECK(cluster.machines_size() == 2);
  CHECK(cluster.links().empty());
  CHECK(cluster.sites().empty());
  cluster = Sites();
  REQUIRE(ApplyChanges("-south", &cluster).message() == "");
  CHECK(cluster.machines_size() == 1);
  cluster = Sites();
  REQUIRE(ApplyChanges("-3 L4", &cluster).message() == "");
  REQUIRE(cluster.machines_size() == 4);  // the last of the rented ones, and half of the next
  CHECK(cluster.machines(1).devices(0).count() == 4);
  CHECK(cluster.machines(2).devices(0).count() == 2);
  CHECK(cluster.machines(3).name() == "rent.2");
  CHECK(cluster.machines(3).devices(0).count() == 1);
}

TEST_CASE("devices are taken from a machine or a site by name, as they are added") {
  v1::Cluster cluster = Sites();
  REQUIRE(ApplyChanges("-1 L4 on south-1", &cluster).message() == "");
  REQUIRE(cluster.machines_size() == 3);
  CHECK(cluster.machines(1).devices(0).count() == 3);
  REQUIRE(ApplyChanges("-A100-40 on north-1, -T4", &cluster).message() == "");
  CHECK(cluster.machines(0).devices(0).count() == 3);
  CHECK(cluster.machines(1).devices_size() == 1);
  REQUIRE(ApplyChanges("-3 A100-40 at north", &cluster).message() == "");
  CHECK(cluster.machines(0).name() == "south-1");
  CHECK(cluster.links().empty());
}

TEST_CASE("of several like machines those that are named go, and the others keep their names") {
  v1::Cluster cluster = Sites();
  REQUIRE(ApplyChanges("-rent.1, -rent.3", &cluster).message() == "");
  REQUIRE(cluster.machines_size() == 3);
  CHECK(cluster.machines(2).name() == "rent.2");
  CHECK(cluster.machines(2).available() == 0);
  cluster = Sites();
  REQUIRE(RemoveMachines({"rent.1", "rent.2", "rent.3"}, &cluster).message() == "");
  CHECK(cluster.machines_size() == 2);
}

TEST_CASE("links, uplinks, tiers and the budget are set") {
  v1::Cluster cluster = Sites();
  REQUIRE(
      ApplyChanges("link north-south 10Gbit/s, link north-1-south-1 1 GB/s 2 ms, uplink south 2 "
                   "Gbit/s, uplink rent 1 Gbit/s, tier site 100 Gbit/s 5 us, budget 7 USD/h",
                   &cluster)
          .message() == "");
  REQUIRE(cluster.links_size() == 2);
  CHECK(cluster.links(0).link().bandwidth_bytes_per_second() == 1.25e9);
  CHECK(cluster.links(0).link().latency_seconds() == Approx(6e-3));  // as it was
  CHECK(cluster.links(1).from() == "north-1");
  CHECK(cluster.links(1).to() == "south-1");
  CHECK(cluster.links(1).link().latency_seconds() == Approx(2e-3));
  REQUIRE(cluster.sites_size() == 2);
  CHECK(cluster.sites(1).uplink().bandwidth_bytes_per_second() == 0.25e9);
  CHECK(cluster.machines(2).uplink().bandwidth_bytes_per_second() == 0.125e9);
  CHECK(cluster.tiers().site().bandwidth_bytes_per_second() == 12.5e9);
  CHECK(cluster.tiers().site().latency_seconds() == Approx(5e-6));
  CHECK(cluster.budget_usd_per_hour() == 7);
}

TEST_CASE("a change that cannot be is refused by name") {
  CHECK_THAT(
      Reason("-machine9"),
      Contains(
          "\"-machine9\": there is no machine or site called machine9, and no device of such"));
  CHECK_THAT(Reason("-9 T4"), Contains("the cluster has only 1 T4"));
  CHECK_THAT(Reason("+2 L4 on nowhere"), Contains("there is no machine called nowhere"));
  CHECK_THAT(Reason("+2 L4 at nowhere"), Contains("there is no site called nowhere"));
  CHECK_THAT(Reason("+0 L40S"),
             Contains("\"+0 L40S\": needs a whole number of devices from 1 to 1000000, not \"0\""));
  CHECK_THAT(Reason("-1.5 T4"), Contains("from 1 to 1000000, not \"1.5\""));
  CHECK_THAT(Reason("+2147483647 L4"), Contains("from 1 to 1000000, not \"2147483647\""));
  CHECK_THAT(Reason("+2"), Contains("does not say what kind"));
  CHECK_THAT(Reason("link north-east 10 Gbit/s"), Contains("is no pair of machines or sites"));
  CHECK_THAT(Reason("link north-south 10"), Contains("has no unit"));
  CHECK_THAT(Reason("tier room 10 Gbit/s"), Contains("is none of machine, rack, site, region"));
  CHECK_THAT(Reason("more please"), Contains("is not understood"));
  CHECK_THAT(Reason("+1 L4,,"), Contains("is empty"));
  CHECK_THAT(Reason("link north-south"), Contains("needs a bandwidth"));
  CHECK_THAT(Reason("-9 T4 on south-1"), Contains("south-1 has only 1 T4"));
  CHECK_THAT(Reason("-1 T4 at nowhere"), Contains("there is no site called nowhere"));
  CHECK_THAT(Reason("+1 L4 on rent"), Contains("there are 3 machines rent: name one, rent.1 to"));
  CHECK_THAT(Reason("-rent.4"), Contains("there is no machine or site called rent.4"));
  CHECK_THAT(Reason("-north, -south"), Contains("no machine would be left"));
}

}  // namespace tessera::scheduler
