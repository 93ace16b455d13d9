#include "scheduler/planner/simulated_judgement.h"

#include <catch2/catch.hpp>

#include "proto/document.h"
#include "scheduler/input/catalogue.h"
#include "scheduler/planner/planner.h"
#include "scheduler/planner/planning_problem.h"
#include "scheduler/planner/report/plan_table.h"
#include "scheduler/simulator/goodput.h"
#include "tests/scheduler/planner/written_input.h"

namespace tessera::scheduler {
namespace {

constexpr char kCluster[] = R"(
machines:
- {name: a, devices: [{kind: A40, count: 2}]}
- {name: b, devices: [{kind: L4, count: 2}]}
tiers: {site: {bandwidth: 25 Gbit/s, latency: 50 us}}
)";
constexpr char kWorkload[] =
    "classes: [{lengths: [{prompt_tokens: 900, output_tokens: 150}, "
    "{prompt_tokens: 300, output_tokens: 50}]}]";

struct Asked {
  Asked() {
    REQUIRE(ReadDocument(kCluster, "c.yaml", &input.cluster).message() == "");
    REQUIRE(ReadDocument(kWorkload, "w.yaml", &input.workload).message() == "");
    input.workload.mutable_objectives()->set_time_per_output_token_seconds(10);
    input.catalogue = *BuiltInDevices();
    input.model = *BuiltInModel("Llama-3-8B");
    graph = *MakeClusterGraph(input.cluster, input.catalogue, "c.yaml");
    workload = *SamplesOf(input.workload, {}, input.model.max_positions(), "w.yaml");
    question.graph = &graph;
    question.workload = &workload;
    PlannerOptions quiet;
    quiet.simulate = false;
    const auto made = MakePlan(input, quiet);
    REQUIRE(made.status().message() == "");
    plan = *made;
  }
  PlannerInput input;
  ClusterGraph graph;
  WorkloadSamples workload;
  JudgementQuestion question;
  v1::DeploymentPlan plan;
};

}  // namespace

TEST_CASE("a plan's simulated figures stand beside the predicted ones") {
  const Asked asked;
  CHECK_FALSE(asked.plan.has_simulated());
  const auto plan = MakePlan(asked.input, {});
  REQUIRE(plan.status().message() == "");
  const v1::SimulatedFigures& seen = plan->simulated();
  const v1::Prediction& predicted = plan->prediction();
  CHECK(seen.requests() >= 2000);
  // Whatever the candidates were compared at, what a plan shows is at its own rates.
  const v1::DeploymentPlan& first = asked.plan;
  CHECK(seen.offered_requests_per_second() == predicted.requests_per_second());
  CHECK(seen.requests_per_second() > 0.9 * predicted.requests_per_second());
  CHECK(seen.requests_per_second() < 1.05 * predicted.requests_per_second());
  CHECK(seen.latency_requests_per_second() == plan->basis().requests_per_second());
  CHECK(seen.time_to_first_token_p50_seconds() > 0);
  CHECK(seen.time_to_first_token_p99_seconds() > seen.time_to_first_token_p50_seconds());
  CHECK(seen.time_per_output_token_p99_seconds() >= seen.time_per_output_token_p50_seconds());
  CHECK(seen.attainment() == 1);  // nobody takes ten seconds for a token
  CHECK_THAT(PlanTable(*plan), Catch::Contains("an estimate without a bound") &&
                                   Catch::Contains("100.00 % within the objectives") &&
                                   Catch::Contains("judged by simulation as well = yes"));
  CHECK(plan->certificate().value() <= first.certificate().value());
  CHECK(plan->SerializeAsString() == MakePlan(asked.input, {})->SerializeAsString());
}

