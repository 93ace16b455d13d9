// Every option of a plan stands under its assumptions, with whose choice it was.
#include <catch2/catch.hpp>
#include <functional>
#include <string>
#include <vector>

#include "scheduler/plan_check/plan_check.h"
#include "scheduler/planner/planner.h"
#include "scheduler/planner/report/assumption_text.h"
#include "scheduler/planner/report/plan_table.h"
#include "tests/scheduler/planner/written_input.h"

namespace tessera::scheduler {
namespace {

PlannerInput Input() {
  return tests::WrittenInput(
      "machines:\n"
      "- {name: a, available: 2, price: 2 USD/h, spot_price: 1 USD/h, devices: [{kind: A40}]}\n"
      "tiers: {site: {bandwidth: 25 Gbit/s}}",
      "Llama-3-8B", "classes: [{lengths: [{prompt_tokens: 800, output_tokens: 90}]}]");
}

struct Option {
  std::string usual;   // the line's part where nothing is asked for
  std::string chosen;  // and where it is
  std::function<void(PlannerInput* input, PlannerOptions* options)> choose;
};

// Lines under the assumptions that have this part.
int Lines(const v1::DeploymentPlan& plan, const std::string& part) {
  int lines = 0;
  for (const std::string& line : AssumptionLines(plan.assumptions()))
    lines += line.find(part) != std::string::npos ? 1 : 0;
  return lines;
}

const std::vector<Option>& Options() {
  static const auto& options = *new std::vector<Option>{
      {"objective = most requests per second (default)",
       "objective = most requests per second within the budget (option)",
       [](auto* input, auto* o) {
         input->cluster.set_budget_usd_per_hour(9);
         o->goal = Goal::kBudget;
       }},
      {"search = best (default)", "search = hexgen (option)",
       [](auto*, auto* o) { o->search = "hexgen"; }},
      {"only prefill or only decode = allowed (default)",
       "only prefill or only decode = not allowed (option)",
       [](auto*, auto* o) { o->allow_split = false; }},
      {"weights = 16 bits (as stored)", "weights = 8 bits (option)",
       [](auto*, auto* o) { o->weight_dtype = v1::DATA_TYPE_INT8; }},
      {"KV = 16 bits (default)", "KV = 8 bits (option)",
       [](auto*, auto* o) { o->kv_dtype = v1::DATA_TYPE_INT8; }},
      {"judged by simulation as well = yes (default", "judged by simulation as well = no (option)",
       [](auto*, auto* o) { o->simulate = false; }},
      {"loss of any one machine = no (default)",
       "loss of any one machine = yes, judged by the rate that then remains (option)",
       [](auto*, auto* o) { o->survive_machine_loss = true; }},
      {"spot share = 0: every machine is rented on demand (default)", "spot share = 0.5",
       [](auto*, auto* o) { o->spot.share = 0.5; }},
      {"weights are read at 2 GB/s per machine (default",
       "weights are read at 1 GB/s per machine (option",
       [](auto*, auto* o) { o->move.disk_bytes_per_second = 1e9; }},
      {"no network in between (default)", "over a network of 24 Gbit/s per machine (option)",
       [](auto*, auto* o) { o->move.network_bytes_per_second = 3e9; }},
      {"a worker whose share changes reads all of its weights (default)",
       "workers keep weights that they hold (option)",
       [](auto*, auto* o) { o->move.keeps_weights = true; }},
      {"memory used = 90 % of each device's (default)",
       "memory used = 80 % of each device's (option)",
       [](auto*, auto* o) { o->utilisation = 0.8; }},
      {"runtime reserve = 1.00 GiB per device (default)",
       "runtime reserve = 2.00 GiB per device (option)",
       [](auto*, auto* o) { o->runtime_reserve_bytes = 2147483648.0; }},
      {"KV headroom = 10 % of the KV memory is kept free (default)",
       "KV headroom = 20 % of the KV memory is kept free (option)",
       [](auto*, auto* o) { o->kv_headroom = 0.2; }},
      {"at most 2048 tokens in one step (default)", "at most 512 tokens in one step (option)",
       [](auto*, auto* o) { o->max_step_tokens = 512; }},
      {"256 sequences decoding at once in one replica (default)",
       "32 sequences decoding at once in one replica (option)",
       [](auto*, auto* o) { o->max_sequences = 32; }},
      {"time per output token = no limit (default)", "time per output token <= 500.0 ms",
       [](auto* input, auto*) {
         input->workload.mutable_objectives()->set_time_per_output_token_seconds(0.5);
       }},
      {"20 GB/s of KV each (default)", "7 GB/s of KV each (option)",
       [](auto*, auto* o) { o->kv_codec_bytes_per_second = 7e9; }},
      {"longest sequence = 8192 tokens (the model's)", "longest sequence = 2048 tokens (option)",
       [](auto*, auto* o) { o->context_tokens = 2048; }},
      {"rate = as much as the cluster can serve (no rate was given)",
       "rate = 0.25 requests/s (workload)",
       [](auto* input, auto*) { input->workload.set_requests_per_second(0.25); }},
      {"prefix hits = 0.0 % of prompt tokens (default)",
       "prefix hits = 50.0 % of prompt tokens (workload)",
       [](auto* input, auto*) { input->workload.mutable_classes(0)->set_prefix_hit_rate(0.5); }},
      // The words before the figure are the table's; figure and origin are what is held to here.
      {"1 of the", "2 of the",
       [](auto* input, auto*) { input->workload.set_arrival_variation(2); }},
      {"latency of links that give none = ", "",
       [](auto* input, auto*) {
         input->cluster.mutable_tiers()->mutable_site()->set_latency_seconds(1e-6);
       }},
  };
  return options;
}

TEST_CASE("every option stands under the assumptions, and says whether somebody chose it") {
  const auto usual = MakePlan(Input(), {});
  REQUIRE(usual.status().message() == "");
  for (const Option& option : Options()) {
    INFO(option.usual << " -> " << option.chosen);
    CHECK(Lines(*usual, option.usual) == 1);
    if (!option.chosen.empty()) CHECK(Lines(*usual, option.chosen) == 0);
    PlannerInput input = Input();
    PlannerOptions options;
    option.choose(&input, &options);
    const auto chosen = MakePlan(input, options);
    REQUIRE(chosen.status().message() == "");
    CHECK(Lines(*chosen, option.usual) == 0);
    if (!option.chosen.empty()) CHECK(Lines(*chosen, option.chosen) == 1);
  }
}

TEST_CASE("what an option says of the workload is not said to be the file's") {
  PlannerInput input = Input();
  input.workload.set_requests_per_second(0.25);
  input.workload.set_arrival_variation(2);
  v1::ServiceObjectives& objectives = *input.workload.mutable_objectives();
  objectives.set_time_per_output_token_seconds(0.5);
  objectives.set_time_to_first_token_seconds(4);
  objectives.set_attainment(0.9);
  const auto file = MakePlan(input, {});
  REQUIRE(file.status().message() == "");
  CHECK(Lines(*file,
              "TPOT <= 500 ms (objectives of the workload); 90 % must meet it (objective)") == 1);
  CHECK(Lines(*file, "the mean gap (workload)") == 1);
  input.workload_options = {true, true, true, true, false, false, true};
  const auto flags = MakePlan(input, {});
  CHECK(Lines(*flags,
              "TPOT <= 500 ms (--max-tpot, the rest objectives of the workload); 90 % must "
              "meet it (--attainment)") == 1);
  CHECK(Lines(*flags, "rate = 0.25 requests/s (--rate)") == 1);
  CHECK(Lines(*flags, "1 pair of lengths (--prompt and --output)") == 1);
  CHECK(Lines(*flags, "the mean gap (--arrival-variation)") == 1);
  input.workload_options.max_ttft = true;
  CHECK(Lines(*MakePlan(input, {}), "TPOT <= 500 ms (--max-ttft, --max-tpot); ") == 1);
}

std::string LineOf(const v1::DeploymentPlan& plan, const std::string& start) {
  for (const std::string& line : AssumptionLines(plan.assumptions())) {
    if (line.starts_with(start)) return line;
  }
  return "";
}

TEST_CASE("what is measured on all devices of a kind stands instead of the catalogue's figures") {
  using Catch::Contains;
  const auto with = [](const std::string& a, const std::string& b) {
    const auto plan = MakePlan(
        tests::WrittenInput("machines:\n- {name: a, devices: [{kind: A40, profile: " + a +
                                "}]}\n- {name: b, devices: [{kind: A40" + b +
                                "}]}\ntiers: {site: {bandwidth: 25 Gbit/s, latency: 10 us}}",
                            "Llama-3-8B"),
        {});
    REQUIRE(plan.status().message() == "");
    return LineOf(*plan, "A40: ");
  };
  const std::string whole =
      "{memory_read: 600 GB/s, prefill_efficiency: 0.61, step_overhead: 2 ms}";
  CHECK_THAT(with(whole, ""), Contains("; efficiencies 60 % of FLOP/s, 85 % of memory bandwidth") &&
                                  Contains("150 us per layer, ESTIMATED by likeness") &&
                                  Contains("; MEASURED on a: memory bandwidth 600 GB/s, compute "
                                           "efficiency 61 %, overhead 2e+03 us per step"));
  CHECK_THAT(with(whole, ", profile: {decode_efficiency: 0.8}"),
             Contains("; efficiencies 60 % of FLOP/s, 150 us per layer, ESTIMATED") &&
                 !Contains("85 %") && Contains("memory efficiency 80 %"));
  const std::string all =
      with(whole, ", profile: {memory_read: 650 GB/s, prefill_efficiency: 0.5}");
  CHECK_THAT(all, !Contains("ESTIMATED") && !Contains("60 %") && !Contains("85 %") &&
                      Contains("; overhead of the kind, 150 us per layer; MEASURED on a, b: ") &&
                      Contains("memory bandwidth 600 to 650 GB/s, compute efficiency 50 to 61 %"));
  CHECK_THAT(with("{products: [{weights: int8, rows: 1, read: 500 GB/s}, "
                  "{weights: bfloat16, rows: 1, read: 500 GB/s}]}",
                  ""),
             Contains("MEASURED on a: products with bfloat16, int8 by rows"));
  CHECK_THAT(with(whole, ", profile: " + whole), !Contains("150 us") && !Contains("efficiencies"));
}

TEST_CASE("a plan in int8 takes the rates that int8 has here, above those of 16 bits or below") {
  const auto rate = [](const std::string& products, v1::DataType weights) {
    PlannerOptions options;
    options.weight_dtype = weights;
    const auto plan = MakePlan(
        tests::WrittenInput("kinds: [{name: cpu, memory: 64 GiB, memory_bandwidth: 100 GB/s,\n"
                            "  dense_flops_per_second: 1 TFLOPS}]\n"
                            "machines: [{name: a, devices: [{kind: cpu, profile: {memory_read: 90 "
                            "GB/s, prefill_efficiency: 0.9" +
                                products + "}}]}]",
                            "Llama-3-8B"),
        options);
    REQUIRE(plan.status().message() == "");
    return plan->prediction().requests_per_second();
  };
  const auto int8 = v1::DATA_TYPE_INT8, half = v1::DATA_TYPE_BFLOAT16;
  // Bytes read with 512 rows, each for 1024 operations.
  const auto of = [](const std::string& gigabytes) {
    return ", products: [{weights: int8, rows: 1, read: 95 GB/s}, {weights: int8, rows: 512, "
           "read: " +
           gigabytes + " GB/s}]";
  };
  const double unmeasured = rate("", int8);
  CHECK(rate(of("3"), int8) > 2 * unmeasured);  // 3 TFLOP/s
  CHECK(rate(of("0.2"), int8) < 0.5 * unmeasured);
  CHECK(rate(of("3"), half) == rate("", half));
}

TEST_CASE("MXFP4 is planned at four bits a code on GPUs, at a byte where a CPU is among them") {
  const auto bytes = [](const std::string& devices) {
    auto input = tests::WrittenInput(
        "kinds: [{name: cpu, memory: 64 GiB, memory_bandwidth: 100 GB/s,\n"
        "  dense_flops_per_second: 1 TFLOPS}]\n"
        "machines: [{name: a, devices: [" +
            devices + "]}]",
        "gpt-oss-20B");
    const auto plan = MakePlan(input, {});
    REQUIRE(plan.status().message() == "");
    CHECK(CheckPlanIsFor(*plan, input.model).message() == "");
    double held = 0;
    for (const v1::Stage& stage : plan->replicas(0).stages()) {
      for (const v1::PlannedWorker& worker : stage.workers())
        held += static_cast<double>(worker.weight_bytes());
    }
    return held;
  };
  const double four_bits = bytes("{kind: A40}"), whole = bytes("{kind: A40}, {kind: cpu}");
  const double experts = 24.0 * 32 * 3 * 2880 * 2880;
  CHECK(whole - four_bits == Approx(0.5 * experts).epsilon(0.01));
}

TEST_CASE("prices: a group's own is the description's, and the head says which are estimates") {
  using Catch::Contains;
  const auto with = [](const std::string& a) {
    const auto plan = MakePlan(
        tests::WrittenInput("machines: [{name: a, devices: [{kind: A40" + a + "}]}]", "Llama-3-8B"),
        {});
    REQUIRE(plan.status().message() == "");
    return *plan;
  };
  const v1::DeploymentPlan estimated = with(""), own = with(", price: 0.3 USD/h");
  const auto head = [](const v1::DeploymentPlan& plan) {
    const std::string table = PlanTable(plan);
    return table.substr(0, table.find("\npredicted"));
  };
  CHECK_THAT(LineOf(estimated, "USD per hour"), Contains("A40 0.44 (ESTIMATED, one provider's"));
  CHECK_THAT(head(estimated),
             Contains("USD per million output tokens when fully used (at ESTIMATED "
                      "prices)\nESTIMATED, not measured: efficiencies of A40; prices "
                      "of devices"));
  CHECK(LineOf(own, "USD per hour") ==
        "USD per hour of one device that is rented by itself: A40 0.30 (description)");
  CHECK_THAT(head(own), Contains("USD per million output tokens when fully used\nESTIMATED, not "
                                 "measured: efficiencies of A40; see assumptions"));
}

TEST_CASE("the seed is told where there is one") {
  PlannerOptions options;
  options.seed = 7;
  CHECK(Lines(*MakePlan(Input(), options), "seed = 7") == 1);
  CHECK(Lines(*MakePlan(Input(), {}), "seed = ") == 0);
}

}  // namespace
}  // namespace tessera::scheduler
