// What a practitioner would take: within the usual limits, and simple where that costs little.
#include "scheduler/planner/preference.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>
#include <string>

#include "scheduler/planner/planner.h"
#include "scheduler/planner/report/note_text.h"
#include "tests/scheduler/planner/written_input.h"

namespace tessera::scheduler {
namespace {

using Catch::Contains;

constexpr char kWork[] = "classes: [{lengths: [{prompt_tokens: 1155, output_tokens: 211}]}]";

v1::DeploymentPlan PlanOf(const std::string& cluster, const std::string& model,
                          const Preference& preference, const std::string& workload = kWork) {
  PlannerOptions options;
  options.preference = preference;
  options.simulate = false;
  const auto plan = MakePlan(tests::WrittenInput(cluster, model, workload), options);
  REQUIRE(plan.status().message() == "");
  return *plan;
}

v1::DeploymentPlan Usual(const std::string& cluster, const std::string& model) {
  return PlanOf(cluster, model, UsualPreference());
}
v1::DeploymentPlan Most(const std::string& cluster, const std::string& model) {
  return PlanOf(cluster, model, {});
}

int StagesOf(const v1::DeploymentPlan& plan) {
  int most = 0;
  for (const v1::Replica& replica : plan.replicas()) most = std::max(most, replica.stages_size());
  return most;
}

std::string LineWith(const v1::DeploymentPlan& plan, const std::string& part) {
  for (const std::string& line : NoteLines(plan)) {
    if (line.find(part) != std::string::npos) return line;
  }
  return "";
}

std::string Machines(const std::string& kind, int machines) {
  std::string text = "machines:\n";
  for (int i = 0; i < machines; ++i)
    text += "- {name: m" + std::to_string(i) + ", devices: [{kind: " + kind + "}]}\n";
  return text + "tiers: {site: {bandwidth: 10 Gbit/s, latency: 0.1 ms}}\n";
}

TEST_CASE("8 H100 with NVLink: no pipelines of four stages for a 70B model") {
  const std::string cluster = "machines: [{name: h, devices: [{kind: H100-SXM, count: 8}]}]";
  const auto most = Most(cluster, "Llama-3-70B"), usual = Usual(cluster, "Llama-3-70B");
  REQUIRE(StagesOf(most) == 4);
  CHECK(most.prediction().time_per_output_token_seconds() > 0.095);
  CHECK(StagesOf(usual) <= 2);
  CHECK(usual.prediction().time_per_output_token_seconds() <= 0.1);
  CHECK(usual.prediction().requests_per_second() >= 0.93 * most.prediction().requests_per_second());
  CHECK_THAT(LineWith(usual, "simplicity costs"),
             Contains("pipelines of 4 stages instead of 2; plans within 5 %"));
  CHECK_THAT(LineWith(usual, "the limits TPOT <= 100 ms, TTFT <= 5 s"),
             Contains(" (default) cost "));
}

TEST_CASE("a proved optimum with a long TPOT is not taken") {
  const std::string cluster = Machines("L4", 8);
  const auto most = Most(cluster, "Llama-3-8B"), usual = Usual(cluster, "Llama-3-8B");
  REQUIRE(most.prediction().time_per_output_token_seconds() > 0.2);
  CHECK(usual.prediction().time_per_output_token_seconds() <= 0.1);
  CHECK(usual.prediction().time_to_first_token_seconds() <= 5);
  CHECK(StagesOf(usual) == 1);
  CHECK_THAT(LineWith(usual, "the limits TPOT"), Contains(" requests/s without them"));
}

TEST_CASE("a proved optimum in which a token takes a second is not taken") {
  // Long prompts on slow cards: steps of one chain over all of them are full of prompts.
  const std::string cluster =
      "machines:\n- {name: a, devices: [{kind: L4, count: 4}]}\n"
      "- {name: b, devices: [{kind: L4, count: 4}]}\n"
      "tiers: {site: {bandwidth: 10 Gbit/s, latency: 0.1 ms}}";
  const std::string work = "classes: [{lengths: [{prompt_tokens: 3000, output_tokens: 60}]}]";
  const auto most = PlanOf(cluster, "Qwen2.5-32B", {}, work);
  REQUIRE(most.certificate().gap() < 1e-3);
  REQUIRE(most.prediction().time_per_output_token_seconds() > 0.9);
  const auto usual = PlanOf(cluster, "Qwen2.5-32B", UsualPreference(), work);
  CHECK(usual.prediction().time_per_output_token_seconds() <= 0.1);
  CHECK(StagesOf(usual) < StagesOf(most));
  // What the limit costs is said, and that prompts of this length wait longer than 5 s anyway.
  CHECK_THAT(LineWith(usual, "the limits TPOT <= 100 ms"), Contains(" requests/s without them"));
  CHECK(LineWith(usual, "warning: no plan keeps the default limit TPOT") == "");
  CHECK_THAT(LineWith(usual, "warning: no plan keeps the default limit TTFT"), Contains(" s more"));
}

TEST_CASE("a 4090 and two 3090 are three replicas, not a pipeline") {
  const std::string cluster =
      "machines:\n- {name: a, devices: [{kind: RTX4090}]}\n"
      "- {name: b, devices: [{kind: RTX3090, count: 2}]}\n"
      "tiers: {site: {bandwidth: 10 Gbit/s, latency: 50 us}}";
  const auto most = Most(cluster, "Llama-3-8B"), usual = Usual(cluster, "Llama-3-8B");
  REQUIRE(StagesOf(most) > 1);
  CHECK(usual.replicas_size() == 3);
  CHECK(StagesOf(usual) == 1);
  CHECK(usual.prediction().requests_per_second() >= 0.95 * most.prediction().requests_per_second());
}

TEST_CASE("limits that no plan meets are dropped, and a warning says by how much they are missed") {
  const auto usual = Usual(Machines("RTX3090", 8), "Llama-2-70B");
  const auto most = Most(Machines("RTX3090", 8), "Llama-2-70B");
  CHECK(usual.prediction().requests_per_second() == most.prediction().requests_per_second());
  CHECK_THAT(
      LineWith(usual, "TPOT <= 100 ms"),
      Contains("warning: no plan keeps the default limit TPOT <= 100 ms") && Contains(" ms more"));
  CHECK_THAT(
      LineWith(usual, "TTFT <= 5 s"),
      Contains("warning: no plan keeps the default limit TTFT <= 5 s") && Contains(" s more"));
}

TEST_CASE("limits of the workload stay as they are, and simplicity with them") {
  const std::string own = std::string("objectives: {time_per_output_token: 300 ms}\n") + kWork;
  const auto plan = PlanOf(Machines("L4", 8), "Llama-3-8B", UsualPreference(), own);
  CHECK(plan.prediction().time_per_output_token_seconds() > 0.1);
  CHECK(LineWith(plan, "the limits TPOT") == "");
}

TEST_CASE("of plans of as few stages the one that loses least with a machine is taken") {
  // Two replicas over both machines, or one in each: the same stages, the same rate.
  const auto plan = Usual(
      "machines:\n- {name: a, devices: [{kind: A40, count: 2}]}\n"
      "- {name: b, devices: [{kind: A40, count: 2}]}\n"
      "tiers: {site: {bandwidth: 200 Gbit/s, latency: 1 us}}",
      "Qwen2.5-32B");
  for (const v1::Replica& replica : plan.replicas()) {
    std::set<std::string> machines;
    for (const v1::Stage& stage : replica.stages()) {
      for (const v1::PlannedWorker& worker : stage.workers())
        machines.insert(worker.device().substr(0, 1));
    }
    CHECK(machines.size() == 1);
  }
}

}  // namespace
}  // namespace tessera::scheduler
