// What a plan says of itself: every figure is broken once.
#include <catch2/catch.hpp>
#include <functional>
#include <limits>
#include <string>

#include "scheduler/plan_check/plan_check.h"
#include "scheduler/planner/planner.h"
#include "tests/scheduler/planner/written_input.h"

namespace tessera::scheduler {
namespace {

using Catch::Contains;

v1::DeploymentPlan GoodPlan() {
  const PlannerInput input = tests::WrittenInput(
      "machines: [{name: a, devices: [{kind: A100-40, count: 2}]}]", "Qwen2.5-14B");
  const auto plan = MakePlan(input, {});
  REQUIRE(plan.status().message() == "");
  REQUIRE(CheckPlan(*plan).message() == "");
  REQUIRE(plan->certificate().upper_bound() > 0);
  return *plan;
}

void Everywhere(v1::DeploymentPlan& plan, const std::function<void(v1::Prediction*)>& change) {
  change(plan.mutable_prediction());
  for (v1::Replica& replica : *plan.mutable_replicas()) change(replica.mutable_prediction());
}

struct Fault {
  std::string reason;
  std::function<void(v1::DeploymentPlan&)> make;
};

TEST_CASE("queues before full links need have no end, before links that are half empty they do") {
  const PlannerInput input = tests::WrittenInput(
      R"(
machines:
- {name: a, devices: [{kind: H100-SXM}]}
- {name: b, devices: [{kind: H100-SXM}]}
tiers: {site: {bandwidth: 5 Gbit/s, latency: 50 us}}
)",
      "Llama-2-13B", "classes: [{lengths: [{prompt_tokens: 2000, output_tokens: 30}]}]");
  PlannerOptions options;
  options.search = "hexgen2";
  options.simulate = false;
  auto plan = MakePlan(input, options);
  REQUIRE(plan.status().message() == "");
  REQUIRE(plan->replicas_size() == 2);
  Everywhere(*plan, [](v1::Prediction* p) { p->set_time_to_first_token_seconds(0); });
  CHECK(CheckPlan(*plan).message() == "");
  for (v1::LinkLoad& link : *plan->mutable_links())
    link.set_capacity_bytes_per_second(10 * link.capacity_bytes_per_second());
  CHECK_THAT(std::string(CheckPlan(*plan).message()),
             Contains("and links between them are at ") && Contains("queues are bounded there"));
}

TEST_CASE("what a plan promises adds up") {
  const v1::DeploymentPlan good = GoodPlan();
  const double value = good.certificate().value();
  const std::vector<Fault> faults = {
      {"the plan has no replica", [](auto& p) { p.clear_replicas(), p.clear_routing(); }},
      {"the plan: 1", [](auto& p) { p.mutable_prediction()->set_output_tokens_per_second(1e9); }},
      {"replica r0: ",
       [](auto& p) {
         p.mutable_replicas(0)->mutable_prediction()->set_output_tokens_per_second(1e9);
       }},
      {"is above its own upper bound", [](auto& p) { p.mutable_certificate()->set_value(99999); }},
      {"is above its own upper bound",
       [&](auto& p) { p.mutable_certificate()->set_upper_bound(value / 2); }},
      {"the gap is said to be -5.0000", [](auto& p) { p.mutable_certificate()->set_gap(-5); }},
      {"to a bound that is not given",
       [](auto& p) {
         p.mutable_certificate()->set_upper_bound(0);
         p.mutable_certificate()->set_gap(0.1);
       }},
      {"are promised",
       [&](auto& p) {
         p.mutable_certificate()->set_upper_bound(4 * value);
         p.mutable_certificate()->set_value(2 * value);
       }},
      {"the plan promises a rate but has no basis", [](auto& p) { p.clear_basis(); }},
      {"uncached_prompt_tokens is 1000; it must be between 0 and the prompt_tokens, 1",
       [](auto& p) { p.mutable_basis()->set_prompt_tokens(1); }},
      {"memory_utilisation is 1.5",
       [](auto& p) { p.mutable_basis()->set_memory_utilisation(1.5); }},
      {"kv_headroom is 1", [](auto& p) { p.mutable_basis()->set_kv_headroom(1); }},
      {"longest_sequence_tokens is 3",
       [](auto& p) { p.mutable_basis()->set_longest_sequence_tokens(3); }},
      {"1000 micro-batches in flight",
       [](auto& p) { p.mutable_replicas(0)->set_micro_batches(1000); }},
      {"routing sends only", [](auto& p) { p.mutable_routing()->DeleteSubrange(0, 1); }},
      {"the plan: time_per_output_token_seconds is 0.001; of its replicas",
       [](auto& p) { p.mutable_prediction()->set_time_per_output_token_seconds(0.001); }},
      {"the plan: time_to_first_token_seconds is 1e-06; of its replicas",
       [](auto& p) { p.mutable_prediction()->set_time_to_first_token_seconds(1e-6); }},
      {"simulated: 1000 requests/s are served, but only ",
       [](auto& p) { p.mutable_simulated()->set_requests_per_second(1000); }},
      {"simulated: time_to_first_token: a p50 of 50 s",
       [](auto& p) { p.mutable_simulated()->set_time_to_first_token_p50_seconds(50); }},
      {"simulated: 1.25",  // of 1 that come
       [](auto& p) {
         p.mutable_simulated()->set_offered_requests_per_second(1);
         p.mutable_simulated()->set_requests_per_second(1.25);
       }},
      {"simulated: none of ", [](auto& p) { p.mutable_simulated()->set_requests_per_second(0); }},
      {"said to be proved the best with a gap of 50.00 %",
       [&](auto& p) {
         p.mutable_certificate()->set_proved(true);
         p.mutable_certificate()->set_upper_bound(2 * value);
         p.mutable_certificate()->set_gap(0.5);
       }},
      {"said to be proved the best without a bound",
       [](auto& p) {
         p.mutable_certificate()->set_proved(true);
         p.mutable_certificate()->set_upper_bound(0);
         p.mutable_certificate()->set_gap(0);
       }},
      {"replica r0: no TTFT is predicted, though it and those that decode for it and links between "
       "them are at 10 %",
       [](auto& p) {
         p.mutable_basis()->set_requests_per_second(0.1 * p.prediction().requests_per_second());
         Everywhere(p, [](auto* q) { q->set_time_to_first_token_seconds(0); });
       }},
      {"replica r0: a TTFT of 1e+06 s is predicted",
       [](auto& p) { Everywhere(p, [](auto* q) { q->set_time_to_first_token_seconds(1e6); }); }},
      {"replica r0: no TPOT is predicted",
       [](auto& p) { Everywhere(p, [](auto* q) { q->set_time_per_output_token_seconds(0); }); }},
      {"basis: requests_per_second is 0",
       [](auto& p) { p.mutable_basis()->set_requests_per_second(0); }},
      {"basis: max_step_tokens is 0", [](auto& p) { p.mutable_basis()->set_max_step_tokens(0); }},
      {"replica r0: max_batched_tokens is 0",
       [](auto& p) { p.mutable_replicas(0)->set_max_batched_tokens(0); }},
      {"replica r0: max_sequences is 0",
       [](auto& p) { p.mutable_replicas(0)->set_max_sequences(0); }},
      {" at once; it runs 1 at most", [](auto& p) { p.mutable_replicas(0)->set_max_sequences(1); }},
      {"replica r0: load_seconds is 1e+06",
       [](auto& p) { p.mutable_replicas(0)->set_load_seconds(1e6); }},
      {"replica r0: load_seconds is -1",
       [](auto& p) { p.mutable_replicas(0)->set_load_seconds(-1); }},
      {"move: a figure of -1", [](auto& p) { p.mutable_move()->set_load_seconds(-1); }},
      {"with 1 bytes each, as weight_dtype says",
       [](auto& p) { p.set_weight_dtype(v1::DATA_TYPE_INT8); }},
      {"is said to hold",  // half of what it takes
       [](auto& p) { p.set_weight_dtype(v1::DATA_TYPE_FLOAT32); }},
      {"time_to_first_token_seconds is nan",
       [](auto& p) {
         p.mutable_replicas(0)->mutable_prediction()->set_time_to_first_token_seconds(
             std::numeric_limits<double>::quiet_NaN());
       }},
  };
  for (const Fault& fault : faults) {
    v1::DeploymentPlan plan = good;
    fault.make(plan);
    CHECK_THAT(std::string(CheckPlan(plan).message()), Contains(fault.reason));
  }
}

}  // namespace
}  // namespace tessera::scheduler
