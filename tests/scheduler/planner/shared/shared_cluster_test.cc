#include "scheduler/planner/shared/shared_cluster.h"

#include <catch2/catch.hpp>
#include <set>

#include "scheduler/plan_check/plan_check.h"
#include "scheduler/planner/report/plan_table.h"
#include "scheduler/planner/request/plan_request.h"
#include "scheduler/planner/shared/shared_text.h"
#include "tests/scheduler/planner/shared/shared_oracle.h"

namespace tessera::scheduler {
namespace {

using Catch::Contains;
using tests::BestTheta;
using tests::kMany;
using tests::RateOn;
using tests::SharedInput;

void CheckApart(const SharedPlans& shared, const PlannerInput& input) {
  std::set<std::string> devices;
  for (const v1::DeploymentPlan& plan : shared.plans) {
    CHECK(CheckPlanOn(plan, input.cluster, input.catalogue).message() == "");
    for (const v1::Replica& replica : plan.replicas()) {
      for (const v1::Stage& stage : replica.stages()) {
        for (const v1::PlannedWorker& worker : stage.workers())
          CHECK(devices.insert(worker.device()).second);
      }
    }
  }
}

constexpr char kFive[] = R"(
machines:
- {name: a, devices: [{kind: A40, count: 2}]}
- {name: b, devices: [{kind: L4, count: 3}]}
tiers: {site: {bandwidth: 25 Gbit/s, latency: 50 us}}
)";
constexpr char kFour[] = R"(
machines:
- {name: a, devices: [{kind: A100-40}, {kind: T4, count: 2}]}
- {name: b, devices: [{kind: A40}]}
tiers: {site: {bandwidth: 10 Gbit/s, latency: 50 us}}
)";

}  // namespace

TEST_CASE("up to five devices the deal is the best of all deals") {
  for (const char* cluster : {kFive, kFour}) {
    for (const auto& [rate_a, rate_b] :
         {std::pair(1.0, 1.0), std::pair(3.0, 1.0), std::pair(1.0, 4.0)}) {
      INFO(cluster << rate_a << " " << rate_b);
      const std::vector<PlannerInput> inputs = {SharedInput(cluster, "Llama-3-8B", rate_a),
                                                SharedInput(cluster, "Qwen2.5-7B", rate_b)};
      const auto shared = PlanShared(inputs, {});
      REQUIRE(shared.status().message() == "");
      CHECK(shared->of_asked);
      CHECK(shared->theta == Approx(BestTheta(inputs[0], inputs[1], rate_a, rate_b)).epsilon(1e-4));
      CheckApart(*shared, inputs[0]);
      CHECK_THAT(shared->text, Contains("every deal of the devices was tried"));
    }
  }
}

TEST_CASE("where no rates are given all models reach the same part of what they serve alone") {
  const std::vector<PlannerInput> inputs = {SharedInput(kFive, "Llama-3-8B"),
                                            SharedInput(kFive, "Qwen2.5-14B")};
  const auto shared = PlanShared(inputs, {});
  REQUIRE(shared.status().message() == "");
  CHECK_FALSE(shared->of_asked);
  const double a = RateOn(inputs[0], {2, 3}, "exact"), b = RateOn(inputs[1], {2, 3}, "exact");
  CHECK(shared->theta == Approx(BestTheta(inputs[0], inputs[1], a, b)).epsilon(1e-4));
  CHECK_THAT(shared->text, Contains("what it would serve alone (no rates were given)"));
  CHECK_THAT(PlanTable(shared->plans[0]),
             Contains("shares the cluster with Qwen2.5-14B") && Contains("dealt to models"));
}

TEST_CASE("on more devices the deal is no worse than the best deal of whole machines") {
  const std::vector<PlannerInput> inputs = {SharedInput(kMany, "Llama-3-8B", 10),
                                            SharedInput(kMany, "Qwen2.5-14B", 2)};
  const auto shared = PlanShared(inputs, {});
  REQUIRE(shared.status().message() == "");
  CheckApart(*shared, inputs[0]);
  CHECK_THAT(shared->text, Contains("moves (heuristic)"));
  double whole = 0;
  for (int mask = 1; mask < 15; ++mask) {
    std::vector<int> part, rest;
    for (int machine = 0; machine < 4; ++machine) {
      part.push_back((mask >> machine & 1) != 0 ? 4 : 0);
      rest.push_back(4 - part.back());
    }
    whole = std::max(
        whole, std::min(RateOn(inputs[0], part, "best") / 10, RateOn(inputs[1], rest, "best") / 2));
  }
  CHECK(shared->theta >= whole * 0.999);
  const auto again = PlanShared(inputs, {});
  CHECK(again->plans[0].SerializeAsString() == shared->plans[0].SerializeAsString());
}

