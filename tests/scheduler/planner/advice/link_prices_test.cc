// What more bandwidth would bring is what the layout serves with it.
#include <catch2/catch.hpp>
#include <string>

#include "scheduler/planner/advice/sensitivity.h"
#include "scheduler/planner/planner.h"
#include "scheduler/planner/report/outlook_text.h"
#include "scheduler/planner/written_layout.h"
#include "tests/scheduler/planner/written_input.h"

namespace tessera::scheduler {
namespace {

// No machine holds the model: activations pass the network, which is slow.
PlannerInput Input(double site_bytes_per_second) {
  PlannerInput input = tests::WrittenInput(
      "machines:\n"
      "- {name: a, devices: [{kind: L4, count: 1}]}\n"
      "- {name: b, devices: [{kind: L4, count: 1}]}\n"
      "tiers: {site: {bandwidth: 1 Gbit/s, latency: 50 us}}\n",
      "Llama-2-13B", "classes: [{lengths: [{prompt_tokens: 500, output_tokens: 100}]}]");
  input.cluster.mutable_tiers()->mutable_site()->set_bandwidth_bytes_per_second(
      site_bytes_per_second);
  return input;
}

double Served(const v1::DeploymentPlan& plan) { return plan.prediction().requests_per_second(); }

v1::DeploymentPlan PricedLayout(const PlannerInput& input, const v1::WrittenLayout& layout) {
  PlannerOptions options;
  options.given_search = GivenLayout(layout, "layout");
  absl::StatusOr<v1::DeploymentPlan> plan = MakePlan(input, options);
  REQUIRE(plan.status().message() == "");
  AddSensitivity(input, options, false, &*plan);
  return *std::move(plan);
}

TEST_CASE("10 Gbit/s more on a link that binds bring what the same layout then serves more") {
  constexpr double kSlow = 5e6, kStep = 10e9 / 8;
  const PlannerInput input = Input(kSlow);
  auto plan = MakePlan(input, {});
  REQUIRE(plan.status().message() == "");
  AddSensitivity(input, {}, false, &*plan);
  REQUIRE(plan->link_prices_size() == 1);
  const std::string line = LinkPriceLines(*plan)[0];
  CHECK_THAT(line, Catch::Contains("10 Gbit/s more on links within sites (now 0.04 Gbit/s)"));

  PlannerOptions same;
  same.given_search = GivenLayout(LayoutOf(*plan), "the plan");
  const auto wider = MakePlan(Input(kSlow + kStep), same);
  REQUIRE(wider.status().message() == "");
  const double more = Served(*wider) - Served(*plan);
  CHECK(more > 0.1 * Served(*plan));
  const std::string before = "would bring this layout ";
  REQUIRE(line.find(before) != std::string::npos);
  CHECK(std::stod(line.substr(line.find(before) + before.size())) == Approx(more).margin(6e-4));
}

TEST_CASE("a link that does not bind brings nothing") {
  const PlannerInput input = Input(100e9 / 8);
  auto plan = MakePlan(input, {});
  REQUIRE(plan.status().message() == "");
  AddSensitivity(input, {}, false, &*plan);
  REQUIRE(plan->link_prices_size() == 1);
  CHECK_THAT(LinkPriceLines(*plan)[0], Catch::Contains("would bring this layout nothing"));
}

TEST_CASE("links that carry something are tried first, and what was not tried is not judged") {
  std::string machines = "machines:\n";
  for (int i = 0; i < 45; ++i)
    machines += "- {name: t" + std::to_string(i) +
                ", devices: [{kind: T4}], uplink: {bandwidth: 25 Gbit/s, latency: 20 us}}\n";
  machines +=
      "- {name: p, devices: [{kind: L4}], uplink: {bandwidth: 40 Mbit/s, latency: 20 us}}\n"
      "- {name: q, devices: [{kind: L4}]}\n";
  const PlannerInput input = tests::WrittenInput(
      machines + "tiers: {site: {bandwidth: 25 Gbit/s, latency: 50 us}}\n", "Llama-2-13B",
      "classes: [{lengths: [{prompt_tokens: 500, output_tokens: 100}]}]");
  v1::WrittenLayout layout;
  v1::WrittenReplica& replica = *layout.add_replicas();
  for (const char* device : {"p/0", "q/0"}) {
    v1::WrittenStage& stage = *replica.add_stages();
    stage.add_devices(device);
    stage.set_layers(20);
  }
  const v1::DeploymentPlan plan = PricedLayout(input, layout);
  REQUIRE(plan.link_prices_size() == 2);
  CHECK_THAT(LinkPriceLines(plan)[0], Catch::Contains("10 Gbit/s more on the uplink of p"));
  CHECK_THAT(LinkPriceLines(plan)[1],
             Catch::Contains("any of the other 39 links tried, the fullest "
                             "(7 were not tried)"));
}

TEST_CASE("a link inside a machine is tried where a replica depends on it, the catalogue's too") {
  const PlannerInput input = tests::WrittenInput(
      "machines: [{name: a, devices: [{kind: RTX4090, "
      "count: 4}]}]",
      "Qwen2.5-32B");
  v1::WrittenLayout layout;
  v1::WrittenStage& stage = *layout.add_replicas()->add_stages();
  stage.add_devices("a/0..3");
  stage.set_layers(64);
  const v1::DeploymentPlan plan = PricedLayout(input, layout);
  REQUIRE(plan.link_prices_size() == 2);
  CHECK_THAT(LinkPriceLines(plan)[0], Catch::Contains("nothing is sent between machines"));
  CHECK_THAT(LinkPriceLines(plan)[1],
             Catch::Contains("10 Gbit/s more on the links of RTX4090 inside machines (now 32 "
                             "Gbit/s) would bring this layout 0."));
}

}  // namespace
}  // namespace tessera::scheduler
