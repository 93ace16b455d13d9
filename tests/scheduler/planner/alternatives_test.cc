#include <algorithm>
#include <catch2/catch.hpp>

#include "absl/strings/str_format.h"
#include "scheduler/planner/planner.h"
#include "scheduler/planner/report/choice_text.h"
#include "scheduler/planner/report/note_text.h"
#include "tests/scheduler/planner/written_input.h"

namespace tessera::scheduler {
namespace {

v1::DeploymentPlan PlanOn(const std::string& cluster, const std::string& model,
                          PlannerOptions options = {}) {
  const auto plan = MakePlan(tests::WrittenInput(cluster, model), options);
  REQUIRE(plan.status().message() == "");
  return *plan;
}

std::string LineWith(const v1::DeploymentPlan& plan, const std::string& start) {
  for (const std::string& line : AlternativeLines(plan)) {
    if (line.starts_with(start)) return line;
  }
  return "";
}

double ValueOf(const std::string& line) {
  const size_t at = line.find(": ");
  REQUIRE(at != std::string::npos);
  return std::stod(line.substr(at + 2));
}

constexpr char kMixed[] = R"(
machines:
- {name: a, devices: [{kind: A40, count: 2}]}
- {name: b, devices: [{kind: L4, count: 2}]}
- {name: c, devices: [{kind: T4, count: 3}]}
tiers: {site: {bandwidth: 25 Gbit/s, latency: 50 us}}
)";

TEST_CASE("one kind, equal stages and splitting stand beside a plan, and none of them is better") {
  const auto plan = PlanOn(kMixed, "Llama-3-8B");
  const double value = plan.prediction().requests_per_second() * (1 + 1e-6);
  const std::string one = LineWith(plan, "one kind of device, the best of them A40"),
                    equal = LineWith(plan, "equal stages of equal width everywhere"),
                    split = LineWith(plan, "every replica only prefills or only decodes");
  CHECK(ValueOf(one) > 0);
  CHECK(ValueOf(one) < value);
  CHECK(ValueOf(equal) >= ValueOf(one));
  CHECK(ValueOf(equal) <= value);
  CHECK(ValueOf(split) > 0);
  CHECK(ValueOf(split) <= value);
  CHECK_THAT(one, Catch::Contains("of 7 devices, the weakest limited by "));
  PlannerOptions whole;
  whole.allow_split = false;
  CHECK(LineWith(PlanOn(kMixed, "Llama-3-8B", whole), "every replica only") == "");
}

TEST_CASE("equal stages are tried over all devices of a kind too, not only over the fewest") {
  const std::string a = "machines: [{name: a, devices: [{kind: A100-40, count: 8}]}";
  const double alone = PlanOn(a + "]", "Llama-2-70B").prediction().requests_per_second();
  const auto plan = PlanOn(a + ", {name: b, devices: [{kind: L4}]}]\n"
                               "tiers: {site: {bandwidth: 25 Gbit/s, latency: 50 us}}",
                           "Llama-2-70B");
  CHECK(ValueOf(LineWith(plan, "one kind of device, the best of them A100-40")) > 0.99 * alone);
}

TEST_CASE("splits are tried on more equal stages than the best ones unsplit") {
  const auto plan = PlanOn(R"(
machines:
- {name: a, devices: [{kind: H100-SXM, count: 4}]}
- {name: b, devices: [{kind: A100-80, count: 4}]}
tiers: {site: {bandwidth: 400 Gbit/s, latency: 10 us}}
)",
                           "Llama-2-70B");
  const double value = plan.prediction().requests_per_second();
  const double split = ValueOf(LineWith(plan, "every replica only prefills or only decodes"));
  CHECK(split > 0.7 * value);
  CHECK(split <= value * (1 + 1e-6));
}

constexpr char kComputersAndReaders[] = R"(
- {name: m0%s, site: s0, devices: [{kind: A6000, count: 8}]}
- {name: m1%s, site: s0, devices: [{kind: H20, count: 2}]}
- {name: m2%s, site: s0, devices: [{kind: A10, count: 4}]}
- {name: m3%s, site: s0, devices: [{kind: V100-32}]}
- {name: m4%s, site: s0, devices: [{kind: A10, count: 8}]}
- {name: m5%s, site: s0, devices: [{kind: V100-32}]})";

// Of 2,000 tokens in and 100 out.
v1::DeploymentPlan PlanOfPrompts(int copies, PlannerOptions options = {}) {
  std::string cluster = "machines:";
  for (int i = 0; i < copies; ++i) {
    const std::string n = std::string(static_cast<size_t>(i), 'x');
    cluster += absl::StrFormat(kComputersAndReaders, n, n, n, n, n, n);
  }
  cluster += "\ntiers: {site: {bandwidth: 400 Gbit/s, latency: 50 us}}\n";
  const auto plan = MakePlan(
      tests::WrittenInput(cluster, "OPT-30B",
                          "classes: [{lengths: [{prompt_tokens: 2000, output_tokens: 100}]}]"),
      options);
  REQUIRE(plan.status().message() == "");
  return *plan;
}

// Room that is kept where a request will decode makes split plans promise up to twice what they
// serve.
TEST_CASE("a plan that splits is simulated above 64 devices too, beside what does not") {
  const auto plan = PlanOfPrompts(4);
  const double value = plan.prediction().requests_per_second();
  CHECK(plan.simulated().requests_per_second() > 0.9 * value);
  PlannerOptions unseen;
  unseen.simulate = false;
  const auto promised = PlanOfPrompts(4, unseen);
  CHECK(promised.prediction().requests_per_second() > 1.05 * value);
  const auto warns = [](const std::string& line) { return line.starts_with("not simulated: "); };
  CHECK(std::ranges::count_if(NoteLines(promised), warns) == 1);
  CHECK(std::ranges::none_of(NoteLines(plan), warns));
}

