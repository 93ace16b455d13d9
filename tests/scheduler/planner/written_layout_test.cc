// Layouts that a person wrote, and the difference between two plans.
#include "scheduler/planner/written_layout.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "proto/document.h"
#include "scheduler/planner/planner.h"
#include "scheduler/planner/preference.h"
#include "scheduler/planner/report/plan_diff.h"
#include "scheduler/planner/report/plan_table.h"
#include "tests/scheduler/planner/written_input.h"

namespace tessera::scheduler {
namespace {

// The published case: 4 A6000, 2 A5000, 2 A4000.
PlannerInput Workstations() {
  return tests::WrittenInput(R"(
machines:
- {name: a, devices: [{kind: A6000, count: 4}], inside: {bandwidth: 25 GB/s, latency: 10 us}}
- {name: b, devices: [{kind: A5000, count: 2}], inside: {bandwidth: 25 GB/s, latency: 10 us}}
- {name: c, devices: [{kind: A4000, count: 2}], inside: {bandwidth: 25 GB/s, latency: 10 us}}
tiers: {site: {bandwidth: 25 Gbit/s, latency: 50 us}}
)",
                             "Llama-2-70B",
                             "classes: [{lengths: [{prompt_tokens: 3968, output_tokens: 128}]}]");
}

absl::StatusOr<v1::DeploymentPlan> Judge(const std::string& layout, int64_t step_tokens = 2048) {
  v1::WrittenLayout written;
  REQUIRE(ReadDocument(layout, "layout.yaml", &written).message() == "");
  PlannerOptions options;
  options.given_search = GivenLayout(written, "layout.yaml");
  options.max_step_tokens = step_tokens;
  return MakePlan(Workstations(), options);
}

std::string Reason(const std::string& layout) {
  return std::string(Judge(layout).status().message());
}

constexpr char kPublished[] = R"(
replicas:
- stages:
  - {devices: [a/0..3], layers: 48}
  - {devices: [b/0..1], layers: 20}
  - {devices: [c/0, c/1], layers: 12}
)";

using Catch::Contains;

}  // namespace

TEST_CASE("a written layout says what it leaves idle, but not that nothing better was found") {
  const auto plan = Judge(R"(
replicas:
- stages:
  - {devices: [a/0..3], layers: 80}
)");
  REQUIRE(plan.status().message() == "");
  const std::string table = PlanTable(*plan);
  CHECK_THAT(table, Contains("not used: 2 A5000 (b), 2 A4000 (c)"));
  CHECK_THAT(table, !Contains("no plan was found"));
}

TEST_CASE("the published layout fits, limited by the A5000 stage") {
  // The published figure leaves no room for the activations of large steps.
  const auto plan = Judge(kPublished, 64);
  REQUIRE(plan.status().message() == "");
  REQUIRE(plan->replicas_size() == 1);
  CHECK(plan->replicas(0).stages(1).workers(1).device() == "b/1");
  const auto kv = static_cast<double>(plan->replicas(0).prediction().kv_capacity_tokens());
  CHECK(kv == Approx(124000).epsilon(0.03));
  CHECK(plan->prediction().requests_per_second() > 0);
}

// H100s before A100s, with more of the layers than an equal part: a person wrote it.
TEST_CASE("order and cut of stages of 405B are worth no less than those written by hand") {
  const PlannerInput input = tests::WrittenInput(R"(
machines:
- {name: h, devices: [{kind: H100-SXM, count: 8}], rack: r1}
- {name: a, devices: [{kind: A100-80, count: 8}], rack: r1}
- {name: l1, devices: [{kind: L40S, count: 8}], rack: r2}
- {name: l2, devices: [{kind: L40S, count: 8}], rack: r2}
tiers: {rack: {bandwidth: 100 Gbit/s, latency: 15 us}, site: {bandwidth: 25 Gbit/s, latency: 30 us}}
)",
                                                 "Llama-3.1-405B");
  v1::WrittenLayout written;
  REQUIRE(ReadDocument("replicas: [{stages: [{devices: [h/0..7], layers: 66}, "
                       "{devices: [a/0..7], layers: 60}]}]",
                       "layout.yaml", &written)
              .message() == "");
  PlannerOptions options;
  options.preference = UsualPreference();
  options.simulate = false;
  const auto worth = [&] {
    const auto plan = MakePlan(input, options);
    REQUIRE(plan.status().message() == "");
    const v1::Prediction& said = plan->prediction();
    REQUIRE(said.time_to_first_token_seconds() > 0);
    return said.requests_per_second() * std::min(1.0, 0.1 / said.time_per_output_token_seconds()) *
           std::min(1.0, 5 / said.time_to_first_token_seconds());
  };
  const double found = worth();
  options.given_search = GivenLayout(written, "layout.yaml");
  const double by_hand = worth();
  CHECK(by_hand > 0.5);
  CHECK(found >= 0.995 * by_hand);
}

