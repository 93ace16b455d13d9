// Devices that no worker runs on are left out of what is to be started, and said to be.
#include <catch2/catch.hpp>
#include <set>
#include <string>

#include "scheduler/plan_check/plan_check.h"
#include "scheduler/planner/advice/left_out_devices.h"
#include "scheduler/planner/planner.h"
#include "scheduler/planner/report/note_text.h"
#include "tests/scheduler/planner/written_input.h"

namespace tessera::scheduler {
namespace {

using Catch::Contains;

// As two people had them: two V100 beside an A100.
constexpr char kTwoMachines[] = R"(
machines:
- {name: v, devices: [{kind: V100-32, count: 2}]}
- {name: a, devices: [{kind: A100-80}]}
tiers: {site: {bandwidth: 10 Gbit/s, latency: 60 us}}
)";

PlannerOptions SupportedOnly() {
  PlannerOptions options;
  options.simulate = false;
  options.supported_only = true;
  return options;
}

std::set<std::string> DevicesOf(const v1::DeploymentPlan& plan) {
  std::set<std::string> devices;
  for (const v1::Replica& replica : plan.replicas()) {
    for (const v1::Stage& stage : replica.stages()) {
      for (const v1::PlannedWorker& worker : stage.workers()) devices.insert(worker.device());
    }
  }
  return devices;
}

std::string Refusal(const std::string& cluster, bool by_request = false) {
  PlannerInput input = tests::WrittenInput(cluster, "Llama-3-8B");
  input.by_request = by_request;
  return std::string(MakePlan(input, SupportedOnly()).status().message());
}

TEST_CASE("a plan is for what runs, and says what the rest would bring") {
  const PlannerInput input = tests::WrittenInput(kTwoMachines, "Llama-3-8B");
  auto plan = MakePlan(input, SupportedOnly());
  REQUIRE(plan.status().message() == "");
  CHECK(CheckPlanOn(*plan, input.cluster, input.catalogue).message() == "");
  CHECK(DevicesOf(*plan) == std::set<std::string>{"a/0"});
  AddLeftOutGain(input, SupportedOnly(), &*plan);
  std::string line;
  for (const v1::Note& note : plan->notes()) {
    if (!note.has_without_worker()) continue;
    line = NoteText(note, *plan);
    CHECK(note.without_worker().with_requests_per_second() >
          1.2 * note.without_worker().requests_per_second());
  }
  CHECK_THAT(line, Contains("warning: 2 V100-32 left out: no worker runs on such devices; with "
                            "them ") &&
                       Contains(" requests/s instead of ") &&
                       Contains("; --include-unsupported plans for them"));

  PlannerOptions all = SupportedOnly();
  all.supported_only = false;
  const auto with = MakePlan(input, all);
  REQUIRE(with.status().message() == "");
  CHECK(DevicesOf(*with) == std::set<std::string>{"a/0", "v/0", "v/1"});
}

TEST_CASE("devices keep their places in a machine that loses some of its devices") {
  const PlannerInput input = tests::WrittenInput(
      "machines: [{name: m, devices: [{kind: P40}, {kind: L4}, {kind: V100}, {kind: L4}]}]",
      "Llama-3-8B");
  const auto plan = MakePlan(input, SupportedOnly());
  REQUIRE(plan.status().message() == "");
  CHECK(CheckPlanOn(*plan, input.cluster, input.catalogue).message() == "");
  CHECK(DevicesOf(*plan) == std::set<std::string>{"m/1", "m/3"});
}

TEST_CASE("where no device runs a worker the refusal names them and what includes them") {
  CHECK(Refusal("machines: [{name: m, devices: [{kind: P40, count: 2}, {kind: M4Max}]}]\n"
                "tiers: {machine: {bandwidth: 12 GB/s}}") ==
        "c.yaml: no worker runs on any of its devices (1 M4Max and 2 P40): workers run on CPUs, "
        "and on "
        "NVIDIA GPUs from compute capability 7.5 on; --include-unsupported plans for them all the "
        "same");
  CHECK_THAT(Refusal("machines: [{name: m, devices: [{kind: P40}]}]", true),
             Contains("options.include_unsupported plans for them"));
}

TEST_CASE("a refusal for want of memory says which devices it does not count") {
  const PlannerInput input = tests::WrittenInput(
      "machines: [{name: a, devices: [{kind: P40, count: 2}, {kind: RTX3090}]}]", "Qwen3-14B");
  const auto refused = MakePlan(input, SupportedOnly());
  CHECK_THAT(std::string(refused.status().message()),
             Contains("does not fit") && Contains("; without 2 P40, on which no worker runs: "
                                                  "--include-unsupported plans for them"));
  PlannerOptions all = SupportedOnly();
  all.supported_only = false;
  CHECK(MakePlan(input, all).ok());
}

TEST_CASE("a kind that says nothing of what runs on it counts as supported") {
  const std::string mine =
      "machines: [{name: m, devices: [{kind: mine}]}]\n"
      "kinds: [{name: mine, memory: 24 GiB, memory_bandwidth: 900 GB/s, dense_flops_per_second: "
      "100 TFLOPS";
  CHECK(Refusal(mine + "}]") == "");
  CHECK(Refusal(mine + ", compute_capability: 7.5}]") == "");
  CHECK_THAT(Refusal(mine + ", compute_capability: 7.0}]"), Contains("(1 mine)"));
  CHECK_THAT(Refusal(mine + ", planned_only: true}]"), Contains("(1 mine)"));
}

}  // namespace
}  // namespace tessera::scheduler
