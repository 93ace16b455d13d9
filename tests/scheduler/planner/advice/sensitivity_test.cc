#include "scheduler/planner/advice/sensitivity.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "proto/document.h"
#include "scheduler/input/catalogue.h"
#include "scheduler/planner/advice/assumption_changes.h"
#include "scheduler/planner/advice/outlook.h"
#include "scheduler/planner/planner.h"
#include "scheduler/planner/report/assumption_text.h"
#include "scheduler/planner/report/choice_text.h"
#include "scheduler/planner/report/note_text.h"
#include "scheduler/planner/report/outlook_text.h"
#include "scheduler/planner/report/plan_table.h"
#include "scheduler/search/searches.h"
#include "tests/scheduler/planner/written_input.h"

namespace tessera::scheduler {
namespace {

PlannerInput Input() {
  return tests::WrittenInput(R"(
machines:
- {name: a, devices: [{kind: A100-40}]}
- {name: b, devices: [{kind: L4, count: 1}]}
tiers: {site: {bandwidth: 1 Gbit/s, latency: 50 us}}
)",
                             "Qwen2.5-14B",
                             "classes: [{lengths: [{prompt_tokens: 500, output_tokens: 100}]}]");
}

std::string LineWith(const std::vector<std::string>& lines, const std::string& what) {
  for (const std::string& line : lines) {
    if (line.find(what) != std::string::npos) return line;
  }
  return "";
}

double ValueIn(const std::string& line) { return std::atof(line.c_str() + line.find(": ") + 2); }

using Catch::Contains;

}  // namespace

TEST_CASE("who interrupts the searches has what takes none, and is told") {
  const PlannerInput input = Input();
  PlannerOptions options;
  auto whole = MakePlan(input, options);
  REQUIRE(whole.status().message() == "");
  v1::DeploymentPlan stopped = *whole;
  bool late = false;
  options.watch.stop = [&] { return late; };
  // As soon as a search behind those that take none says anything.
  options.watch.progress = [&](const std::string& what) {
    late = late || what.starts_with("what changes would bring: ");
  };
  AddSensitivity(input, options, true, &stopped);
  AddSensitivity(input, {}, true, &*whole);
  REQUIRE(late);
  REQUIRE(whole->sensitivity_size() == 6);
  REQUIRE(stopped.sensitivity_size() == 7);
  for (size_t i = 0; i < 6; ++i)
    CHECK(SensitivityLines(*whole)[i].starts_with(SensitivityLines(stopped)[i] + "; "));
  CHECK(SensitivityLines(stopped)[6].starts_with("interrupted: "));
  REQUIRE(!stopped.link_prices().empty());
  CHECK(LinkPriceLines(stopped)[0] == LinkPriceLines(*whole)[0]);
  CHECK(LineWith(SensitivityLines(*whole), "interrupted") == "");
}

TEST_CASE("a layout is worth less where efficiencies fall or outputs grow, and the reverse") {
  const PlannerInput input = Input();
  const PlannerOptions options;
  auto plan = MakePlan(input, options);
  REQUIRE(plan.status().message() == "");
  const double now = plan->prediction().requests_per_second();
  AddSensitivity(input, options, false, &*plan);
  // Few devices are searched again unasked.
  REQUIRE(plan->sensitivity_size() == 6);
  for (const std::string& line : SensitivityLines(*plan))
    CHECK_THAT(line,
               Contains("; the choice stays") || Contains("; another layout would be chosen"));
  CHECK(ValueIn(LineWith(SensitivityLines(*plan), "efficiencies 10 % lower")) < 0.95 * now);
  CHECK(ValueIn(LineWith(SensitivityLines(*plan), "efficiencies 10 % higher")) > 1.05 * now);
  CHECK(ValueIn(LineWith(SensitivityLines(*plan), "outputs 20 % shorter")) > now);
  CHECK(ValueIn(LineWith(SensitivityLines(*plan), "outputs 20 % longer")) < now);
  CHECK(ValueIn(LineWith(SensitivityLines(*plan), "links 30 % slower")) <= now * 1.0001);
  CHECK(LineWith(AlternativeLines(*plan), "without ") == "");  // searched for only when asked to
  CHECK_THAT(PlanTable(*plan), Contains("if the assumptions are off:"));
}

