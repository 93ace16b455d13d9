// What is refused says why, whichever search was asked for.
#include <catch2/catch.hpp>
#include <string>

#include "scheduler/planner/planner.h"
#include "scheduler/search/searches.h"
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
                                             Contains("offer 41.20 GiB (90 % of the memory of "
                                                      "each, less 1.00 GiB for the runtime)") &&
                                             Contains("87.64 GiB are missing"));
    }
  }
}

// Weights and KV alone have a few hundred MiB to spare.
TEST_CASE("what just fits in all but not in whole layers is not blamed on limits") {
  const PlannerInput input = Input(
      "machines:\n- {name: a, devices: [{kind: A6000, count: 4}]}\n"
      "- {name: b, devices: [{kind: A5000, count: 2}]}\n"
      "- {name: c, devices: [{kind: A4000, count: 2}]}\n"
      "tiers: {site: {bandwidth: 25 Gbit/s, latency: 50 us}}",
      "Llama-2-70B");
  for (const double tpot_seconds : {0.0, 1.0}) {
    PlannerOptions options;
    options.utilisation = 0.505;
    PlannerInput limited = input;
    limited.workload.mutable_objectives()->set_time_per_output_token_seconds(tpot_seconds);
    CHECK_THAT(Reason(limited, options), Contains("no stages hold them all; use more") &&
                                             Contains("--max-batched-tokens") &&
                                             !Contains("time per output token"));
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

// Devices that hold the model only together.
const std::string kApart =
    "machines: [{name: a, devices: [{kind: A40}]}, {name: b, devices: [{kind: A40}]}]\n";

TEST_CASE("links that leave nothing are named, whatever the goal") {
  for (const char* link : {"{bandwidth_bytes_per_second: 0.001, latency: 1 us}",
                           "{bandwidth: 10 Gbit/s, latency: 300 h}"}) {
    const PlannerInput input =
        Input(kApart + "budget: 9 USD/h\ntiers: {site: " + link + "}", "Qwen2.5-32B");
    for (const Goal goal : {Goal::kThroughput, Goal::kGoodput, Goal::kPrice, Goal::kBudget}) {
      INFO(link << ", goal " << static_cast<int>(goal));
      PlannerOptions options;
      options.goal = goal;
      CHECK_THAT(Reason(input, options),
                 Catch::StartsWith("c.yaml: links: too slow for a model that needs several") &&
                     Contains("/s, of links within sites, the longest latency ") &&
                     Catch::EndsWith(" s, of links within sites"));
    }
  }
}

TEST_CASE("limits are named as they were given: by flag, or by file and key") {
  const std::string one = "machines: [{name: a, devices: [{kind: A40}]}]";
  const std::string lengths = "classes: [{lengths: [{prompt_tokens: 1000, output_tokens: 200}]}]";
  const auto with = [&](const std::string& objectives) {
    return tests::WrittenInput(one, "Llama-3-8B", "objectives: {" + objectives + "}\n" + lengths);
  };
  PlannerOptions goodput;
  goodput.goal = Goal::kGoodput;
  PlannerInput input = with("time_per_output_token: 1 us");
  CHECK_THAT(Reason(input, {}), Catch::StartsWith("w.yaml: no placement was found with at most "));
  CHECK_THAT(Reason(input, goodput), Catch::StartsWith("w.yaml: the best placement found meets") &&
                                         Contains("relax time_per_output_token, or ask for less"));
  input.workload_options.max_tpot = true;
  CHECK_THAT(Reason(input, {}), Catch::StartsWith("--max-tpot: no placement was found with"));
  CHECK_THAT(Reason(input, goodput), Catch::StartsWith("--max-tpot: the best placement") &&
                                         Contains("relax --max-tpot, or ask for less"));
  input = with("time_to_first_token: 1 us, end_to_end: 1 us");
  input.workload_options.max_end_to_end = true;
  CHECK_THAT(Reason(input, goodput), Catch::StartsWith("w.yaml: the best placement") &&
                                         Contains("relax time_to_first_token or --max-e2e, or"));
}

TEST_CASE("what a goal lacks is asked for by flag where there is no file") {
  PlannerInput input =
      tests::WrittenInput("machines: [{name: a, devices: [{kind: A40}]}]", "Llama-3-8B");
  PlannerOptions goodput, price;
  goodput.goal = Goal::kGoodput;
  price.goal = Goal::kPrice;
  CHECK_THAT(Reason(input, goodput), Catch::StartsWith("w.yaml: objectives: goodput counts"));
  CHECK_THAT(Reason(input, price), Catch::StartsWith("w.yaml: requests_per_second: a plan for a"));
  input.workload_options.lengths = true;
  CHECK_THAT(Reason(input, goodput), Catch::StartsWith("--objective goodput: counts requests") &&
                                         Contains("give --max-ttft, --max-tpot or --max-e2e"));
  CHECK_THAT(Reason(input, price), Catch::StartsWith("--objective price: a plan for a price needs "
                                                     "the rate to serve; give --rate"));
  input.workload.set_requests_per_second(1000);
  CHECK_THAT(Reason(input, price), Catch::StartsWith("w.yaml: requests_per_second (--rate): 1000"));
  input.workload_options.rate = true;
  CHECK_THAT(Reason(input, price), Catch::StartsWith("--rate: 1000 requests/s are asked"));
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