TEST_CASE("what cannot be shared is refused, saying why") {
  const auto refusal = [](const std::vector<PlannerInput>& inputs, const PlannerOptions& options) {
    return std::string(PlanShared(inputs, options).status().message());
  };
  CHECK_THAT(refusal({SharedInput(kFive, "Llama-3-8B", 1), SharedInput(kFive, "Qwen2.5-14B")}, {}),
             Contains("give a rate for every model"));
  PlannerOptions options;
  options.goal = Goal::kPrice;
  CHECK_THAT(
      refusal({SharedInput(kFive, "Llama-3-8B", 1), SharedInput(kFive, "Qwen2.5-14B", 1)}, options),
      Contains("--objective"));
  constexpr char kOne[] = "machines: [{name: a, devices: [{kind: A40}]}]";
  CHECK_THAT(refusal({SharedInput(kOne, "Llama-3-8B"), SharedInput(kOne, "Qwen2.5-14B")}, {}),
             Contains("do not fit beside each other"));
  CHECK_THAT(refusal({SharedInput(kOne, "Llama-3-8B"), SharedInput(kOne, "Llama-2-70B")}, {}),
             Contains("Llama-2-70B does not fit"));
}

TEST_CASE("files are named after models, a request over the network has several too") {
  SharedPlans shared;
  for (const char* name : {"Llama-3-8B", "models/qwen", "Llama-3-8B"})
    shared.plans.emplace_back().mutable_model()->set_name(name);
  CHECK(PlanFileNames("out/plan.json", shared) ==
        std::vector<std::string>{"out/plan.Llama-3-8B.json", "out/plan.qwen.json",
                                 "out/plan.Llama-3-8B-2.json"});
  v1::PlanRequest request;
  const PlannerInput input = SharedInput(kFive, "Llama-3-8B");
  *request.mutable_cluster() = input.cluster;
  for (const char* name : {"Llama-3-8B", "Qwen2.5-14B"}) {
    v1::ModelRequest& one = *request.add_models();
    one.mutable_model()->set_name(name);
    *one.mutable_workload() = input.workload;
  }
  const auto reply = AnswerPlanRequest(request, input.model, {});
  REQUIRE(reply.status().message() == "");
  CHECK(reply->plans_size() == 2);
  CHECK_FALSE(reply->has_plan());
  CHECK_THAT(reply->text(), Contains("2 models share the cluster"));
  *request.mutable_workload() = input.workload;
  CHECK_THAT(std::string(AnswerPlanRequest(request, input.model, {}).status().message()),
             Contains("request: models"));
}

TEST_CASE("devices that no model uses are told once, and those of another model are not") {
  const std::string cluster =
      "machines:\n- {name: a, devices: [{kind: A40, count: 2}]}\n"
      "- {name: b, devices: [{kind: T4}]}\ntiers: {site: {bandwidth_bytes_per_second: 1000}}";
  // One T4 holds neither model, and the link makes it no part of a pipeline.
  const auto shared =
      PlanShared({SharedInput(cluster, "Qwen2.5-14B"), SharedInput(cluster, "Llama-2-13B")}, {});
  REQUIRE(shared.status().message() == "");
  CHECK_THAT(shared->text, Contains("  used by no model: 1 T4\n"));
  for (const v1::DeploymentPlan& plan : shared->plans)
    CHECK_THAT(PlanTable(plan), !Contains("not used: "));
}

TEST_CASE("for a picture the plans are one: replicas by letter, links added up") {
  SharedPlans shared;
  for (const char* model : {"first", "second"}) {
    v1::DeploymentPlan& plan = shared.plans.emplace_back();
    plan.mutable_model()->set_name(model);
    plan.mutable_prediction()->set_requests_per_second(2);
    plan.add_replicas()->set_name("r0");
    v1::RoutingShare& share = *plan.add_routing();
    share.set_prefill_replica("r0");
    share.set_decode_replica("r0");
    v1::LinkLoad& link = *plan.add_links();
    link.set_from("a");
    link.set_to("b");
    link.set_bytes_per_second(3);
    link.set_capacity_bytes_per_second(10);
    plan.mutable_assumptions()->add_kinds()->set_kind("L4");
    plan.mutable_assumptions()->mutable_workload()->set_length_pairs(3);
  }
  const v1::DeploymentPlan all = PlanForPicture(shared);
  CHECK(all.model().name() == "A: first, B: second");
  CHECK(all.prediction().requests_per_second() == 4);
  REQUIRE(all.replicas_size() == 2);
  CHECK(all.replicas(1).name() == "B.r0");
  CHECK(all.routing(1).decode_replica() == "B.r0");
  REQUIRE(all.links_size() == 1);
  CHECK(all.links(0).bytes_per_second() == 6);
  CHECK(all.links(0).capacity_bytes_per_second() == 10);
  CHECK(all.assumptions().kinds_size() == 1);
  CHECK(!all.assumptions().has_workload());
}

}  // namespace tessera::scheduler