// Over a thousand requests are under way at once: what finishes while they gather tells little.
TEST_CASE("what a large deployment serves is measured when it has filled") {
  Asked asked;
  asked.input.cluster.Clear();
  REQUIRE(ReadDocument("machines: [{name: a, devices: [{kind: A100-80, count: 8}]}]", "c.yaml",
                       &asked.input.cluster)
              .message() == "");
  asked.input.workload.mutable_classes(0)->mutable_lengths(0)->set_output_tokens(1500);
  PlannerOptions quiet;
  quiet.simulate = false;
  const auto plan = MakePlan(asked.input, quiet);
  REQUIRE(plan.status().message() == "");
  asked.graph = *MakeClusterGraph(asked.input.cluster, asked.input.catalogue, "c.yaml");
  asked.workload =
      *SamplesOf(asked.input.workload, {}, asked.input.model.max_positions(), "w.yaml");
  std::vector<v1::DeploymentPlan> usual = {*plan}, longer = {*plan};
  REQUIRE(JudgeBySimulation(asked.question, &usual).status().message() == "");
  CHECK(usual[0].simulated().requests() > asked.question.enough_requests);
  asked.question.least_requests = asked.question.enough_requests =
      5 * usual[0].simulated().requests();
  REQUIRE(JudgeBySimulation(asked.question, &longer).status().message() == "");
  CHECK(usual[0].simulated().requests_per_second() ==
        Approx(longer[0].simulated().requests_per_second()).epsilon(0.04));
  CHECK_THAT(PlanTable(usual[0]), !Catch::Contains("too few to fill"));
}

// A prompt beside the rows that decode makes their step many times longer on a slow device.
TEST_CASE("the predicted TPOT is of steps as the batcher makes them, on a CPU too") {
  Asked asked;
  asked.input.cluster.Clear();
  REQUIRE(ReadDocument("machines: [{name: a, devices: [{kind: cpu}]}]\n"
                       "kinds: [{name: cpu, memory: 14 GiB, memory_bandwidth: 6.5 GB/s, "
                       "dense_flops_per_second: 0.332 TFLOPS}]",
                       "c.yaml", &asked.input.cluster)
              .message() == "");
  asked.input.model = *BuiltInModel("Qwen2.5-0.5B");
  for (const double rate : {0.04, 0.08}) {
    asked.input.workload.set_requests_per_second(rate);
    const auto plan = MakePlan(asked.input, {});
    REQUIRE(plan.status().message() == "");
    const double seen = plan->simulated().time_per_output_token_mean_seconds();
    CHECK(plan->prediction().time_per_output_token_seconds() == Approx(seen).epsilon(0.15));
  }
}

// One step begins no more prompts than the batcher admits to it. (A prompt of one token costs the
// simulation as much as a row that decodes, which is more than a row of a longer one.)
TEST_CASE("short requests are bounded by those that begin in one step, as in the batcher") {
  Asked asked;
  struct Lengths {
    int prompt, output;
    double least;
  };
  for (const Lengths& one : {Lengths{3, 1, 0.9}, {1, 1, 0.65}, {1, 2, 0.75}}) {
    INFO(one.prompt << " in, " << one.output << " out");
    v1::WorkloadClass& asks = *asked.input.workload.mutable_classes(0);
    asks.clear_lengths();
    v1::LengthSample& lengths = *asks.add_lengths();
    lengths.set_prompt_tokens(one.prompt);
    lengths.set_output_tokens(one.output);
    const auto plan = MakePlan(asked.input, {});
    REQUIRE(plan.status().message() == "");
    const double ratio =
        plan->simulated().requests_per_second() / plan->prediction().requests_per_second();
    CHECK(ratio > one.least);
    CHECK(ratio < 1.05);
  }
}

