#include "scheduler/planner/shared/shared_outlook.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <vector>

#include "scheduler/plan_check/plan_check.h"
#include "scheduler/planner/advice/what_if.h"
#include "scheduler/planner/planner.h"
#include "scheduler/planner/report/outlook_text.h"
#include "scheduler/planner/shared/shared_text.h"
#include "scheduler/planner/written_layout.h"
#include "tests/scheduler/planner/shared/shared_oracle.h"

namespace tessera::scheduler {
namespace {

using Catch::Contains;
using tests::BestTheta;
using tests::kMixed;
using tests::SharedInput;

SharedPlans Shared(const std::vector<PlannerInput>& inputs) {
  SharingOptions sharing;
  sharing.choices = false;
  const auto shared = PlanShared(inputs, {}, sharing);
  REQUIRE(shared.status().message() == "");
  return *shared;
}

std::string LineWith(const std::vector<std::string>& lines, const std::string& begin) {
  for (const std::string& line : lines) {
    if (line.starts_with(begin)) return line;
  }
  return "";
}

std::vector<PlannerInput> With(std::vector<PlannerInput> inputs, const std::string& change) {
  for (PlannerInput& input : inputs) REQUIRE(ApplyChanges(change, &input.cluster).ok());
  return inputs;
}

}  // namespace

TEST_CASE("one more device brings what the best deal of all with it does") {
  const std::vector<PlannerInput> inputs = {SharedInput(kMixed, "Llama-3-8B", 3),
                                            SharedInput(kMixed, "Qwen2.5-7B", 1)};
  SharedPlans shared = Shared(inputs);
  AddSharedOutlook(inputs, {}, false, &shared);
  for (const std::string kind : {"A40", "L4"}) {
    double most = 0;
    for (const char* place : {"", " on a", " on b"}) {
      if (kind == "A40" && std::string(place) == " on b") continue;  // it has none
      const std::vector<PlannerInput> more = With(inputs, "+1 " + kind + place);
      most = std::max(most, BestTheta(more[0], more[1], 3, 1, "best") - shared.theta);
    }
    const std::string line = LineWith(DevicePriceLines(shared.plans[1]), "one more " + kind);
    INFO(line);
    REQUIRE_THAT(line, Contains(" times the asked rates (dealt again, ") &&
                           Contains("Llama-3-8B ") && Contains(", Qwen2.5-7B ") &&
                           Contains(" -> "));
    CHECK(std::stod(line.substr(line.find("brings ") + 7)) == Approx(most).margin(6e-4));
    CHECK(most > 0.01);
  }
  for (const v1::DeploymentPlan& plan : shared.plans) {
    CHECK(CheckPlanOn(plan, inputs[0].cluster, inputs[0].catalogue).message() == "");
    CHECK(plan.device_prices_size() == 2);
  }
  const std::string text = SharedText(shared);
  const size_t once = text.find("what one more device would bring:\n  one more A40 brings ");
  CHECK(once != std::string::npos);
  CHECK(text.find("what one more device would bring", once + 1) == std::string::npos);
}

TEST_CASE("where no rates are given what devices bring is for the weights there were") {
  const std::vector<PlannerInput> inputs = {SharedInput(kMixed, "Llama-3-8B"),
                                            SharedInput(kMixed, "Qwen2.5-7B")};
  SharedPlans shared = Shared(inputs);
  AddSharedOutlook(inputs, {}, false, &shared);
  const std::vector<PlannerInput> more = With(inputs, "+1 A40 on a");
  const double then =
      BestTheta(more[0], more[1], shared.weights[0], shared.weights[1], "best") - shared.theta;
  const std::string line = LineWith(DevicePriceLines(shared.plans[0]), "one more A40 brings ");
  CHECK_THAT(line, Contains("times what each model would serve alone"));
  CHECK(std::stod(line.substr(21)) >= then - 6e-4);
}

TEST_CASE("a device that no model can use brings nothing, many devices are not dealt anew") {
  const std::string cluster =
      "machines:\n- {name: a, devices: [{kind: A40, count: 2}]}\n"
      "- {name: b, devices: [{kind: T4}]}\ntiers: {machine: {bandwidth_bytes_per_second: 1000}, "
      "site: {bandwidth_bytes_per_second: 1000}}";
  const std::vector<PlannerInput> inputs = {SharedInput(cluster, "Qwen2.5-14B"),
                                            SharedInput(cluster, "Llama-2-13B")};
  SharedPlans shared = Shared(inputs);
  AddSharedOutlook(inputs, {}, false, &shared);
  CHECK(LineWith(DevicePriceLines(shared.plans[0]), "one more T4 ") ==
        "one more T4 brings nothing (dealt again, all places tried)");

  const std::vector<PlannerInput> many = {SharedInput(tests::kMany, "Llama-3-8B", 10),
                                          SharedInput(tests::kMany, "Qwen2.5-14B", 2)};
  SharedPlans deal = Shared(many);
  AddSharedOutlook(many, {}, false, &deal);
  const auto lines = DevicePriceLines(deal.plans[0]);
  REQUIRE(lines.size() == 4);  // kinds, and that these are estimates
  CHECK_THAT(lines[3], Contains("not dealt again") &&
                           Contains("above 12 devices, where it takes long") &&
                           Contains("--sensitivity"));
  const auto worth = [&](const std::string& kind) {
    const std::string line = LineWith(lines, "one more " + kind + " brings about ");
    REQUIRE_THAT(line, Contains(" times the asked rates (estimate: the dual)"));
    return std::stod(line.substr(line.find("about ") + 6));
  };
  CHECK(worth("A100-40") > worth("A40"));
  CHECK(worth("A40") > worth("L4"));
  // All devices together are worth what the bound says, or what the program serves below it.
  CHECK(4 * worth("A100-40") + 4 * worth("A40") + 8 * worth("L4") ==
        Approx(deal.upper_bound).epsilon(0.05));
}

TEST_CASE("a faster link brings what the same layouts serve with it") {
  // 70B needs all of a and b, over a link that holds its pipeline up.
  const std::string cluster = R"(
machines:
- {name: a, devices: [{kind: A40, count: 2}]}
- {name: b, devices: [{kind: A40, count: 2}]}
- {name: c, devices: [{kind: A40, count: 1}]}
tiers: {site: {bandwidth: 100 Mbit/s, latency: 50 us}}
)";
  const std::vector<PlannerInput> inputs = {SharedInput(cluster, "Llama-2-70B", 1),
                                            SharedInput(cluster, "Llama-3-8B", 1)};
  SharedPlans shared = Shared(inputs);
  AddSharedOutlook(inputs, {}, false, &shared);
  PlannerInput faster = With(inputs, "tier site 10.1 Gbit/s 0.05 ms")[0];
  PlannerOptions judging;
  judging.given_search = GivenLayout(LayoutOf(shared.plans[0]), "then");
  const auto then = MakePlan(faster, judging);
  REQUIRE(then.status().message() == "");
  const double brings = then->prediction().requests_per_second() - shared.theta;
  const std::string line = LineWith(LinkPriceLines(shared.plans[1]), "10 Gbit/s more on ");
  INFO(SharedText(shared));
  REQUIRE(brings > 0.01);
  REQUIRE_THAT(line, Contains("would bring these layouts ") && Contains("(now 0.1 Gbit/s)"));
  CHECK(std::stod(line.substr(line.find("layouts ") + 8)) == Approx(brings).margin(6e-4));
}

