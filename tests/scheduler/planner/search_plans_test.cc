// Whatever the search, the plan passes the independent check.
#include <catch2/catch.hpp>

#include "scheduler/input/catalogue.h"
#include "scheduler/plan_check/plan_check.h"
#include "scheduler/planner/planner.h"
#include "scheduler/search/searches.h"
#include "tests/scheduler/planner/written_input.h"

namespace tessera::scheduler {
namespace {

PlannerInput Input() {
  const char* cluster =
      "machines:\n"
      "- {name: a, site: x, devices: [{kind: A40, count: 2}]}\n"
      "- {name: b, site: x, devices: [{kind: L4, count: 2}]}\n"
      "- {name: c, site: y, devices: [{kind: T4, count: 2}]}\n"
      "sites: [{name: y, uplink: {bandwidth: 1 Gbit/s, latency: 2 ms}}]\n"
      "tiers: {site: {bandwidth: 25 Gbit/s, latency: 50 us},\n"
      "        region: {bandwidth: 5 Gbit/s, latency: 2 ms}}\n"
      "budget: 2 USD/h\n";
  return tests::WrittenInput(cluster, "Llama-3-8B",
                             "requests_per_second: 0.5\n"
                             "classes: [{lengths: [{prompt_tokens: 1000, output_tokens: 200}]}]");
}

TEST_CASE("plans of every search and goal pass plan_check and keep their goal") {
  const PlannerInput input = Input();
  for (const std::string& name : SearchNames()) {
    for (const Goal goal : {Goal::kThroughput, Goal::kBudget, Goal::kPrice}) {
      INFO(name << ", goal " << static_cast<int>(goal));
      PlannerOptions options;
      options.search = name;
      options.goal = goal;
      const absl::StatusOr<v1::DeploymentPlan> plan = MakePlan(input, options);
      REQUIRE(plan.status().message() == "");
      CHECK(CheckPlanOn(*plan, input.cluster, input.catalogue).message() == "");
      CHECK(plan->prediction().requests_per_second() > 0);
      double usd = 0;
      for (const v1::Replica& replica : plan->replicas()) {
        for (const v1::Stage& stage : replica.stages()) {
          for (const v1::PlannedWorker& worker : stage.workers())
            usd += FindKind(input.catalogue, worker.kind())->price_usd_per_hour();
        }
      }
      if (goal == Goal::kBudget) CHECK(usd <= 2);
      if (goal == Goal::kPrice) {
        CHECK(plan->certificate().value() == Approx(usd));
        CHECK(plan->prediction().requests_per_second() >= 0.5 * (1 - 1e-6));
      }
    }
  }
}

}  // namespace
}  // namespace tessera::scheduler
