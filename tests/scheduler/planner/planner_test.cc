#include "scheduler/planner/planner.h"

#include <catch2/catch.hpp>

#include "absl/strings/str_format.h"
#include "scheduler/plan_check/plan_check.h"
#include "scheduler/planner/report/plan_table.h"
#include "tests/scheduler/planner/written_input.h"

namespace tessera::scheduler {
namespace {

PlannerInput Input(const std::string& cluster, const std::string& model = "Llama-3-8B") {
  return tests::WrittenInput(cluster, model);
}

constexpr char kMixed[] = R"(
machines:
- {name: a, devices: [{kind: A40, count: 2}]}
- {name: b, devices: [{kind: L4, count: 2}]}
- {name: c, devices: [{kind: T4, count: 3}]}
tiers: {site: {bandwidth: 25 Gbit/s, latency: 50 us}}
)";

double Price(const v1::DeploymentPlan& plan) { return plan.certificate().value(); }

TEST_CASE("a plan passes the independent check, uses every useful device and says why") {
  const auto plan = MakePlan(Input(kMixed), {});
  REQUIRE(plan.status().message() == "");
  CHECK(CheckPlan(*plan).message() == "");
  CHECK(plan->replicas_size() >= 3);
  CHECK(plan->prediction().requests_per_second() > 0);
  double shares = 0;
  for (const v1::RoutingShare& share : plan->routing()) shares += share.share();
  CHECK(shares == Approx(1).epsilon(1e-6));
  CHECK_THAT(PlanTable(*plan), Catch::Contains("what sets the pace:") &&
                                   Catch::Contains("ESTIMATED by likeness") &&
                                   Catch::Contains("routing:"));
}

TEST_CASE("every replica's steps have room for its steady share of prompts, and little more") {
  const auto plan = MakePlan(Input(kMixed), {});
  REQUIRE(plan.status().message() == "");
  for (const v1::Replica& replica : plan->replicas()) {
    const v1::Prediction& p = replica.prediction();
    if (replica.role() != v1::REPLICA_ROLE_BOTH) continue;
    // 1000 prompt and 199 decoded tokens of each request pass through the steps.
    const double rows_per_second = p.requests_per_second() * 1199;
    CHECK(replica.max_batched_tokens() > 8);
    CHECK(replica.max_batched_tokens() <= plan->basis().max_step_tokens());
    CHECK(static_cast<double>(replica.max_batched_tokens()) < rows_per_second);  // of a second
    CHECK_THAT(PlanTable(*plan),
               Catch::Contains("steps of up to " + std::to_string(replica.max_batched_tokens())));
  }
}

TEST_CASE("the same input gives the same bytes") {
  const auto first = MakePlan(Input(kMixed), {}), second = MakePlan(Input(kMixed), {});
  REQUIRE(first.ok());
  CHECK(first->SerializeAsString() == second->SerializeAsString());
}

TEST_CASE("more devices never serve less, and a limit on TPOT is kept") {
  const auto two = MakePlan(Input("machines: [{name: a, devices: [{kind: A40, count: 2}]}]"), {});
  const auto mixed = MakePlan(Input(kMixed), {});
  REQUIRE(two.ok());
  CHECK(mixed->prediction().requests_per_second() >= two->prediction().requests_per_second());
  PlannerInput tight = Input(kMixed);
  tight.workload.mutable_objectives()->set_time_per_output_token_seconds(0.05);
  const auto kept = MakePlan(tight, {});
  REQUIRE(kept.status().message() == "");
  CHECK(kept->prediction().time_per_output_token_seconds() <= 0.05);
  CHECK(kept->prediction().requests_per_second() < mixed->prediction().requests_per_second());
}

TEST_CASE("one device: the optimum is proved") {
  const auto plan = MakePlan(Input("machines: [{name: a, devices: [{kind: A40}]}]"), {});
  REQUIRE(plan.status().message() == "");
  CHECK(plan->certificate().upper_bound() >= plan->certificate().value());
  CHECK(plan->certificate().gap() < 1e-5);
  CHECK_THAT(PlanTable(*plan), Catch::Contains("the gap is 0.00 %"));
}

TEST_CASE("what does not fit says how many GiB are missing") {
  const auto plan =
      MakePlan(Input("machines: [{name: a, devices: [{kind: T4, count: 2}]}]", "Llama-2-70B"), {});
  REQUIRE(plan.status().code() == absl::StatusCode::kResourceExhausted);
  // 128.5 GiB of weights against 2 * (16 * 0.9 - 1).
  CHECK_THAT(std::string(plan.status().message()), Catch::Contains("weights 128.48 GiB") &&
                                                       Catch::Contains("offer 26.80 GiB") &&
                                                       Catch::Contains("GiB are missing"));
}

constexpr char kMarket[] = R"(
budget: 1.5 USD/h
machines:
- {name: big, available: 2, price: 1.2 USD/h, devices: [{kind: A100-40}]}
- {name: small, available: 3, price: 0.5 USD/h, devices: [{kind: L4}]}
tiers: {site: {bandwidth: 10 Gbit/s, latency: 60 us}}
)";