TEST_CASE("a split that promises more than the plan says who chose") {
  const auto plan = PlanOfPrompts(1);
  const std::string split = LineWith(plan, "every replica only prefills or only decodes");
  REQUIRE(ValueOf(split) > plan.prediction().requests_per_second());
  CHECK_THAT(split, Catch::EndsWith("plans are chosen by simulation: see \"why\""));
  bool told = false;
  for (const std::string& line : NoteLines(plan))
    told = told || line.starts_with("chosen because the simulation ranks it clearly higher");
  CHECK(told);
}

TEST_CASE("a split of all that promises more than the search found is the plan") {
  std::string cluster = "machines:";
  for (const char* name : {"a", "b"}) {
    cluster += absl::StrFormat(R"(
- {name: %s0, site: s0, devices: [{kind: H20, count: 8}]}
- {name: %s1, site: s0, devices: [{kind: L40S, count: 4}]}
- {name: %s2, site: s0, devices: [{kind: L40S, count: 4}]})",
                               name, name, name);
  }
  cluster += "\ntiers: {site: {bandwidth: 400 Gbit/s, latency: 50 us}}\n";
  PlannerOptions unseen;
  unseen.simulate = false;
  const auto plan = MakePlan(
      tests::WrittenInput(cluster, "LLaMA-30B",
                          "classes: [{lengths: [{prompt_tokens: 1155, output_tokens: 211}]}]"),
      unseen);
  REQUIRE(plan.status().message() == "");
  const std::string split = LineWith(*plan, "every replica only prefills or only decodes");
  CHECK((split.empty() || ValueOf(split) <= plan->prediction().requests_per_second() * (1 + 1e-6)));
  CHECK(std::ranges::none_of(plan->replicas(), [](const v1::Replica& replica) {
    return replica.role() == v1::REPLICA_ROLE_BOTH;
  }));
}

TEST_CASE("of alternatives for one price the one that serves most is shown") {
  // One device of the machine costs what all of it does.
  auto input = tests::WrittenInput(
      "machines: [{name: a, price: 3 USD/h, devices: [{kind: L4, count: 4}]}]", "Llama-3-8B");
  PlannerOptions options;
  options.goal = Goal::kPrice;
  input.workload.set_requests_per_second(0.5);
  const auto plan = MakePlan(input, options);
  REQUIRE(plan.status().message() == "");
  const std::string equal = LineWith(*plan, "equal stages of equal width everywhere");
  CHECK_THAT(equal, Catch::Contains("for the same 3.00 USD/h on 1 replica of 4 of 4 "));
}

TEST_CASE("one device: why there is no split value is said") {
  const auto plan = PlanOn("machines: [{name: a, devices: [{kind: A40}]}]", "Llama-3-8B");
  CHECK_THAT(LineWith(plan, "every replica only prefills or only decodes"),
             Catch::Contains(": none, it needs two replicas that each hold the model"));
  CHECK(LineWith(plan, "one kind") == "");  // there is only one
}

TEST_CASE("many devices: equal stages are judged, and what takes long is named") {
  const auto plan =
      PlanOn("machines: [{name: a, devices: [{kind: A40, count: 65}]}]", "Llama-3-8B");
  CHECK(ValueOf(LineWith(plan, "equal stages of equal width everywhere")) > 0);
  CHECK_THAT(LineWith(plan, "every replica only prefills or only decodes"),
             Catch::Contains(": not tried above 64 devices"));
  const auto more =
      PlanOn("machines: [{name: a, devices: [{kind: A40, count: 129}]}]", "Llama-3-8B");
  CHECK_THAT(LineWith(more, "one kind of device, equal stages"),
             Catch::Contains(": not tried above 128 devices"));
}

TEST_CASE("goodput: the alternatives are judged by it, and none of them is better") {
  PlannerOptions options;
  options.goal = Goal::kGoodput;
  const auto plan = MakePlan(
      tests::WrittenInput(kMixed, "Llama-3-8B",
                          "objectives: {time_to_first_token: 1 s, time_per_output_token: 60 ms, "
                          "attainment: 0.9}\n"
                          "classes: [{lengths: [{prompt_tokens: 1000, output_tokens: 200}]}]"),
      options);
  REQUIRE(plan.status().message() == "");
  const double value = plan->prediction().requests_per_second() * (1 + 1e-6);
  // What the plan does itself is no alternative.
  const bool splits =
      std::any_of(plan->replicas().begin(), plan->replicas().end(),
                  [](const v1::Replica& one) { return one.role() == v1::REPLICA_ROLE_PREFILL; });
  for (const char* name :
       {"one kind of device, the best of them A40", "equal stages of equal width everywhere",
        splits ? "every replica prefills and decodes"
               : "every replica only prefills or only decodes"}) {
    INFO(name);
    const double other = ValueOf(LineWith(*plan, name));
    CHECK(other > 0);
    CHECK(other <= value);
  }
}

TEST_CASE("a plan that survives: the alternatives are worth what the worst loss leaves") {
  PlannerOptions options;
  options.survive_machine_loss = true;
  const auto plan = PlanOn(kMixed, "Llama-3-8B", options);
  const double value = plan.survival().requests_per_second() * (1 + 1e-6);
  const std::string equal = LineWith(plan, "equal stages of equal width everywhere");
  CHECK_THAT(equal, Catch::Contains(" requests/s after the loss of a machine ("));
  CHECK(ValueOf(equal) <= value);
  // Devices of a kind stand in one machine each.
  CHECK_THAT(LineWith(plan, "one kind of device"),
             Catch::Contains(": none, ") && Catch::Contains("a machine's loss leaves nothing"));
}

}  // namespace
}  // namespace tessera::scheduler