TEST_CASE("a link that a pipeline waits for has a price") {
  PlannerInput input = Input();
  // The model needs both devices; a megabit between them decides.
  input.model = *BuiltInModel("Qwen2.5-14B");
  input.cluster.mutable_machines(0)->mutable_devices(0)->set_memory_bytes(int64_t{24} << 30);
  input.cluster.mutable_tiers()->mutable_site()->set_bandwidth_bytes_per_second(5e6);
  PlannerOptions options;
  options.allow_split = false;
  auto plan = MakePlan(input, options);
  REQUIRE(plan.status().message() == "");
  REQUIRE(plan->replicas(0).stages_size() == 2);
  AddSensitivity(input, options, true, &*plan);
  CHECK_THAT(LineWith(LinkPriceLines(*plan), "links within sites"),
             Contains("would bring this layout"));
  CHECK_THAT(LineWith(SensitivityLines(*plan), "links 30 % slower"), Contains("the choice stays"));
  CHECK_THAT(LineWith(AlternativeLines(*plan), "only L4"), Contains("none, ") && Contains("GiB"));
  CHECK_THAT(LineWith(AlternativeLines(*plan), "without L4"), Contains("none, "));
}

TEST_CASE("one more device is priced by planning again with it in the best place") {
  PlannerInput input = Input();
  input.model = *BuiltInModel("Llama-3-8B");
  const PlannerOptions options;
  auto plan = MakePlan(input, options);
  REQUIRE(plan.status().message() == "");
  const double now = plan->prediction().requests_per_second();
  CHECK_THAT(LineWith(DevicePriceLines(*plan), "one more A100-40"),
             Contains("estimate: shadow price"));
  AddSensitivity(input, options, false, &*plan);
  double best = 0;
  for (const char* machines : {"[{name: a, devices: [{kind: A100-40, count: 2}]}, "
                               "{name: b, devices: [{kind: L4, count: 1}]}]",
                               "[{name: a, devices: [{kind: A100-40}]}, "
                               "{name: b, devices: [{kind: L4}]}, "
                               "{name: c, devices: [{kind: A100-40}]}]"}) {
    PlannerInput more = input;
    more.cluster.clear_machines();
    REQUIRE(
        ReadDocument(std::string("machines: ") + machines, "more.yaml", &more.cluster).message() ==
        "");
    best = std::max(best, MakePlan(more, options)->prediction().requests_per_second());
  }
  std::string priced;
  for (const std::string& line : DevicePriceLines(*plan)) {
    if (line.starts_with("one more A100-40 brings")) priced = line;
  }
  CHECK_THAT(priced, Contains("(planned again, "));
  CHECK(std::atof(priced.c_str() + priced.find("brings ") + 7) == Approx(best - now).margin(1e-3));
  CHECK_THAT(PlanTable(*plan), Contains("what one more device would bring:"));
}

