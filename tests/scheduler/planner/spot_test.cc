#include "scheduler/planner/spot.h"

#include <catch2/catch.hpp>

#include "absl/strings/str_format.h"
#include "scheduler/planner/planner.h"
#include "scheduler/planner/report/choice_text.h"
#include "scheduler/planner/report/note_text.h"
#include "scheduler/planner/report/plan_table.h"
#include "scheduler/planner/request/plan_request.h"
#include "tests/scheduler/planner/written_input.h"

namespace tessera::scheduler {
namespace {

using Catch::Contains;

constexpr char kMarket[] = R"(
budget: 3 USD/h
machines:
- {name: big, available: 4, price: 1.2 USD/h, spot_price: 0.4 USD/h, spot_available: 3,
   devices: [{kind: A100-40}]}
- {name: small, available: 3, price: 0.5 USD/h, devices: [{kind: L4}]}
tiers: {site: {bandwidth: 10 Gbit/s, latency: 60 us}}
)";

PlannerInput Input(const std::string& cluster = kMarket) {
  return tests::WrittenInput(cluster, "Llama-3-8B");
}

double Usd(const v1::DeploymentPlan& plan, double other_usd_per_device) {
  double usd = 0;
  for (const v1::SpotMix& mix : plan.spot()) usd += mix.usd_per_hour();
  for (const v1::Replica& replica : plan.replicas()) {
    for (const v1::Stage& stage : replica.stages()) {
      for (const v1::PlannedWorker& worker : stage.workers())
        usd += worker.device().starts_with("small") ? other_usd_per_device : 0;
    }
  }
  return usd;
}

}  // namespace

TEST_CASE("on demand is what ready spot machines leave of target and extra") {
  CHECK(OnDemand(4, 1, 0) == 4);
  CHECK(OnDemand(4, 1, 1) == 4);
  CHECK(OnDemand(4, 1, 2) == 3);
  CHECK(OnDemand(4, 1, 5) == 0);
  CHECK(OnDemand(4, 1, 9) == 0);
  CHECK(OnDemand(0, 0, 0) == 0);
}

TEST_CASE("machines are counted by description, and spot ones are not more than there are") {
  const v1::Cluster cluster = Input().cluster;
  const std::set<std::string> used = {"big.1", "big.2", "big.4", "small.1"};
  CHECK(SpotMixes(cluster, {}, used).empty());
  auto mixes = SpotMixes(cluster, {0.5, 0}, used);
  REQUIRE(mixes.size() == 1);
  CHECK(mixes[0].target() == 3);
  CHECK(mixes[0].spot() == 1);
  CHECK(mixes[0].on_demand() == 2);
  CHECK(mixes[0].usd_per_hour() == Approx(2 * 1.2 + 0.4));
  // One extra: four machines in all, two of them spot, so one on demand can be saved.
  mixes = SpotMixes(cluster, {0.5, 1}, used);
  CHECK(mixes[0].spot() == 2);
  CHECK(mixes[0].on_demand() == 2);
  mixes = SpotMixes(cluster, {1, 5}, used);  // the fourth is all that is left, three are offered
  CHECK(mixes[0].spot() == 3);
  CHECK(mixes[0].on_demand() == 1);
}

