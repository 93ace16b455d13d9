// A zero that somebody writes is never read as "not given".
#include <catch2/catch.hpp>
#include <string>

#include "proto/cluster.pb.h"
#include "proto/document.h"
#include "proto/workload.pb.h"

namespace tessera {
namespace {

template <typename Message>
std::string Reason(const std::string& text) {
  Message message;
  return std::string(ReadDocument(text, "f.yaml", &message).message());
}

const auto ReasonOfCluster = Reason<v1::Cluster>;
const auto ReasonOfWorkload = Reason<v1::Workload>;

using Catch::Contains;

TEST_CASE("numbers whose zero has a default are refused as zero, saying what to write") {
  CHECK(
      ReasonOfCluster("machines: [{name: a, devices: [{kind: T4, count: 0}]}]") ==
      "f.yaml:1: machines[0].devices[0].count: must be above 0; leave the devices out where there "
      "are none");
  CHECK_THAT(
      ReasonOfCluster("machines: [{name: a, devices: [{kind: T4, memory: 0 GiB}]}]"),
      Contains("machines[0].devices[0].memory: must be above 0; leave it out for the kind's"));
  CHECK_THAT(ReasonOfCluster("machines: [{name: a, available: 0}]"),
             Contains("machines[0].available: must be above 0; leave the machine out"));
  CHECK_THAT(ReasonOfCluster("machines: [{name: a, spot_available: 0}]"),
             Contains("leave spot_price out"));
  for (const char* key : {"price: 0 USD/h", "spot_price: 0 USD/h", "price_usd_per_hour: 0"}) {
    INFO(key);
    CHECK_THAT(ReasonOfCluster(std::string("machines: [{name: a, ") + key + "}]"),
               Contains("must be above 0; leave it out where it is not known"));
  }
  CHECK_THAT(
      ReasonOfCluster("kinds: [{name: A6000, layer_overhead: 0 us}]"),
      Contains("kinds[0].layer_overhead: must be above 0; leave it out for the catalogue's"));
  CHECK_THAT(ReasonOfWorkload("classes: [{lengths: [{prompt_tokens: 9, weight: 0}]}]"),
             Contains("classes[0].lengths[0].weight: must be above 0"));
  CHECK_THAT(ReasonOfWorkload("arrival_variation: 0"), Contains("such as 0.01"));
}

TEST_CASE("a zero that is one is read") {
  v1::Cluster cluster;
  const std::string text =
      "machines: [{name: a, devices: [{kind: T4}], inside: {bandwidth: 1 GB/s, latency: 0 us}}]";
  REQUIRE(ReadDocument(text, "f.yaml", &cluster).message() == "");
  CHECK(cluster.machines(0).inside().has_latency_seconds());
  CHECK(ReasonOfWorkload("requests_per_second: 0") == "");
  CHECK(ReasonOfWorkload("classes: [{prefix_hit_rate: 0}]") == "");
}

}  // namespace
}  // namespace tessera