TEST_CASE("what the simulation ranks clearly higher is chosen, and the plan says so") {
  Asked asked;
  v1::DeploymentPlan slow = asked.plan;  // promises as much, but starves its prompts
  for (v1::Replica& replica : *slow.mutable_replicas()) replica.set_max_batched_tokens(24);
  std::vector<v1::DeploymentPlan> candidates = {slow, asked.plan};
  const auto chosen = JudgeBySimulation(asked.question, &candidates);
  REQUIRE(chosen.status().message() == "");
  CHECK(*chosen == 1);
  CHECK_THAT(PlanTable(candidates[1]),
             Catch::Contains("chosen because the simulation ranks it clearly higher"));

  candidates = {asked.plan, slow};
  CHECK(*JudgeBySimulation(asked.question, &candidates) == 0);
  CHECK_THAT(PlanTable(candidates[0]), Catch::Contains("ranks no other choice clearly higher"));

  // A plan that promises less than the one beside it is shown at what it promises itself.
  v1::DeploymentPlan modest = asked.plan;
  const double promise = 0.5 * asked.plan.prediction().requests_per_second();
  modest.mutable_prediction()->set_requests_per_second(promise);
  modest.mutable_basis()->set_requests_per_second(0.85 * promise);
  candidates = {slow, modest};
  REQUIRE(*JudgeBySimulation(asked.question, &candidates) == 1);
  CHECK(candidates[1].simulated().offered_requests_per_second() == promise);
  CHECK(candidates[1].simulated().latency_requests_per_second() == 0.85 * promise);
  CHECK(candidates[1].simulated().requests_per_second() < 1.1 * promise);
  CHECK_THAT(PlanTable(candidates[1]),
             Catch::Contains("for each choice, the highest rate that one of them promises"));

  for (RequestClass& one : asked.workload.classes) one.limits = {};
  candidates = {asked.plan, modest};  // too modest to be worth a simulation
  REQUIRE(*JudgeBySimulation(asked.question, &candidates) == 0);
  CHECK_THAT(PlanTable(candidates[0]), Catch::Contains("ranks no other choice clearly higher") &&
                                           !Catch::Contains("the next best"));

  candidates = {asked.plan, asked.plan};  // a draw: the better prediction stays
  CHECK(*JudgeBySimulation(asked.question, &candidates) == 0);
}

