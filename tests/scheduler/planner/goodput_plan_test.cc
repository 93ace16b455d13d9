// Plans for goodput: judged by what meets the objectives, chosen by it, explained and checked.
#include <catch2/catch.hpp>

#include "scheduler/plan_check/plan_check.h"
#include "scheduler/planner/planner.h"
#include "scheduler/planner/report/outlook_text.h"
#include "scheduler/planner/report/plan_table.h"
#include "tests/scheduler/planner/written_input.h"

namespace tessera::scheduler {
namespace {

using Catch::Contains;

constexpr char kPairs[] = R"(
machines:
- {name: a, devices: [{kind: L4, count: 2}], inside: {bandwidth: 24 GB/s, latency: 10 us}}
- {name: b, devices: [{kind: L4, count: 2}], inside: {bandwidth: 24 GB/s, latency: 10 us}}
tiers: {site: {bandwidth: 10 Gbit/s, latency: 60 us}}
)";

// Cards that each hold the model serve most; a prompt is answered sooner where both share every
// layer.
constexpr char kPair[] = R"(
machines: [{name: a, devices: [{kind: L4, count: 2}], inside: {bandwidth: 24 GB/s, latency: 10 us}}]
)";

PlannerInput Input(const std::string& workload, const std::string& cluster = kPairs) {
  return tests::WrittenInput(cluster, "Llama-3-8B", workload);
}

v1::DeploymentPlan PlanOf(const PlannerInput& input, Goal goal,
                          const std::string& search = "best") {
  PlannerOptions options;
  options.goal = goal;
  options.search = search;
  const auto plan = MakePlan(input, options);
  REQUIRE(plan.status().message() == "");
  CHECK(CheckPlanOn(*plan, input.cluster, input.catalogue).message() == "");
  return *plan;
}

constexpr char kPrompt[] =
    "{objectives: {time_to_first_token: 600 ms, attainment: 0.9}, "
    "classes: [{lengths: [{prompt_tokens: 1500, output_tokens: 100}]}]}";

TEST_CASE("the plan that serves most and the plan that serves most in time differ") {
  const PlannerInput input = Input(kPrompt, kPair);
  const v1::DeploymentPlan most = PlanOf(input, Goal::kThroughput);
  const v1::DeploymentPlan in_time = PlanOf(input, Goal::kGoodput);
  REQUIRE(most.replicas_size() == 2);
  for (const v1::Replica& replica : most.replicas()) {
    REQUIRE(replica.stages_size() == 1);
    CHECK(replica.stages(0).workers_size() == 1);
  }
  REQUIRE(in_time.replicas_size() == 1);
  REQUIRE(in_time.replicas(0).stages_size() == 1);
  CHECK(in_time.replicas(0).stages(0).workers_size() == 2);
  // What it promises is in time when it is simulated.
  CHECK(in_time.simulated().attainment() > 0.9 - 0.03);
  CHECK(in_time.prediction().requests_per_second() < most.prediction().requests_per_second());
  CHECK(in_time.prediction().attainment() >= 0.9 - 1e-6);
  // Far fewer are in time where throughput was planned for, and it says so.
  CHECK(most.prediction().attainment() < 0.6);
  CHECK(in_time.certificate().upper_bound() >= in_time.prediction().requests_per_second());
  CHECK_THAT(PlanTable(in_time), Contains("bound of the throughput with any TPOT") &&
                                     Contains("latency objectives") && Contains("would serve") &&
                                     Contains("heuristic"));
  REQUIRE(in_time.device_prices_size() == 1);
  CHECK_THAT(DevicePriceLines(in_time)[0],
             Contains("one more L4") && Contains("(estimate: shadow"));
  CHECK_THAT(PlanTable(most), Contains("TTFT and end to end are predicted, not optimised"));
}

TEST_CASE("which limit keeps most requests out is said where there are several") {
  const auto with = [](const std::string& limits) {
    return PlanTable(PlanOf(Input("{objectives: {" + limits +
                                      ", attainment: 0.9}, classes: [{lengths: [{prompt_tokens: "
                                      "1500, output_tokens: 100}]}]}",
                                  kPair),
                            Goal::kGoodput));
  };
  CHECK_THAT(with("time_to_first_token: 600 ms, time_per_output_token: 1 s"),
             Contains("the limit that most requests miss is TTFT: 100.0 % without one of TTFT, 9"));
  CHECK_THAT(with("time_to_first_token: 600 ms"), !Contains("most requests miss"));
}

TEST_CASE("a plan for requests in time promises no more than most of what a simulation keeps") {
  const v1::DeploymentPlan plan = PlanOf(Input(kPrompt), Goal::kGoodput);
  CHECK(plan.prediction().attainment() >= 0.9 - 1e-6);
  CHECK(plan.simulated().attainment() > 0.8);
}