// Efficiencies multiply peaks.
PlannerInput Slower(PlannerInput input, double by) {
  for (v1::DeviceKind& kind : *input.catalogue.mutable_kinds()) {
    kind.set_dense_flops_per_second(kind.dense_flops_per_second() * by);
    kind.set_memory_bandwidth_bytes_per_second(kind.memory_bandwidth_bytes_per_second() * by);
  }
  return input;
}

TEST_CASE("where assumptions are off the layouts are judged again, and dealt anew if asked for") {
  const std::vector<PlannerInput> inputs = {SharedInput(kMixed, "Llama-3-8B", 3),
                                            SharedInput(kMixed, "Qwen2.5-7B", 1)};
  const SharedPlans shared = Shared(inputs);
  for (const bool again : {false, true}) {
    SharedPlans told = shared;
    AddSharedOutlook(inputs, {}, again, &told);
    const auto lines = SensitivityLines(told.plans[1]);
    REQUIRE(lines.size() == (again ? 6U : 7U));
    double slower = 1e9;
    for (size_t i = 0; i < 2; ++i) {
      PlannerOptions judging;
      judging.given_search = GivenLayout(LayoutOf(shared.plans[i]), "then");
      const auto then = MakePlan(Slower(inputs[i], 0.9), judging);
      REQUIRE(then.ok());
      slower = std::min(slower, then->prediction().requests_per_second() / (i == 0 ? 3 : 1));
    }
    const std::string line = LineWith(lines, "efficiencies 10 % lower: ");
    INFO(line);
    CHECK(slower < shared.theta * 0.95);
    CHECK(std::stod(line.substr(25)) == Approx(slower).margin(6e-4));
    CHECK_THAT(line, Contains("requests/s") && Contains("(-") && Contains("Qwen2.5-7B "));
    CHECK_THAT(LineWith(lines, "outputs 20 % shorter: "), Contains("(+"));
    if (!again) {
      CHECK_THAT(lines[6], Contains("is unknown: --sensitivity deals again"));
      continue;
    }
    const double best = BestTheta(Slower(inputs[0], 0.9), Slower(inputs[1], 0.9), 3, 1, "best");
    CHECK_THAT(line, Contains(best > slower * 1.001 ? "; another deal would be chosen, for "
                                                    : "; the deal stays"));
    for (const std::string& each : lines)
      CHECK_THAT(each,
                 Contains("; another deal would be chosen, for ") || Contains("; the deal stays"));
  }
}