TEST_CASE("the cheapest plan for a rate, and the best within a budget") {
  PlannerInput input = Input(kMarket);
  PlannerOptions options;
  const auto all = MakePlan(input, options);
  REQUIRE(all.ok());
  options.goal = Goal::kPrice;
  CHECK(MakePlan(input, options).status().code() ==
        absl::StatusCode::kInvalidArgument);  // no rate given
  input.workload.set_requests_per_second(0.8);
  const auto cheap = MakePlan(input, options);
  REQUIRE(cheap.status().message() == "");
  CHECK(cheap->prediction().requests_per_second() >= 0.8);
  input.workload.set_requests_per_second(2 * 0.8);
  const auto dearer = MakePlan(input, options);
  REQUIRE(dearer.status().message() == "");
  CHECK(Price(*dearer) >= Price(*cheap));
  input.workload.set_requests_per_second(1e6);
  CHECK(MakePlan(input, options).status().code() == absl::StatusCode::kResourceExhausted);

  input.workload.set_requests_per_second(0);
  options.goal = Goal::kBudget;
  const auto within = MakePlan(input, options);
  REQUIRE(within.ok());
  CHECK(within->prediction().requests_per_second() < all->prediction().requests_per_second());
  CHECK(within->prediction().requests_per_second() > 0);
  int devices = 0;
  for (const auto& replica : within->replicas()) {
    for (const auto& stage : replica.stages()) devices += stage.workers_size();
  }
  CHECK(devices <= 3);
}

TEST_CASE("what a plan costs, and whose prices these are, is said; a rate near its limit is too") {
  const std::string own =
      "machines: [{name: a, devices: [{kind: A40}]}, {name: b, price: 3 USD/h, devices: [{kind: "
      "L4}]}]"
      "\ntiers: {site: {bandwidth: 25 Gbit/s, latency: 50 us}}";
  const auto plan = MakePlan(Input(own), {});
  REQUIRE(plan.status().message() == "");
  CHECK_THAT(PlanTable(*plan),
             Catch::Contains("it costs 3.44 USD/h to rent") &&
                 Catch::Contains("prices of 1 machine = as the description says") &&
                 Catch::Contains("A40 0.44 (ESTIMATED, one provider's on one day"));
  CHECK(plan->prediction().usd_per_million_output_tokens() > 0);

  const auto unknown = MakePlan(Input("machines: [{name: a, devices: [{kind: H20}]}]"), {});
  REQUIRE(unknown.status().message() == "");
  CHECK(unknown->prediction().usd_per_million_output_tokens() == 0);
  CHECK_THAT(PlanTable(*unknown),
             Catch::Contains("price of H20 = unknown") && !Catch::Contains("USD per million"));

  PlannerInput near = Input(own);
  near.workload.set_requests_per_second(0.95 * plan->prediction().requests_per_second());
  const auto close = MakePlan(near, {});
  REQUIRE(close.status().message() == "");
  CHECK_THAT(PlanTable(*close),
             Catch::Contains("above 80 % of a plan's capacity waiting times grow"));
}

TEST_CASE("latencies and prices are those of the asked rate, each with its rate beside it") {
  PlannerInput input = Input("machines: [{name: a, devices: [{kind: A40}]}]");
  const auto all = MakePlan(input, {});
  REQUIRE(all.ok());
  const double most = all->prediction().requests_per_second();
  CHECK(all->basis().requests_per_second() == Approx(0.8 * most));
  input.workload.set_requests_per_second(0.95 * most);
  const auto asked = MakePlan(input, {});
  REQUIRE(asked.ok());
  CHECK(asked->basis().requests_per_second() == Approx(0.95 * most));
  CHECK(asked->prediction().time_to_first_token_seconds() >
        all->prediction().time_to_first_token_seconds());
  // The price per token in the table is of a plan that is fully used, whatever is asked.
  CHECK(asked->prediction().usd_per_million_output_tokens() ==
        Approx(all->prediction().usd_per_million_output_tokens()));
  CHECK_THAT(PlanTable(*asked),
             Catch::Contains("USD per million output tokens when fully used") &&
                 Catch::Contains("its capacity, and ") &&
                 Catch::Contains(absl::StrFormat("at the asked %.3f", 0.95 * most)));
  PlannerOptions price;
  price.goal = Goal::kPrice;
  input.workload.set_requests_per_second(0.5 * most);
  const auto cheap = MakePlan(input, price);
  REQUIRE(cheap.ok());
  CHECK_THAT(PlanTable(*cheap),
             Catch::Contains("it costs 0.44 USD/h to rent, the minimised cost") &&
                 Catch::Contains("proved optimum: nothing serves the asked"));
}

TEST_CASE("a bound says of which placements it is one") {
  PlannerInput input = Input("machines: [{name: a, devices: [{kind: A40}]}]");
  const auto best = MakePlan(input, {});
  REQUIRE(best.ok());
  CHECK_THAT(PlanTable(*best), Catch::Contains("this holds among layouts whose stages have one "
                                               "kind of device in one machine") &&
                                   Catch::Contains("every class and length in the same mix"));
  CHECK_THAT(PlanTable(*best), Catch::Contains("proved optimum: nothing serves more than ") &&
                                   !Catch::Contains("which is proved"));
  PlannerOptions options;
  options.search = "hexgen";
  const auto unproved = MakePlan(Input(kMixed), options);
  REQUIRE(unproved.ok());
  CHECK_THAT(PlanTable(*unproved), Catch::Contains("heuristic: no bound is proved"));
}

TEST_CASE("an unknown search is refused with the known ones") {
  PlannerOptions options;
  options.search = "guess";
  CHECK_THAT(std::string(MakePlan(Input(kMixed), options).status().message()),
             Catch::Contains("no search called guess") && Catch::Contains("best"));
}

}  // namespace
}  // namespace tessera::scheduler