TEST_CASE("a plan says which devices it does not use, and nothing where all are used") {
  // Alone it cannot hold the model, and it is too far away to be a part of a replica.
  std::string far = kPairs;
  far.insert(far.find("tiers:"),
             "- {name: c, site: far, devices: [{kind: T4}], inside: {bandwidth: 12 GB/s, latency: "
             "10 us}}\n");
  far.insert(far.find("{site:") + 1, "region: {bandwidth: 1 Mbit/s, latency: 500 ms}, ");
  CHECK_THAT(PlanTable(PlanOf(Input(kPrompt, far), Goal::kGoodput)),
             Contains("not used: 1 T4 (c); no plan was found"));
  CHECK_THAT(PlanTable(PlanOf(Input(kPrompt), Goal::kGoodput)), !Contains("not used"));
}

TEST_CASE("no search finds more goodput than best on few devices") {
  for (const char* workload :
       {kPrompt,
        "{objectives: {time_per_output_token: 40 ms, end_to_end: 6 s, attainment: 0.9}, "
        "classes: [{lengths: [{prompt_tokens: 700, output_tokens: 90}, "
        "{prompt_tokens: 2500, output_tokens: 140}]}]}"}) {
    const PlannerInput input = Input(workload);
    const double best = PlanOf(input, Goal::kGoodput).prediction().requests_per_second();
    for (const char* search : {"hexgen", "thunderserve", "hexgen2"}) {
      INFO(search << " on " << workload);
      PlannerOptions options;
      options.goal = Goal::kGoodput;
      options.search = search;
      const auto plan = MakePlan(input, options);
      if (!plan.ok()) continue;
      CHECK(plan->prediction().requests_per_second() <= best * 1.001);
      CHECK_THAT(PlanTable(*plan), Contains(std::string("not known: the search ") + search +
                                            " does not price devices; --sensitivity plans again"));
    }
  }
}

TEST_CASE("goodput falls as limits tighten, and nothing in time is said to be so") {
  double before = 1e9;
  for (const char* limit : {"10 s", "2 s", "1 s", "600 ms"}) {
    PlannerInput input = Input(
        std::string("{objectives: {time_to_first_token: ") + limit +
        ", attainment: 0.9}, classes: [{lengths: [{prompt_tokens: 1500, output_tokens: 100}]}]}");
    const double now = PlanOf(input, Goal::kGoodput).prediction().requests_per_second();
    INFO(limit);
    CHECK(now <= before * (1 + 1e-9));
    before = now;
  }
  PlannerOptions options;
  options.goal = Goal::kGoodput;
  const auto never =
      MakePlan(Input("{objectives: {time_to_first_token: 1 ms}, "
                     "classes: [{lengths: [{prompt_tokens: 1500, output_tokens: 100}]}]}"),
               options);
  CHECK(never.status().code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(std::string(never.status().message()), Contains("meets the objectives"));
}

TEST_CASE("where nothing limits waits, figures are of a load at which queues end soon") {
  const auto input = [](const std::string& more) {
    return Input("{objectives: {time_per_output_token: 60 ms" + more +
                 ", attainment: 0.9}, "
                 "classes: [{lengths: [{prompt_tokens: 1500, output_tokens: 100}]}]}");
  };
  const v1::DeploymentPlan open = PlanOf(input(""), Goal::kGoodput);
  const double promised = open.prediction().requests_per_second();
  CHECK(open.basis().requests_per_second() == Approx(0.8 * promised));
  CHECK(open.prediction().time_to_first_token_seconds() > 0);
  CHECK(open.prediction().time_to_first_token_seconds() < 5);
  CHECK_THAT(PlanTable(open), Contains("no objective limits waiting times: at the promised") &&
                                  Contains("80 % of the plan's capacity"));
  const v1::DeploymentPlan limited = PlanOf(input(", end_to_end: 20 s"), Goal::kGoodput);
  CHECK(limited.basis().requests_per_second() == limited.prediction().requests_per_second());
}

TEST_CASE("devices on which nothing is in time are left idle") {
  constexpr char kUnlike[] = R"(
machines:
- {name: fast, devices: [{kind: H100-SXM, count: 1}]}
- {name: slow, devices: [{kind: L4, count: 1}]}
tiers: {site: {bandwidth: 1 Gbit/s, latency: 60 us}}
)";
  const PlannerInput input = Input(
      "{objectives: {time_to_first_token: 200 ms, attainment: 0.9}, "
      "classes: [{lengths: [{prompt_tokens: 1500, output_tokens: 100}]}]}",
      kUnlike);
  CHECK(PlanOf(input, Goal::kThroughput).replicas_size() == 2);
  const v1::DeploymentPlan plan = PlanOf(input, Goal::kGoodput);
  REQUIRE(plan.replicas_size() == 1);
  CHECK(plan.replicas(0).stages(0).workers(0).device() == "fast/0");
  CHECK(plan.replicas(0).prediction().requests_per_second() > 0);
}

