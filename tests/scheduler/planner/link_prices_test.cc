// What more bandwidth would bring is what the layout serves with it.
#include <catch2/catch.hpp>
#include <string>

#include "scheduler/planner/planner.h"
#include "scheduler/planner/sensitivity.h"
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

TEST_CASE("10 Gbit/s more on a link that binds bring what the same layout then serves more") {
  constexpr double kSlow = 5e6, kStep = 10e9 / 8;
  const PlannerInput input = Input(kSlow);
  auto plan = MakePlan(input, {});
  REQUIRE(plan.status().message() == "");
  AddSensitivity(input, {}, false, &*plan);
  REQUIRE(plan->link_prices_size() == 1);
  const std::string& line = plan->link_prices(0);
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
  CHECK_THAT(plan->link_prices(0), Catch::Contains("would bring this layout nothing"));
}

}  // namespace
}  // namespace tessera::scheduler
