#include <catch2/catch.hpp>
#include <string>

#include "scheduler/planner/planner.h"
#include "scheduler/planner/report/pace_text.h"
#include "tests/scheduler/planner/written_input.h"

namespace tessera::scheduler {
namespace {

using Catch::Contains;

v1::DeploymentPlan PlanOn(const std::string& cluster) {
  const auto plan = MakePlan(
      tests::WrittenInput(cluster, "Llama-2-70B",
                          "classes: [{lengths: [{prompt_tokens: 1155, output_tokens: 211}]}]"),
      {});
  REQUIRE(plan.status().message() == "");
  return *plan;
}

std::string Paces(const v1::DeploymentPlan& plan) {
  std::string text;
  for (const v1::Pace& pace : plan.certificate().pace()) text += PaceText(pace) + "\n";
  return text;
}

// 70B needs all four cards, so activations pass between the machines.
TEST_CASE("a pipeline that waits for a link between sites says which") {
  const auto plan = PlanOn(R"(
machines:
- {name: a, site: x, devices: [{kind: A6000, count: 2}]}
- {name: b, site: y, devices: [{kind: A6000, count: 2}]}
tiers: {region: {bandwidth: "10 Mbit/s", latency: "50 ms"}}
)");
  REQUIRE(plan.links_size() == 1);
  const std::string link = plan.links(0).from() + " -> " + plan.links(0).to();
  CHECK_THAT(Paces(plan), Contains("the link " + link + " (0.01 Gbit/s) sets the pace"));
  CHECK_THAT(Paces(plan), Contains("requests at once are limited by KV memory of stage"));
}

TEST_CASE("an uplink that is full is named") {
  const auto plan = PlanOn(R"(
machines:
- {name: a, uplink: {bandwidth: "1 Mbit/s", latency: "0 s"}, devices: [{kind: A6000, count: 2}]}
- {name: b, devices: [{kind: A6000, count: 2}]}
tiers: {site: {bandwidth: "10 Gbit/s", latency: "0.1 ms"}}
)");
  CHECK_THAT(Paces(plan), Contains("the uplink of a (0.001 Gbit/s)"));
}

TEST_CASE("where links are quick the slowest stage is named, and no link") {
  const auto plan = PlanOn(R"(
machines:
- {name: a, devices: [{kind: A6000, count: 2}]}
- {name: b, devices: [{kind: A6000, count: 2}]}
tiers: {site: {bandwidth: "25 Gbit/s", latency: "0.1 ms"}}
)");
  CHECK_THAT(Paces(plan), Contains("(A6000) is the slowest"));
  CHECK_THAT(Paces(plan), !Contains("link"));
}

TEST_CASE("a link that is far from full is named where its latency slows every step") {
  const auto plan = PlanOn(R"(
machines:
- {name: a, devices: [{kind: A6000, count: 2}]}
- {name: b, devices: [{kind: A6000, count: 2}]}
tiers: {site: {bandwidth: "2 Gbit/s", latency: "20 ms"}}
)");
  for (const v1::LinkLoad& link : plan.links())
    REQUIRE(link.bytes_per_second() < 0.5 * link.capacity_bytes_per_second());
  CHECK_THAT(Paces(plan),
             Contains(" % of its time on links, most on the link ") && !Contains("full"));
}

TEST_CASE("what limits requests at once is named by the option that sets it") {
  const char* kBig = "machines: [{name: a, devices: [{kind: H100-SXM, count: 8}]}]";
  const auto plan = PlanOn(kBig);
  CHECK_THAT(Paces(plan),
             Contains("requests at once are limited by --max-sequences, 256 decoding at once"));
}

}  // namespace
}  // namespace tessera::scheduler