TEST_CASE("classes attain by themselves, and the plan names each") {
  const PlannerInput input = Input(R"(
objectives: {time_to_first_token: 3 s, attainment: 0.9}
classes:
- {name: chat, share: 0.8, lengths: [{prompt_tokens: 500, output_tokens: 100}]}
- name: code
  share: 0.2
  prefix_hit_rate: 0.5
  lengths: [{prompt_tokens: 3000, output_tokens: 30}]
  objectives: {time_to_first_token: 1 s, attainment: 0.8}
)");
  const v1::DeploymentPlan plan = PlanOf(input, Goal::kGoodput);
  REQUIRE(plan.prediction().classes_size() == 2);
  CHECK(plan.prediction().classes(0).attainment() >= 0.9 - 1e-6);
  CHECK(plan.prediction().classes(1).attainment() >= 0.8 - 1e-6);
  CHECK(plan.prediction().classes(1).prefix_hit_rate() == 0.5);
  CHECK_THAT(PlanTable(plan), Contains("chat, 80.0 % of the requests") &&
                                  Contains("code: 20.0 % of the requests, prefix hits 50 %") &&
                                  Contains("its own objectives"));
}

TEST_CASE("the check refuses what no plan can attain") {
  const PlannerInput input = Input(
      "{objectives: {time_per_output_token: 60 ms, time_to_first_token: 2 s, attainment: 0.9}, "
      "classes: [{name: chat, lengths: [{prompt_tokens: 1500, output_tokens: 100}]}]}");
  const v1::DeploymentPlan plan = PlanOf(input, Goal::kGoodput);
  const auto refusal = [&](const auto& change) {
    v1::DeploymentPlan changed = plan;
    change(changed.mutable_prediction()->mutable_classes(0), &changed);
    return std::string(CheckPlanOn(changed, input.cluster, input.catalogue).message());
  };
  using Class = v1::ClassPrediction;
  using Plan = v1::DeploymentPlan;
  CHECK_THAT(refusal([](Class* one, Plan*) { one->set_attainment(0.5); }), Contains("0.5"));
  CHECK_THAT(refusal([](Class* one, Plan* all) {
               one->set_attainment(0.5);
               all->mutable_prediction()->set_attainment(0.5);
             }),
             Contains("class chat: fewer requests are within"));
  CHECK_THAT(refusal([](Class* one, Plan*) {
               one->mutable_objectives()->set_time_per_output_token_seconds(0.001);
             }),
             Contains("it is 0.0 % at most"));
  CHECK_THAT(
      refusal([](Class* one, Plan*) { one->mutable_objectives()->set_end_to_end_seconds(-1); }),
      Contains("class chat: limits and latencies are seconds"));
  CHECK_THAT(refusal([](Class* one, Plan*) { one->set_time_to_first_token_seconds(1e3); }),
             Contains("class chat: a mean TTFT of 1000 s"));
  CHECK_THAT(refusal([](Class* one, Plan*) { one->mutable_lengths(0)->set_prompt_tokens(500); }),
             Contains("the classes' requests have 500.0 tokens"));
  // Nobody is in time where waits have no end, which is what leaving out the TTFT says.
  CHECK_THAT(refusal([](Class*, Plan* all) {
               all->mutable_prediction()->clear_time_to_first_token_seconds();
               for (v1::Replica& replica : *all->mutable_replicas())
                 replica.mutable_prediction()->clear_time_to_first_token_seconds();
             }),
             Contains("it is 0.0 % at most"));
  // 2 * 8e9 operations for each of 1500 tokens do not happen in a millisecond.
  CHECK_THAT(refusal([](Class* one, Plan*) {
               one->mutable_objectives()->set_time_to_first_token_seconds(0.001);
             }),
             Contains("it is 0.0 % at most"));
  // Of TPOTs whose mean is a little above the limit many are below, but next to none where the mean
  // is near the longest that replicas can have and serve what comes.
  const auto limit_of_mean = [](double part, Plan* all) {
    const double mean = all->replicas(0).prediction().time_per_output_token_seconds();
    for (Class& one : *all->mutable_prediction()->mutable_classes())
      one.mutable_objectives()->set_time_per_output_token_seconds(part * mean);
  };
  CHECK(refusal([&](Class*, Plan* all) { limit_of_mean(0.98, all); }) == "");
  CHECK_THAT(refusal([&](Class*, Plan* all) {
               limit_of_mean(0.98, all);
               for (v1::Replica& replica : *all->mutable_replicas()) replica.set_max_sequences(1);
             }),
             Contains("it is 0.0 % at most"));
  CHECK_THAT(refusal([](Class*, Plan* all) { all->mutable_prediction()->clear_classes(); }),
             Contains("gives no attainment of any class"));
}

}  // namespace
}  // namespace tessera::scheduler
