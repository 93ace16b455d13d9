// Stages over unlike devices: planned where links carry them, cut by speed and memory, said in
// words, simulated, and accepted as people write them.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "proto/document.h"
#include "scheduler/plan_check/plan_check.h"
#include "scheduler/planner/planner.h"
#include "scheduler/planner/planning_problem.h"
#include "scheduler/planner/report/note_text.h"
#include "scheduler/planner/report/plan_summary.h"
#include "scheduler/planner/report/plan_table.h"
#include "scheduler/planner/single_user.h"
#include "scheduler/planner/written_layout.h"
#include "scheduler/search/layout/assemble.h"
#include "scheduler/search/layout/mixed_stages.h"
#include "tests/scheduler/planner/written_input.h"

namespace tessera::scheduler {
namespace {

using Catch::Contains;

constexpr char kWork[] = "classes: [{lengths: [{prompt_tokens: 1155, output_tokens: 211}]}]";

// A 5090 and a 3090 in one machine, over PCIe.
std::string Pair(const std::string& latency) {
  return "machines: [{name: a, devices: [{kind: fast}, {kind: RTX3090}], inside: {bandwidth: 12 "
         "GB/s, latency: " +
         latency + R"(}}]
kinds:
- {name: fast, memory: 32 GiB, memory_bandwidth: 1792 GB/s, dense_flops_per_second: 209.5e12,
   compute_capability: 12.0, prefill_efficiency: 0.6, decode_efficiency: 0.85}
)";
}

v1::DeploymentPlan PlanOf(const std::string& cluster, const std::string& model,
                          v1::PlanPreference prefer, const std::string& layout = "",
                          v1::DataType weights = v1::DATA_TYPE_UNSPECIFIED) {
  PlannerOptions options;
  options.preference = UsualPreference();
  options.preference.prefer = prefer;
  options.weight_dtype = weights;
  options.simulate = true;
  if (!layout.empty()) {
    v1::WrittenLayout written;
    REQUIRE(ReadDocument(layout, "l.yaml", &written).message() == "");
    options.given_search = GivenLayout(written, "l.yaml");
  }
  const PlannerInput input = tests::WrittenInput(cluster, model, kWork);
  const auto plan = MakePlan(input, options);
  REQUIRE(plan.status().message() == "");
  CHECK(CheckPlanOn(*plan, input.cluster, input.catalogue).message() == "");
  return *plan;
}

bool Mixed(const v1::DeploymentPlan& plan) {
  return std::any_of(plan.notes().begin(), plan.notes().end(),
                     [](const v1::Note& note) { return note.has_mixed_stage(); });
}

TEST_CASE("a 5090 and a 3090 answer one user together where their link is quick, not where slow") {
  const auto quick = PlanOf(Pair("12 us"), "Qwen2.5-14B", v1::PLAN_PREFERENCE_LATENCY);
  REQUIRE(Mixed(quick));
  REQUIRE(quick.replicas_size() == 1);
  const v1::Stage& stage = quick.replicas(0).stages(0);
  REQUIRE(stage.workers_size() == 2);
  CHECK(stage.workers(0).fraction() + stage.workers(1).fraction() == Approx(1));
  const int fast = stage.workers(0).kind() == "fast" ? 0 : 1;
  CHECK(stage.workers(fast).fraction() > 0.5);
  CHECK(stage.workers(fast).weight_bytes() > stage.workers(1 - fast).weight_bytes());
  CHECK_THAT(PlanSummary(quick, {}), Contains("(fast) ") && Contains(" % + ") &&
                                         Contains("(RTX3090) ") && Contains("their sums take "));
  CHECK_THAT(PlanTable(quick), Contains("(fast) ") && Contains("(RTX3090) "));
  // A pipeline of the two is slower for one user.
  const auto pipeline = PlanOf(Pair("12 us"), "Qwen2.5-14B", v1::PLAN_PREFERENCE_BALANCED,
                               "replicas: [{stages: [{devices: [a/0], layers: 34}, {devices: "
                               "[a/1], layers: 14}]}]");
  CHECK_FALSE(Mixed(pipeline));
  const auto slow = PlanOf(Pair("2 ms"), "Qwen2.5-14B", v1::PLAN_PREFERENCE_LATENCY);
  CHECK_FALSE(Mixed(slow));
  CHECK(slow.choices(0).alone_seconds() > quick.choices(0).alone_seconds());
}

TEST_CASE("a layout with a stage over unlike devices is cut by speed, or as it says") {
  const std::string layout = "replicas: [{stages: [{devices: [a/0, a/1], layers: 48";
  const auto by_speed =
      PlanOf(Pair("12 us"), "Qwen2.5-14B", v1::PLAN_PREFERENCE_BALANCED, layout + "}]}]");
  const auto said = PlanOf(Pair("12 us"), "Qwen2.5-14B", v1::PLAN_PREFERENCE_BALANCED,
                           layout + ", fractions: [0.6, 0.4]}]}]");
  CHECK(by_speed.replicas(0).stages(0).workers(0).fraction() > 0.6);
  CHECK(said.replicas(0).stages(0).workers(0).fraction() == Approx(0.6));
  CHECK(said.simulated().requests() > 0);
  // What it is written as is what it is read from.
  const v1::WrittenLayout again = LayoutOf(said);
  CHECK(again.replicas(0).stages(0).fractions(1) == Approx(0.4));
  // Each rank holds what fits its card, KV included.
  for (const v1::PlannedWorker& worker : by_speed.replicas(0).stages(0).workers()) {
    CHECK(worker.weight_bytes() + worker.kv_bytes() + worker.activation_bytes() <=
          worker.available_bytes());
  }
}

TEST_CASE("fractions that cannot be are refused by name") {
  const auto refusal = [](const std::string& fractions) {
    PlannerOptions options;
    v1::WrittenLayout written;
    REQUIRE(ReadDocument("replicas: [{stages: [{devices: [a/0, a/1], layers: 48, fractions: " +
                             fractions + "}]}]",
                         "l.yaml", &written)
                .message() == "");
    options.given_search = GivenLayout(written, "l.yaml");
    return std::string(MakePlan(tests::WrittenInput(Pair("12 us"), "Qwen2.5-14B", kWork), options)
                           .status()
                           .message());
  };
  CHECK_THAT(refusal("[1]"), Contains("replicas[0].stages[0].fractions: 1 for 2 devices"));
  CHECK_THAT(refusal("[1, 0]"), Contains("fractions: must be above 0"));
}

TEST_CASE("the published rig of two Sparks: twice as fast together as one alone") {
  const std::string kind =
      "kinds: [{name: GB10, memory: 119 GiB, memory_bandwidth: 273 GB/s, dense_flops_per_second: "
      "100e12, compute_capability: 12.1}]\n";
  const auto one = PlanOf("machines: [{name: a, devices: [{kind: GB10}]}]\n" + kind, "Llama-3-70B",
                          v1::PLAN_PREFERENCE_LATENCY, "", v1::DATA_TYPE_INT8);
  const auto two = PlanOf(
      "machines: [{name: a, devices: [{kind: GB10}]}, {name: b, devices: [{kind: GB10}]}]\ntiers: "
      "{site: {bandwidth: 200 Gbit/s, latency: 5 us}}\n" +
          kind,
      "Llama-3-70B", v1::PLAN_PREFERENCE_LATENCY, "", v1::DATA_TYPE_INT8);
  REQUIRE(Mixed(two));
  REQUIRE(two.replicas(0).stages(0).workers_size() == 2);
  // unslothai/unsloth#10280: TPOT 332.7 ms on one, 162.4 ms on both.
  const auto tpot = [](const v1::DeploymentPlan& plan) {
    return (plan.choices(0).alone_seconds()) / 211;  // the prompt is little beside the answer
  };
  CHECK(tpot(one) == Approx(0.3327).epsilon(0.25));
  CHECK(tpot(two) == Approx(0.1624).epsilon(0.25));
  CHECK(tpot(one) / tpot(two) > 1.6);
  CHECK(tpot(one) / tpot(two) < 2.2);
}

TEST_CASE("5090 + 2 x 3080: our cut is no slower for one user than the published 47 : 27 : 27") {
  const std::string cluster = R"(
machines: [{name: a, devices: [{kind: fast}, {kind: RTX3080, count: 2}], inside: {bandwidth: 12 GB/s, latency: 12 us}}]
kinds:
- {name: fast, memory: 32 GiB, memory_bandwidth: 1792 GB/s, dense_flops_per_second: 209.5e12,
   compute_capability: 12.0, prefill_efficiency: 0.6, decode_efficiency: 0.85}
- {name: RTX3080, memory: 20 GiB, memory_bandwidth: 760 GB/s, dense_flops_per_second: 59.5e12,
   compute_capability: 8.6, layer_overhead: 10 us}
)";
  PlannerOptions options;
  options.weight_dtype = v1::DATA_TYPE_INT8;
  const PlannerInput input = tests::WrittenInput(cluster, "Qwen3.6-27B", kWork);
  const auto planning = ReadPlanningProblem(input, options);
  REQUIRE(planning.ok());
  const PlacementProblem& problem = (*planning)->problem;
  PlacedReplica published;
  LayoutStage stage = {0, 1, problem.model->layers};
  stage.mix = std::make_shared<const StageMix>(StageMix{{{1, 2}}, {0.47, 0.265, 0.265}});
  published.stages = {stage};
  const auto placement = Assemble(problem, {published});
  REQUIRE(placement.status().message() == "");
  // htsglang (club-3090#845): 82 tokens/s with this cut, without drafts, steps as CUDA graphs.
  CHECK(TimesAlone(problem, *placement).tpot_seconds == Approx(1.0 / 82).epsilon(0.25));
  const std::vector<Placement> ours = FastestPlacements(problem);
  REQUIRE(!ours.empty());
  CHECK(HasMixedStage(ours.front()));
  CHECK(TimesAlone(problem, ours.front()).answer_seconds <=
        TimesAlone(problem, *placement).answer_seconds);
}

TEST_CASE("parts that a card has no room for go to those that have") {
  PlannerOptions options;
  const auto planning =
      ReadPlanningProblem(tests::WrittenInput(Pair("12 us"), "Qwen2.5-14B", kWork), options);
  REQUIRE(planning.ok());
  const PlacementProblem& problem = (*planning)->problem;
  const std::vector<const DeviceSpec*> ranks = {problem.graph->pools()[0].spec,
                                                problem.graph->pools()[1].spec};
  MemoryOptions memory;
  const auto cuts = MixedFractions(*problem.model, ranks, memory, 0);
  REQUIRE(cuts.size() > 1);
  for (const std::vector<double>& cut : cuts) {
    CHECK(cut[0] + cut[1] == Approx(1));
    for (size_t r = 0; r < 2; ++r) {
      CHECK(cut[r] * TotalWeightBytes(*problem.model) <=
            ranks[r]->memory_bytes * memory.utilisation - memory.runtime_reserve_bytes);
    }
  }
  memory.utilisation = 0.5;
  CHECK(MixedFractions(*problem.model, ranks, memory, 0).empty());
}

}  // namespace
}  // namespace tessera::scheduler