TEST_CASE("extra machines are hoped for as far as there are any, and what is cut is said") {
  const v1::Cluster cluster = Input().cluster;  // 4 available, 3 of them as spot
  const auto line = [&](const SpotOptions& options, const std::set<std::string>& used) {
    return SpotLine(SpotMixes(cluster, options, used).at(0));
  };
  const std::set<std::string> two = {"big.1", "big.2"}, four = {"big.1", "big.2", "big.3", "big.4"};
  CHECK(line({0.5, 2}, two) ==
        "rent 2 big on demand and 2 as spot, for 2 that the plan needs: 3.20 USD/h");
  // A quarter of four: one spot machine, and never more on demand than are needed.
  CHECK(line({0.25, 2}, two) ==
        "rent 2 big on demand and 1 as spot, for 2 that the plan needs: 2.80 USD/h");
  CHECK_THAT(line({0.5, 3}, two),
             Contains("rent 2 big on demand and 2 as spot, for 2 that the plan needs") &&
                 Catch::EndsWith("; of 3 extra (--spot-extra) 2: `available` is 4"));
  CHECK_THAT(line({0.5, 1}, four),
             Contains("rent 2 big on demand and 2 as spot, for 4 that the plan needs") &&
                 Catch::EndsWith("; of 1 extra (--spot-extra) 0: `available` is 4"));
  CHECK_THAT(line({1, 0}, four), Contains("rent 1 big on demand and 3 as spot") &&
                                     Catch::EndsWith("; no more than 3 are offered as spot "
                                                     "(spot_available)"));
  // Where the description gives no `available` there is the one.
  v1::Cluster single;
  v1::Machine& only = *single.add_machines();
  only.set_name("only");
  only.set_price_usd_per_hour(2);
  only.set_spot_price_usd_per_hour(1);
  CHECK_THAT(SpotLine(SpotMixes(single, {1, 1}, {"only"}).at(0)),
             Contains("rent 0 only on demand and 1 as spot, for 1 that the plan needs") &&
                 Catch::EndsWith("; of 1 extra (--spot-extra) 0: `available` is 1"));
}

TEST_CASE(
    "within a budget more is rented where a part is spot, and the price is that of machines") {
  const PlannerInput input = Input();
  PlannerOptions options;
  options.goal = Goal::kBudget;
  const auto dear = MakePlan(input, options);
  REQUIRE(dear.status().message() == "");
  CHECK(dear->spot().empty());
  CHECK_THAT(PlanTable(*dear), Contains("spot share = 0: every machine is rented on demand"));
  options.spot.share = 0.5;
  const auto mixed = MakePlan(input, options);
  REQUIRE(mixed.status().message() == "");
  CHECK(mixed->prediction().requests_per_second() > dear->prediction().requests_per_second() * 1.2);
  CHECK(Usd(*mixed, 0.5) <= 3.0 + 1e-9);
  CHECK_THAT(PlanTable(*mixed), Contains("as spot, for ") && Contains("spot share = 0.5"));
  options.goal = Goal::kPrice;
  PlannerInput asked = input;
  asked.workload.set_requests_per_second(dear->prediction().requests_per_second());
  const auto cheap = MakePlan(asked, options);
  REQUIRE(cheap.status().message() == "");
  CHECK(cheap->certificate().value() == Approx(Usd(*cheap, 0.5)));
  options.spot.share = 0;
  const auto full = MakePlan(asked, options);
  REQUIRE(full.ok());
  CHECK(cheap->certificate().value() < full->certificate().value());
}

constexpr char kHopper[] =
    "- {name: h, available: 4, price: 5 USD/h, spot_price: 2 USD/h, spot_available: 3, devices: "
    "[{kind: H100-SXM, count: 2}]}\n";
constexpr char kAmpere[] =
    "- {name: a, available: 6, price: 2 USD/h, spot_price: 0.9 USD/h, devices: [{kind: A6000, "
    "count: 4}]}\n";

// Of Llama-2-70B, half of the machines hoped for as spot.
v1::DeploymentPlan Rented(const std::string& machines, Goal goal, double amount) {
  PlannerInput input = tests::WrittenInput(
      absl::StrFormat("%smachines:\n%stiers: {site: {bandwidth: 10 Gbit/s, latency: 60 us}}\n",
                      goal == Goal::kBudget ? absl::StrFormat("budget: %g USD/h\n", amount) : "",
                      machines),
      "Llama-2-70B");
  if (goal == Goal::kPrice) input.workload.set_requests_per_second(amount);
  PlannerOptions options;
  options.goal = goal;
  options.spot.share = 0.5;
  options.simulate = false;
  const auto plan = MakePlan(input, options);
  INFO(plan.status().message());
  REQUIRE(plan.ok());
  return *plan;
}