TEST_CASE("even layouts of the published case are refused, naming each A4000 and what is missing") {
  const std::string all = "replicas: [{stages: [{devices: [a/0..3, b/0..1, c/0..1], layers: 80";
  const std::string tensor = Reason(all + ", fractions: [1, 1, 1, 1, 1, 1, 1, 1]}]}]");
  CHECK_THAT(tensor, Contains("layout.yaml: replicas[0]") && Contains("c/0 (A4000)") &&
                         Contains("c/1 (A4000)") && Contains("weights 16.06 GiB") &&
                         Contains("GiB are missing"));
  CHECK_THAT(tensor, !Contains("A5000"));
  CHECK(Reason(all + "}]}]") == "");  // cut by speed and memory it fits
  std::string even = "replicas: [{stages: [";
  for (const char* device : {"a/0", "a/1", "a/2", "a/3", "b/0", "b/1", "c/0", "c/1"})
    even += std::string("{devices: [") + device + "], layers: 10},";
  even += "]}]";
  CHECK_THAT(Reason(even), Contains("c/0 (A4000): weights 15.94 GiB") && Contains("c/1 (A4000)"));
}

TEST_CASE("devices are those that were written") {
  const auto plan = Judge(
      "replicas: [{stages: [{devices: [a/2..3], layers: 40}, {devices: [a/0, a/1], layers: 40}]}]");
  REQUIRE(plan.status().message() == "");
  CHECK(plan->replicas(0).stages(0).workers(0).device() == "a/2");
  CHECK(plan->replicas(0).stages(1).workers(1).device() == "a/1");
  // There and back.
  PlannerOptions options;
  options.given_search = GivenLayout(LayoutOf(*plan), "the plan");
  const auto again = MakePlan(Workstations(), options);
  REQUIRE(again.ok());
  CHECK(again->SerializeAsString() == plan->SerializeAsString());
}

TEST_CASE("a layout that cannot be is refused with file, key and reason") {
  CHECK_THAT(Reason("replicas: []"), Contains("layout.yaml: replicas: the layout has no replica"));
  CHECK_THAT(Reason("replicas: [{stages: [{devices: [a/0..3], layers: 79}]}]"),
             Contains("replicas[0].stages: they hold 79 layers, Llama-2-70B has 80"));
  CHECK_THAT(Reason("replicas: [{stages: [{devices: [a/0..4], layers: 80}]}]"),
             Contains("replicas[0].stages[0].devices: the cluster has no device a/4"));
  CHECK_THAT(Reason("replicas: [{stages: [{devices: [a/0, a/0], layers: 80}]}]"),
             Contains("device a/0 is used by replicas[0].stages[0].devices already"));
  CHECK_THAT(Reason("replicas: [{stages: [{devices: [a0], layers: 80}]}]"),
             Contains("\"a0\" names no device"));
  CHECK_THAT(Reason("replicas: [{stages: [{devices: [a/3..1], layers: 80}]}]"),
             Contains("\"a/3..1\" is no range"));
  CHECK_THAT(Reason("replicas: [{stages: [{devices: [a/0], layers: 0}]}]"),
             Contains("stages[0].layers: must be at least 1"));
  CHECK_THAT(Reason("replicas: [{role: prefill, stages: [{devices: [a/0..3], layers: 80}]}]"),
             Contains("prefill and decode replicas are needed"));
  CHECK_THAT(Reason("replicas: [{stages: [{devices: [a/0..3], layers: 74}, {devices: [b/0, c/0], "
                    "layers: 6, fractions: [1]}]}]"),
             Contains("stages[1].fractions: 1 for 2 devices"));
}

TEST_CASE("a difference of two plans shows figures, replicas and what must be loaded") {
  const auto from = Judge(
      "replicas: [{stages: [{devices: [a/0..1], layers: 40}, {devices: [a/2..3], layers: 40}]}]");
  const auto to = Judge(kPublished);
  REQUIRE(from.ok());
  REQUIRE(to.ok());
  CHECK(BytesToLoad(*from, *from).empty());
  const auto bytes = BytesToLoad(*from, *to);
  REQUIRE(bytes.size() == 8);
  // A layer of Llama-2-70B has 855,638,016 weights of two bytes. a/0 has the first quarter of heads
  // and columns of layers 0-39 already (it held a half); layers 40-47 and nothing of the table are
  // new: it keeps a quarter of the embedding.
  CHECK(bytes.at("a/0") == Approx(8 * 855638016.0 * 2 / 4));
  // b/0 had nothing: a half of 20 layers.
  CHECK(bytes.at("b/0") == Approx(20 * 855638016.0 * 2 / 2));
  const std::string text = PlanDiff(*from, *to, "two", "three");
  CHECK_THAT(text, Contains("replicas: 0 stay, 1 go, 1 come"));
  CHECK_THAT(text, Contains("- prefill and decode: a/0..1 A6000 layers 0-39 | a/2..3 A6000"));
  CHECK_THAT(text, Contains("+ prefill and decode: a/0..3 A6000 layers 0-47 | b/0..1 A5000"));
  CHECK_THAT(text, Contains("GiB on 8 devices"));
  CHECK_THAT(PlanDiff(*to, *to, "a", "b"),
             Contains("replicas: 1 stay, 0 go, 0 come") && Contains("weights to load: none"));
  // Also where both rest on the same ones.
  CHECK_THAT(PlanDiff(*to, *to, "a", "b"), Contains("\nESTIMATED, not measured: "));
  CHECK_THAT(text, !Contains("warning"));
  v1::DeploymentPlan other = *to;
  other.mutable_model()->set_name("another");
  CHECK_THAT(PlanDiff(*from, other, "two", "three"),
             Contains("warning: the models differ: ") && Contains("another in three\n"));
  v1::DeploymentPlan measured = *to;
  measured.clear_assumptions();
  CHECK_THAT(PlanDiff(measured, measured, "a", "b"), !Contains("ESTIMATED"));
}

}  // namespace tessera::scheduler