TEST_CASE("a deal that is not the best where assumptions are off is said not to be") {
  std::vector<PlannerInput> inputs = {SharedInput(kMixed, "Llama-3-8B", 3),
                                      SharedInput(kMixed, "Qwen2.5-7B", 1)};
  SharedPlans shared = Shared(inputs);
  // Each model with what was dealt to the other one.
  std::swap(inputs[0].model, inputs[1].model);
  std::swap(shared.plans[0], shared.plans[1]);
  const SharedPlans best = Shared(inputs);
  std::string overload;
  shared.theta = CommonPart(shared.plans, shared.weights, &overload);
  REQUIRE(shared.theta < best.theta * 0.9);
  AddSharedOutlook(inputs, {}, true, &shared);
  // No link is in use: the best deal stays what it is.
  const std::string line = LineWith(SensitivityLines(shared.plans[0]), "links 30 % faster: ");
  REQUIRE_THAT(line, Contains("; another deal would be chosen, for "));
  CHECK(std::stod(line.substr(line.find("chosen, for ") + 12)) == Approx(best.theta).epsilon(0.01));
}

TEST_CASE("who stops it is told what was left out") {
  const std::vector<PlannerInput> inputs = {SharedInput(kMixed, "Llama-3-8B", 3),
                                            SharedInput(kMixed, "Qwen2.5-7B", 1)};
  SharedPlans shared = Shared(inputs);
  PlannerOptions options;
  options.watch.stop = [] { return true; };
  AddSharedOutlook(inputs, options, true, &shared);
  CHECK_THAT(SharedText(shared),
             Contains("\n  interrupted: not dealt again with one more of 2 kinds\n") &&
                 Contains("\n  interrupted: not all links were tried\n") &&
                 Contains("\n  interrupted: not all assumptions were tried\n") &&
                 !Contains("dealt again, all"));
}

}  // namespace tessera::scheduler
