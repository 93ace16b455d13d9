// Ctrl-C and --time-limit: whenever a search is stopped, what it has is a sound plan that says so.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "scheduler/plan_check/plan_check.h"
#include "scheduler/planner/advice/sensitivity.h"
#include "scheduler/planner/planner.h"
#include "scheduler/planner/report/choice_text.h"
#include "scheduler/planner/report/note_text.h"
#include "scheduler/planner/report/outlook_text.h"
#include "scheduler/planner/report/plan_table.h"
#include "scheduler/search/searches.h"
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
  for (const std::string& line : NoteLines(plan)) {
    if (line.starts_with("warning: interrupted: ")) return true;
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

// Ctrl-C while the plan is simulated: at its start, or within.
TEST_CASE("a simulation that is stopped leaves the plan that was found, which says so") {
  const PlannerInput input = Input(kMany);
  PlannerOptions options;
  options.simulate = false;
  const auto found = MakePlan(input, options);
  REQUIRE(found.status().message() == "");
  for (const Goal goal : {Goal::kThroughput, Goal::kGoodput}) {
    PlannerInput asked = input;
    asked.workload.mutable_objectives()->set_end_to_end_seconds(60);
    options.goal = goal;
    for (const int more : {0, 3}) {
      bool simulating = false;
      int64_t asked_then = 0;
      options.simulate = true;
      options.watch.progress = [&](const std::string& what) {
        simulating = simulating || what == "what it serves in a simulation";
      };
      options.watch.stop = [&] { return simulating && ++asked_then > more; };
      const auto plan = MakePlan(asked, options);
      REQUIRE(plan.status().message() == "");
      CHECK(simulating);
      CHECK(asked_then > more);
      CHECK(asked_then < more + 10);
      CHECK_FALSE(plan->has_simulated());
      if (goal == Goal::kThroughput) CHECK(SameReplicas(*plan, *found));
      CHECK_THAT(PlanTable(*plan),
                 Catch::Contains("warning: interrupted: not simulated\n") &&
                     Catch::Contains("judged by simulation as well = no (interrupted)"));
      CHECK(CheckPlanOn(*plan, input.cluster, input.catalogue).message() == "");
    }
  }
}

TEST_CASE("what a stopped search found is not held for what a change would bring") {
  const PlannerInput input = Input(kFew);
  PlannerOptions options;
  options.search = "hexgen";  // begins with poor layouts
  options.search_options = {"hexgen.patience=10"};
  options.simulate = false;
  const auto plan = MakePlan(input, options);
  REQUIRE(plan.status().message() == "");
  int64_t asked = 0, most = 1'000'000'000;
  options.watch.stop = [&] { return ++asked > most; };
  v1::DeploymentPlan full = *plan;
  AddSensitivity(input, options, true, &full);
  const auto known = [](const auto& lines, const std::string& line) {
    return std::find(lines.begin(), lines.end(), line) != lines.end();
  };
  const int64_t all = asked;
  for (const int twelfths : {5, 8}) {
    most = all * twelfths / 12;
    INFO("stopped after " << most << " of " << all);
    asked = 0;
    v1::DeploymentPlan some = *plan;
    AddSensitivity(input, options, true, &some);
    const std::vector<std::string> sensitivity = SensitivityLines(some);
    CHECK_THAT(*sensitivity.rbegin(), Catch::StartsWith("interrupted: "));
    for (const std::string& line : sensitivity) {
      INFO(line);
      CHECK((known(SensitivityLines(full), line) || line.find("interrupted") != std::string::npos ||
             line.find(';') == std::string::npos));
    }
    for (const std::string& line : AlternativeLines(some)) {
      INFO(line);
      CHECK((known(AlternativeLines(full), line) || known(AlternativeLines(*plan), line)));
    }
    for (const std::string& line : DevicePriceLines(some)) {
      INFO(line);
      CHECK((known(DevicePriceLines(full), line) || known(DevicePriceLines(*plan), line) ||
             line.starts_with("not planned again") ||
             line.ends_with("(planned again, 1 of 2 places tried)")));
    }
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
  for (const std::string& line : NoteLines(*plan)) {
    idle = idle || line.starts_with("not used: ");
    CHECK_THAT(line, !Catch::Contains("no plan was found"));
  }
  CHECK(idle);
}

}  // namespace
}  // namespace tessera::scheduler
