// What is refused says why, whichever search was asked for.
#include <catch2/catch.hpp>
#include <string>

#include "scheduler/planner/planner.h"
#include "tests/scheduler/planner/written_input.h"

namespace tessera::scheduler {
namespace {

using Catch::Contains;

PlannerInput Input(const std::string& cluster, const std::string& model) {
  return tests::WrittenInput(cluster, model,
                             "requests_per_second: 1\nobjectives: {time_to_first_token: 5 s}\n"
                             "classes: [{lengths: [{prompt_tokens: 1000, output_tokens: 200}]}]");
}

std::string Reason(const PlannerInput& input, const PlannerOptions& options) {
  return std::string(MakePlan(input, options).status().message());
}

TEST_CASE("a model larger than everything: every search says how many GiB are missing") {
  const PlannerInput input = Input(
      "budget: 9 USD/h\nmachines: [{name: a, devices: [{kind: L4, count: 2}]}]", "Llama-2-70B");
  for (const std::string& search : SearchNames()) {
    for (const Goal goal : {Goal::kThroughput, Goal::kGoodput, Goal::kPrice, Goal::kBudget}) {
      INFO(search << ", goal " << static_cast<int>(goal));
      PlannerOptions options;
      options.search = search;
      options.goal = goal;
      // 128.48 GiB of weights, 1200 tokens of KV; 2 x (24 * 0.9 - 1) GiB.
      CHECK_THAT(Reason(input, options), Contains("weights 128.48 GiB") &&
                                             Contains("offer 41.20 GiB") &&
                                             Contains("87.64 GiB are missing"));
    }
  }
}

TEST_CASE("so does a goodput plan of more devices than are enumerated") {
  PlannerOptions options;
  options.goal = Goal::kGoodput;
  const PlannerInput input =
      Input("machines: [{name: a, devices: [{kind: T4, count: 9}]}]", "Llama-2-70B");
  CHECK_THAT(Reason(input, options), Contains("GiB are missing"));
}

TEST_CASE("what would fit but for one machine says so of the rest, with every search") {
  const PlannerInput input = Input(
      "machines:\n- {name: a, devices: [{kind: A100-80, count: 2}]}\n"
      "- {name: b, devices: [{kind: L4}]}\ntiers: {site: {bandwidth: 10 Gbit/s, latency: 1 us}}",
      "Llama-2-70B");
  for (const std::string& search : SearchNames()) {
    INFO(search);
    PlannerOptions options;
    options.search = search;
    options.survive_machine_loss = true;
    CHECK_THAT(Reason(input, options), Contains("no plan survives the loss of machine a") &&
                                           Contains("offer 20.60 GiB") &&
                                           Contains("GiB are missing"));
  }
}

// One request in ten is never in time, so all others always have to be.
TEST_CASE("objectives that only empty replicas keep are refused, not planned for") {
  PlannerInput input = tests::WrittenInput(
      "machines: [{name: a, devices: [{kind: A100-80}]}]", "Llama-2-13B",
      "objectives: {time_to_first_token: 0.3 s, attainment: 0.9}\n"
      "classes:\n- {name: short, share: 0.9, lengths: [{prompt_tokens: 100, output_tokens: 20}]}\n"
      "- {name: long, share: 0.1, lengths: [{prompt_tokens: 4000, output_tokens: 20}]}");
  PlannerOptions options;
  options.goal = Goal::kGoodput;
  CHECK_THAT(Reason(input, options), Contains("less than one request in three hours") &&
                                         Contains("relax time_to_first_token"));
  input.workload.mutable_objectives()->set_attainment(0.85);
  CHECK(Reason(input, options) == "");
}

TEST_CASE("sequences without room for an answer are refused by the option's name") {
  const PlannerInput input =
      Input("machines: [{name: a, devices: [{kind: A100-80}]}]", "Llama-2-13B");
  PlannerOptions options;
  options.context_tokens = 1;
  CHECK_THAT(Reason(input, options),
             Contains("w.yaml: the longest sequence is 1 token") && Contains("--context"));
  options.context_tokens = 2;
  CHECK(Reason(input, options) == "");
}

}  // namespace
}  // namespace tessera::scheduler