TEST_CASE("gains of devices are counted from what is predicted, whatever the simulation chose") {
  PlannerInput input = Input();
  input.model = *BuiltInModel("Llama-3-8B");
  const PlannerOptions options;
  auto plan = MakePlan(input, options);
  REQUIRE(plan.status().message() == "");
  REQUIRE(plan->has_simulated());
  const auto priced = [&](v1::DeploymentPlan from) {
    AddDevicePrices(Outlook(OutlookOf(input, options, from)), &from);
    return from;
  };
  const v1::DeploymentPlan as_predicted = priced(*plan);
  CHECK(LineWith(DevicePriceLines(as_predicted), "counted from") == "");
  // As if the simulation had preferred one that is predicted to serve less.
  const double now = plan->prediction().requests_per_second();
  plan->mutable_prediction()->set_requests_per_second(0.8 * now);
  plan->mutable_certificate()->set_value(0.8 * now);
  const v1::DeploymentPlan by_simulation = priced(*plan);
  for (const char* kind : {"one more A100-40 brings", "one more L4 brings"}) {
    CHECK(LineWith(DevicePriceLines(by_simulation), kind) ==
          LineWith(DevicePriceLines(as_predicted), kind));
  }
  CHECK_THAT(LineWith(DevicePriceLines(by_simulation), "counted from"),
             Contains("the best prediction"));
}

TEST_CASE("one more device says which idle ones it sets to work") {
  PlannerInput input = Input();
  input.model = *BuiltInModel("Qwen2.5-14B");
  // Alone b is too small, and a is too far from it.
  input.cluster.clear_tiers();
  REQUIRE(
      ReadDocument("tiers: {site: {bandwidth: 1 Mbit/s, latency: 1 s}}", "far.yaml", &input.cluster)
          .message() == "");
  auto plan = MakePlan(input, {});
  REQUIRE(plan.status().message() == "");
  REQUIRE(plan->replicas_size() == 1);
  AddSensitivity(input, {}, false, &*plan);
  CHECK_THAT(LineWith(DevicePriceLines(*plan), "one more L4 brings"),
             Contains("in machine b, together with devices that are idle now: 1 L4)"));
  CHECK_THAT(LineWith(DevicePriceLines(*plan), "one more A100-40 brings"), !Contains("together"));
  // So does an estimate, which counts parts of replicas.
  PlannerOptions priced;
  priced.given_search = [](const PlacementProblem& problem) {
    absl::StatusOr<Placement> placement = (*FindSearch("best"))(problem);
    if (placement.ok()) placement->shadow_prices.assign(problem.graph->pools().size(), 0.5);
    return placement;
  };
  plan = MakePlan(input, priced);
  REQUIRE(plan.status().message() == "");
  CHECK_THAT(LineWith(DevicePriceLines(*plan), "one more L4 is worth 0.500 requests/s"),
             Contains(", if it finds a place that the 1 that is not used did not find (estimate"));
  CHECK_THAT(LineWith(DevicePriceLines(*plan), "one more A100-40 is worth 0.500 requests/s"),
             !Contains("not used"));
}

TEST_CASE("what is left after the loss of a machine is told by that name") {
  PlannerInput input = Input();
  input.model = *BuiltInModel("Llama-3-8B");
  PlannerOptions options;
  options.survive_machine_loss = true;
  auto plan = MakePlan(input, options);
  REQUIRE(plan.status().message() == "");
  AddSensitivity(input, options, false, &*plan);
  CHECK_THAT(LineWith(SensitivityLines(*plan), "efficiencies 10 % lower"),
             Contains(" requests/s after the loss of a machine (-"));
}