double UsdOf(const v1::DeploymentPlan& plan) {
  double usd = 0;
  for (const v1::SpotMix& mix : plan.spot()) usd += mix.usd_per_hour();
  return usd;
}

// One machine is none that is spot, two are one: what they cost is not in proportion.
TEST_CASE("an offer that is left out makes no plan cheaper or stronger") {
  const std::string both = std::string(kHopper) + kAmpere;
  for (const double rate : {4.0, 6.0, 9.0, 12.0}) {
    INFO(rate << " requests/s");
    const v1::DeploymentPlan plan = Rented(both, Goal::kPrice, rate);
    CHECK(plan.certificate().value() == Approx(UsdOf(plan)));
    CHECK(plan.prediction().requests_per_second() >= rate * (1 - 1e-6));
    for (const char* only : {kHopper, kAmpere}) {
      const double alone = Rented(only, Goal::kPrice, rate).certificate().value();
      CHECK(plan.certificate().value() <= alone * (1 + 1e-9));
    }
    for (const std::string& line : AlternativeLines(plan)) {
      const size_t at = line.find(" for ");
      if (at == std::string::npos || line.find(" instead of ") == std::string::npos) continue;
      INFO(line);
      CHECK(std::stod(line.substr(at + 5)) >= plan.certificate().value() - 0.005);
    }
  }
  for (const double budget : {6.0, 9.0, 12.0}) {
    INFO(budget << " USD/h");
    const v1::DeploymentPlan plan = Rented(both, Goal::kBudget, budget);
    CHECK(UsdOf(plan) <= budget * (1 + 1e-9));
    CHECK(plan.certificate().upper_bound() >= plan.prediction().requests_per_second());
    for (const char* only : {kHopper, kAmpere}) {
      const double alone = Rented(only, Goal::kBudget, budget).prediction().requests_per_second();
      CHECK(plan.prediction().requests_per_second() >= alone * (1 - 1e-3));
    }
  }
}

TEST_CASE("nonsense is refused by name") {
  const auto refusal = [](const PlannerInput& input, SpotOptions spot) {
    PlannerOptions options;
    options.spot = spot;
    return std::string(MakePlan(input, options).status().message());
  };
  CHECK_THAT(refusal(Input(), {1.5, 0}), Contains("--spot-share"));
  CHECK_THAT(refusal(Input(), {0.5, -1}), Contains("--spot-extra"));
  CHECK_THAT(refusal(Input(), {0, 1}), Contains("--spot-extra: needs --spot-share"));
  PlannerInput input = Input("machines: [{name: a, devices: [{kind: A40}]}]");
  CHECK_THAT(refusal(input, {0.5, 0}), Contains("no machine of c.yaml has a spot_price"));
  input.cluster.mutable_machines(0)->set_spot_price_usd_per_hour(1);
  CHECK_THAT(refusal(input, {}), Contains("machines[0].spot_price: needs price"));
  input.cluster.mutable_machines(0)->set_price_usd_per_hour(0.5);
  CHECK_THAT(refusal(input, {}), Contains("machines[0].spot_price: is above price"));
  input.cluster.mutable_machines(0)->set_spot_available(2);
  CHECK_THAT(refusal(input, {}), Contains("more machines than are available (1)"));
}

TEST_CASE("a request carries the share") {
  v1::PlanRequest request;
  const PlannerInput input = Input();
  *request.mutable_cluster() = input.cluster;
  *request.mutable_workload() = input.workload;
  request.set_objective(v1::OBJECTIVE_BUDGET);
  request.set_spot_share(1);
  const auto reply = AnswerPlanRequest(request, input.model, {});
  REQUIRE(reply.status().message() == "");
  CHECK(reply->plan().spot_size() == 1);
}

}  // namespace tessera::scheduler
