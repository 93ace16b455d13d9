// Ctrl-C and --time-limit: whenever a search is stopped, what it has is a sound plan that says so.
#include <catch2/catch.hpp>
#include <string>

#include "scheduler/plan_check.h"
#include "scheduler/planner/planner.h"
#include "tests/scheduler/planner/written_input.h"

namespace tessera::scheduler {
namespace {

constexpr char kFew[] = R"(
machines:
- {name: a, devices: [{kind: A40, count: 2}]}
- {name: b, devices: [{kind: L4, count: 2}]}
- {name: c, devices: [{kind: T4, count: 2}]}
tiers: {site: {bandwidth: 25 Gbit/s, latency: 50 us}}
)";
constexpr char kMany[] = R"(
machines:
- {name: a, site: x, devices: [{kind: A40, count: 4}]}
- {name: b, site: x, devices: [{kind: L4, count: 4}]}
- {name: c, site: y, devices: [{kind: T4, count: 4}]}
tiers: {site: {bandwidth: 25 Gbit/s, latency: 50 us}, region: {bandwidth: 1 Gbit/s, latency: 5 ms}}
)";

PlannerInput Input(const char* cluster) { return tests::WrittenInput(cluster, "Llama-2-13B"); }

bool SaysInterrupted(const v1::DeploymentPlan& plan) {
  for (const std::string& line : plan.explanation()) {
    if (line.starts_with("BEWARE: interrupted: ")) return true;
  }
  return false;
}

bool SameReplicas(const v1::DeploymentPlan& a, const v1::DeploymentPlan& b) {
  bool same = a.replicas_size() == b.replicas_size();
  for (int i = 0; same && i < a.replicas_size(); ++i)
    same = a.replicas(i).SerializeAsString() == b.replicas(i).SerializeAsString();
  return same;
}

TEST_CASE("whenever a search is stopped, a sound plan is there that says so") {
  for (const char* cluster : {kFew, kMany}) {
    const PlannerInput input = Input(cluster);
    for (const std::string& search : SearchNames()) {
      if (search == "exact" && cluster == kMany) continue;  // too many devices for it
      PlannerOptions options;
      options.search = search;
      options.simulate = false;
      if (search == "hexgen") options.search_options = {"hexgen.patience=20"};
      if (search == "thunderserve") options.search_options = {"thunderserve.patience=10"};
      int64_t asked = 0, most = 0;
      options.watch.stop = [&] { return ++asked > most; };
      most = 1'000'000'000;
      const auto full = MakePlan(input, options);
      REQUIRE(full.status().message() == "");
      CHECK_FALSE(SaysInterrupted(*full));
      const int64_t all = asked;
      for (const int64_t part : {int64_t{0}, int64_t{1}, all / 10, all / 2}) {
        INFO(search << " stopped after " << part << " of " << all);
        if (part >= all) continue;
        asked = 0;
        most = part;
        const auto plan = MakePlan(input, options);
        if (!plan.ok()) {
          CHECK_THAT(std::string(plan.status().message()),
                     Catch::Contains("stopped before any plan was found"));
          continue;
        }
        // Behind the search the plan is compared with others: stopped there, it is what it was.
        CHECK((SaysInterrupted(*plan) || SameReplicas(*plan, *full)));
        CHECK(CheckPlanOn(*plan, input.cluster, input.catalogue).message() == "");
        CHECK(plan->prediction().requests_per_second() > 0);
      }
    }
  }
}

TEST_CASE("best has an answer however soon it is stopped") {
  for (const char* cluster : {kFew, kMany}) {
    PlannerOptions options;
    options.watch.stop = [] { return true; };
    const auto plan = MakePlan(Input(cluster), options);
    REQUIRE(plan.status().message() == "");
    CHECK(SaysInterrupted(*plan));
    CHECK_FALSE(plan->certificate().proved());
  }
}

TEST_CASE("a search that was stopped does not tell that idle devices are of no use") {
  // Too small for the model, and too far for a part of it.
  constexpr char kFar[] = R"(
machines:
- {name: a, site: x, devices: [{kind: A40, count: 2}]}
- {name: b, site: y, devices: [{kind: T4}]}
tiers: {region: {bandwidth: 1 Mbit/s, latency: 1 s}}
)";
  PlannerOptions options;
  options.watch.stop = [] { return true; };
  const auto plan = MakePlan(Input(kFar), options);
  REQUIRE(plan.status().message() == "");
  REQUIRE(SaysInterrupted(*plan));
  bool idle = false;
  for (const std::string& line : plan->explanation()) {
    idle = idle || line.starts_with("not used: ");
    CHECK_THAT(line, !Catch::Contains("nothing was found"));
  }
  CHECK(idle);
}

}  // namespace
}  // namespace tessera::scheduler