// Of workstations: what is told of a changed assumption is what planning the changed input gives.
TEST_CASE("a changed assumption that changes the choice says so, for throughput and for a price") {
  PlannerInput input = tests::WrittenInput(R"(
machines:
- {name: a, devices: [{kind: A6000, count: 4}]}
- {name: b, devices: [{kind: A5000, count: 2}]}
- {name: c, devices: [{kind: A4000, count: 2}]}
tiers: {site: {bandwidth: 25 Gbit/s, latency: 50 us}}
)",
                                           "Llama-3-8B");
  for (const Goal goal : {Goal::kThroughput, Goal::kPrice}) {
    INFO("goal " << static_cast<int>(goal));
    PlannerOptions options;
    options.goal = goal;
    options.simulate = false;
    int stays = 0, goes = 0;
    for (const double rate : {5.0, 6.0, 7.0, 8.0}) {
      INFO(rate << " requests/s");
      if (goal == Goal::kPrice) input.workload.set_requests_per_second(rate);
      auto plan = MakePlan(input, options);
      REQUIRE(plan.status().message() == "");
      AddSensitivity(input, options, true, &*plan);
      for (const AssumptionChange& change : AssumptionChanges()) {
        const std::string name = ChangedName(change.assumed, change.factor);
        INFO(name);
        PlannerInput changed = input;
        change.apply(&changed);
        const auto again = MakePlan(changed, options);
        REQUIRE(again.status().message() == "");
        const std::string line = LineWith(SensitivityLines(*plan), name);
        const double kept = ValueIn(line), usd = again->certificate().value();
        const bool serves = kept >= rate * (1 - 1e-3);
        const bool same =
            goal == Goal::kPrice
                ? serves && usd * kOtherChoice >= plan->certificate().value()
                : again->prediction().requests_per_second() <= kept * kOtherChoice + 1e-3;
        ++(same ? stays : goes);
        CHECK_THAT(line,
                   Contains(same ? "; the choice stays" : "; another layout would be chosen"));
        if (same || goal != Goal::kPrice) continue;
        CHECK_THAT(line, Contains(absl::StrFormat("for %.2f instead of", usd)));
      }
      if (goal == Goal::kThroughput) break;
    }
    CHECK(stays > 0);
    if (goal == Goal::kPrice) CHECK(goes > 0);
  }
}

TEST_CASE("the cheapest plan that is full says that queues grow, and what leaves them room") {
  PlannerInput input = tests::WrittenInput(
      "machines: [{name: a, devices: [{kind: A6000, count: 2}]}]", "Llama-3-8B");
  PlannerOptions options;
  options.simulate = false;
  const double most = MakePlan(input, options)->prediction().requests_per_second();
  options.goal = Goal::kPrice;
  const auto warns = [&](double part) {
    input.workload.set_requests_per_second(part * most);
    const auto plan = MakePlan(input, options);
    REQUIRE(plan.status().message() == "");
    return LineWith(NoteLines(*plan), "warning: the asked ");
  };
  CHECK_THAT(warns(0.999), Contains("are 100 % of the capacity of this cheapest plan"));
  CHECK(warns(0.6) == "");
}

TEST_CASE("estimates and measurements are told apart") {
  PlannerInput input = Input();
  auto* profile = input.cluster.mutable_machines(1)->mutable_devices(0)->mutable_profile();
  profile->set_memory_read_bytes_per_second(250e9);
  v1::ProductRate& product = *profile->add_products();
  product.set_read_bytes_per_second(200e9);
  const auto changes = AssumptionChanges();
  PlannerInput slower = input;
  REQUIRE(changes[0].factor == 0.9);
  changes[0].apply(&slower);
  const v1::MeasuredProfile& scaled = slower.cluster.machines(1).devices(0).profile();
  CHECK(scaled.products(0).read_bytes_per_second() == Approx(180e9));
  profile->clear_products();
  input.cluster.mutable_machines(0)->mutable_devices(0)->set_kind("H100");
  const auto plan = MakePlan(input, PlannerOptions());
  REQUIRE(plan.status().message() == "");
  CHECK_THAT(LineWith(AssumptionLines(plan->assumptions()), "H100: "),
             Contains("ESTIMATED by likeness"));
  CHECK_THAT(LineWith(AssumptionLines(plan->assumptions()), "L4: "), Contains("MEASURED on b"));
  for (const char* name :
       {"objective", "search", "weights", "memory used", "runtime reserve", "KV headroom",
        "tokens in one step", "time per output token", "KV sent", "longest sequence", "prompts",
        "rate", "prefix hits", "a stage has devices", "L4 0.44", "H100 2.69"}) {
    INFO(name);
    CHECK(LineWith(AssumptionLines(plan->assumptions()), name) != "");
  }
}

}  // namespace tessera::scheduler