// One device at all that it can serve: a queue, and few requests are answered soon.
TEST_CASE("a plan for goodput shows up to which rate the simulation attains what is asked") {
  Asked asked;
  asked.question.goal = Goal::kGoodput;
  RequestClass& one = asked.workload.classes.front();
  one.limits = {};
  one.limits.ttft_seconds = 0.5;
  one.required_attainment = 0.9;
  std::vector<v1::DeploymentPlan> plans = {asked.plan};
  REQUIRE(JudgeBySimulation(asked.question, &plans).status().message() == "");
  const double promised = asked.plan.prediction().requests_per_second();
  CHECK(plans[0].prediction().requests_per_second() == promised);
  REQUIRE(plans[0].simulated().has_attained_requests_per_second());
  const double attained = plans[0].simulated().attained_requests_per_second();
  CHECK(attained > 0.3 * promised);
  CHECK(attained < 0.98 * promised);
  CHECK_THAT(PlanTable(plans[0]),
             Catch::Contains("(by simulation: ") && Catch::Contains("rely on the simulation"));

  // With other requests than those it was found with, and more of them.
  const auto replicas = ReplicasOfPlan(asked.plan, asked.graph, {});
  REQUIRE(replicas.ok());
  const GoodputQuestion other = {&*replicas, &asked.workload.classes, 1, 30'000, 77};
  const auto within = [&](double rate) {
    return AttainedByClass(*SimulateAt(other, rate), asked.workload.classes).front();
  };
  CHECK(within(0.97 * attained) > 0.9);
  CHECK(within(1.03 * attained) < 0.9);

  // A rate that is attained is not made more of than was promised.
  plans = {asked.plan};
  plans[0].mutable_prediction()->set_requests_per_second(0.5 * attained);
  REQUIRE(JudgeBySimulation(asked.question, &plans).status().message() == "");
  CHECK(plans[0].simulated().attained_requests_per_second() == 0.5 * attained);
  CHECK_THAT(PlanTable(plans[0]), !Catch::Contains("by simulation: "));

  one.limits.ttft_seconds = 1e-6;  // of nobody
  plans = {asked.plan};
  REQUIRE(JudgeBySimulation(asked.question, &plans).status().message() == "");
  CHECK(plans[0].simulated().has_attained_requests_per_second());
  CHECK(plans[0].simulated().attained_requests_per_second() == 0);
  CHECK_THAT(PlanTable(plans[0]), Catch::Contains("none of the tried rates"));
}

TEST_CASE("plans for goodput are ranked by the rate at which the simulation attains it") {
  Asked asked;
  asked.question.goal = Goal::kGoodput;
  asked.workload.classes.front().limits.ttft_seconds = 0.5;
  asked.workload.classes.front().required_attainment = 0.9;
  v1::DeploymentPlan slow = asked.plan;  // promises more, but starves its prompts
  const double promised = asked.plan.prediction().requests_per_second();
  slow.mutable_prediction()->set_requests_per_second(1.1 * promised);
  for (v1::Replica& replica : *slow.mutable_replicas()) replica.set_max_batched_tokens(24);
  std::vector<v1::DeploymentPlan> candidates = {slow, asked.plan};
  CHECK(*JudgeBySimulation(asked.question, &candidates) == 1);
  CHECK(candidates[1].simulated().attained_requests_per_second() > 0);
  CHECK_THAT(PlanTable(candidates[1]),
             Catch::Contains("ranks it clearly higher: it meets the objectives up to"));
  candidates = {asked.plan, slow};
  CHECK(*JudgeBySimulation(asked.question, &candidates) == 0);
  CHECK_THAT(PlanTable(candidates[0]), Catch::Contains("ranks no other choice clearly higher"));
}

TEST_CASE("few devices have more than one candidate, and the proof is only of the first") {
  const Asked asked;
  const auto plan = MakePlan(asked.input, {});
  REQUIRE(plan.status().message() == "");
  CHECK_THAT(PlanTable(*plan), Catch::Contains("the simulation ranks"));
  CHECK(asked.plan.certificate().proved());
  const bool first = plan->certificate().value() == asked.plan.certificate().value();
  CHECK(plan->certificate().proved() == first);
}

TEST_CASE("the least price of few devices is proved, and said to be") {
  Asked asked;
  for (int m = 0; m < 2; ++m)
    asked.input.cluster.mutable_machines(m)->set_price_usd_per_hour(m + 1);
  asked.input.workload.set_requests_per_second(0.5);
  PlannerOptions options;
  options.goal = Goal::kPrice;
  const auto plan = MakePlan(asked.input, options);
  REQUIRE(plan.status().message() == "");
  CHECK(plan->certificate().proved());
  CHECK_THAT(PlanTable(*plan), Catch::Contains("proved optimum") &&
                                   Catch::Contains("for less than") &&
                                   !Catch::Contains("heuristic: no bound"));
}

TEST_CASE("for a price, serving more than was asked counts for nothing") {
  Asked asked;
  v1::DeploymentPlan slow = asked.plan;
  for (v1::Replica& replica : *slow.mutable_replicas()) replica.set_max_batched_tokens(24);
  asked.question.goal = Goal::kPrice;
  asked.workload.requests_per_second = 0.1 * asked.plan.prediction().requests_per_second();
  std::vector<v1::DeploymentPlan> candidates = {slow, asked.plan};
  CHECK(*JudgeBySimulation(asked.question, &candidates) == 0);
  asked.workload.requests_per_second = asked.plan.prediction().requests_per_second();
  candidates = {slow, asked.plan};
  CHECK(*JudgeBySimulation(asked.question, &candidates) == 1);
}

// Of a market most is not rented.
TEST_CASE("a plan of few devices of the many that are offered is simulated") {
  const auto input = tests::WrittenInput(
      "budget: 2 USD/h\nmachines: [{name: a, available: 30, price: 1.5 USD/h, "
      "devices: [{kind: A6000, count: 4}]}]\n"
      "tiers: {site: {bandwidth: 25 Gbit/s, latency: 50 us}}",
      "Llama-3-8B");
  PlannerOptions options;
  options.goal = Goal::kBudget;
  const auto plan = MakePlan(input, options);
  REQUIRE(plan.status().message() == "");
  CHECK(plan->simulated().requests() > 0);
}

TEST_CASE("plans for many devices are simulated where that is asked for") {
  PlannerOptions options;
  CHECK(Simulates(options, 64, false));
  CHECK_FALSE(Simulates(options, 65, false));
  CHECK(Simulates(options, 1000, true));
  CHECK_FALSE(Simulates(options, 1001, true));
  options.simulate = true;
  CHECK(Simulates(options, 10'000, false));
  options.simulate = false;
  CHECK_FALSE(Simulates(options, 1, true));
  options.simulate.reset();
  options.given_search = [](const PlacementProblem&) { return absl::CancelledError(); };
  CHECK_FALSE(Simulates(options, 1, false));  // layouts that people write, and searches again
}

}  // namespace tessera::scheduler
