// What is said of devices, failure domains and sequences before machines are started.
#include "scheduler/planner/plan_notes.h"

#include <catch2/catch.hpp>
#include <memory>

#include "scheduler/planner/kv_element.h"
#include "scheduler/planner/planner.h"
#include "scheduler/planner/report/note_text.h"
#include "tests/scheduler/planner/written_input.h"

namespace tessera::scheduler {
namespace {

using Catch::Contains;

constexpr char kWork[] = "classes: [{lengths: [{prompt_tokens: 1155, output_tokens: 211}]}]";

v1::DeploymentPlan PlanOf(const std::string& cluster, const std::string& model,
                          const PlannerOptions& options = {}) {
  const auto plan = MakePlan(tests::WrittenInput(cluster, model, kWork), options);
  REQUIRE(plan.status().message() == "");
  return *plan;
}

std::string LineWith(const v1::DeploymentPlan& plan, const std::string& part) {
  for (const std::string& line : NoteLines(plan)) {
    if (line.find(part) != std::string::npos) return line;
  }
  return "";
}

TEST_CASE("bfloat16 on a kind without it is named, and a kind that no worker runs on") {
  const auto t4 = PlanOf("machines: [{name: a, devices: [{kind: T4, count: 2}]}]", "Llama-3-8B");
  CHECK_THAT(LineWith(t4, "bfloat16 units"),
             Contains("warning: T4 has no bfloat16 units") && Contains("computed in float16"));
  CHECK(LineWith(t4, "no worker runs") == "");
  const auto v100 = PlanOf("machines: [{name: a, devices: [{kind: V100-32}]}]", "Llama-3-8B");
  CHECK_THAT(LineWith(v100, "no worker runs"),
             Contains("warning: no worker runs on V100-32 (compute capability below 7.5"));
  CHECK(LineWith(v100, "bfloat16 units") == "");  // where nothing runs nothing is computed
  const auto l4 = PlanOf("machines: [{name: a, devices: [{kind: L4}]}]", "Llama-3-8B");
  CHECK(LineWith(l4, "bfloat16 units") == "");
  PlannerOptions half;
  half.weight_dtype = v1::DATA_TYPE_FLOAT16;
  const auto same =
      PlanOf("machines: [{name: a, devices: [{kind: T4, count: 2}]}]", "Llama-3-8B", half);
  CHECK(LineWith(same, "bfloat16 units") == "");
}

TEST_CASE("three of four replicas in one box are said to be lost with it") {
  const auto plan = PlanOf(
      "machines: [{name: box, devices: [{kind: A40, count: 3}]}, {name: desk, devices: [{kind: "
      "A40}]}]\ntiers: {site: {bandwidth: 1 Gbit/s, latency: 0.1 ms}}",
      "Llama-3-8B");
  REQUIRE(plan.replicas_size() == 4);
  CHECK_THAT(LineWith(plan, "the loss of machine box"),
             Contains("takes 3 of 4 replicas along") && Contains(" and leaves "));
  const auto one = PlanOf("machines: [{name: a, devices: [{kind: A40}]}]", "Llama-3-8B");
  CHECK_THAT(LineWith(one, "the loss of machine a"), Contains("stops all of it"));
}

TEST_CASE("--max-sequences as the limit is named with what raising it brings") {
  PlannerOptions options;
  options.max_sequences = 8;
  const auto plan =
      PlanOf("machines: [{name: a, devices: [{kind: A40}]}]", "Qwen2.5-1.5B", options);
  CHECK_THAT(LineWith(plan, "--max-sequences 8 limits"),
             Contains("--max-sequences 16 would serve ") && Contains("(+"));
  const auto free = PlanOf("machines: [{name: a, devices: [{kind: L4}]}]", "Llama-3-8B");
  CHECK(LineWith(free, "--max-sequences") == "");
}

TEST_CASE("where room for KV is the limit, a plan says what 8 bits would bring") {
  const std::string l4 = "machines: [{name: a, devices: [{kind: L4}]}]";
  const auto plan = PlanOf(l4, "Llama-3-8B");
  CHECK_THAT(LineWith(plan, "room for KV limits r0"),
             Contains("--kv-cache-dtype int8") && Contains(" would serve "));
  PlannerOptions options;
  options.kv_dtype = v1::DATA_TYPE_INT8;
  const auto narrow = PlanOf(l4, "Llama-3-8B", options);
  CHECK(LineWith(narrow, "room for KV limits") == "");
  // Heads of 128 take 132 bytes instead of 256.
  const auto tokens = [](const v1::DeploymentPlan& of) {
    return static_cast<double>(of.replicas(0).prediction().kv_capacity_tokens());
  };
  CHECK(tokens(narrow) / tokens(plan) == Approx(256.0 / 132).epsilon(0.01));
  options.kv_dtype = v1::DATA_TYPE_FP8;
  CHECK(tokens(PlanOf(l4, "Llama-3-8B", options)) == tokens(narrow));
}

TEST_CASE("KV of another type is the draft model's too") {
  ModelShape draft;
  draft.kv_bytes_per_element = 2;
  ModelShape model;
  model.draft_model = std::make_shared<const ModelShape>(draft);
  const ModelShape narrow = WithKvElement(model, 1, 4);
  CHECK(narrow.kv_bytes_per_element == 1);
  CHECK(narrow.kv_scale_bytes == 4);
  CHECK(narrow.draft_model->kv_bytes_per_element == 1);
  CHECK(narrow.draft_model->kv_scale_bytes == 4);
  CHECK(model.draft_model->kv_bytes_per_element == 2);
}

}  // namespace
}  // namespace tessera::scheduler
