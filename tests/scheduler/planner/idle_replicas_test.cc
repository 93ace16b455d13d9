// What serves nothing is no part of a plan, and not paid for.
#include <catch2/catch.hpp>
#include <set>
#include <string>

#include "scheduler/input/catalogue.h"
#include "scheduler/plan_check/plan_check.h"
#include "scheduler/planner/planner.h"
#include "tests/scheduler/planner/written_input.h"

namespace tessera::scheduler {
namespace {

// A T4 takes longer for the prompt than the limit allows, whatever comes after it.
TEST_CASE("cards that meet no limit are left out of a plan for goodput, and of its price") {
  const PlannerInput input = tests::WrittenInput(
      "machines:\n"
      "- {name: a, devices: [{kind: A40, count: 2}]}\n"
      "- {name: b, devices: [{kind: T4, count: 2}]}\n"
      "tiers: {site: {bandwidth: 10 Gbit/s, latency: 60 us}}\n",
      "Qwen2.5-1.5B",
      "objectives: {time_to_first_token: 300 ms}\n"
      "classes: [{lengths: [{prompt_tokens: 3000, output_tokens: 1}]}]");
  PlannerOptions options;
  options.goal = Goal::kGoodput;
  const auto plan = MakePlan(input, options);
  REQUIRE(plan.status().message() == "");
  CHECK(CheckPlanOn(*plan, input.cluster, input.catalogue).message() == "");
  std::set<std::string> sent;
  for (const v1::RoutingShare& share : plan->routing())
    sent.insert({share.prefill_replica(), share.decode_replica()});
  REQUIRE(plan->replicas_size() >= 1);
  for (const v1::Replica& replica : plan->replicas()) {
    INFO(replica.name());
    CHECK(sent.contains(replica.name()));
    CHECK(replica.stages(0).workers(0).kind() == "A40");
    CHECK(replica.prediction().requests_per_second() > 0);
  }
  const double usd = 2 * FindKind(input.catalogue, "A40")->price_usd_per_hour();
  CHECK(plan->prediction().usd_per_million_output_tokens() ==
        Approx(usd / 3600 / plan->prediction().output_tokens_per_second() * 1e6));
}

}  // namespace
}  // namespace tessera::scheduler
