#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "scheduler/planner/report/choice_text.h"
#include "scheduler/planner/shared/shared_cluster.h"
#include "scheduler/planner/shared/shared_text.h"
#include "tests/scheduler/planner/shared/shared_oracle.h"

namespace tessera::scheduler {
namespace {

using Catch::Contains;
using tests::BestTheta;
using tests::kMany;
using tests::kMixed;
using tests::RateOn;
using tests::SharedInput;

constexpr char kMachines[] = "every machine for one model alone: ";
constexpr char kKinds[] = "every kind of device for one model alone: ";
constexpr char kEven[] = "as much of every shape of machine for each model: ";
constexpr char kInTurn[] = "each model in turn with the whole cluster, ";

SharedPlans Shared(const std::vector<PlannerInput>& inputs, const PlannerOptions& options = {}) {
  const auto shared = PlanShared(inputs, options);
  REQUIRE(shared.status().message() == "");
  for (const v1::DeploymentPlan& plan : shared->plans) {
    REQUIRE(AlternativeLines(plan) == AlternativeLines(shared->plans[0]));
  }
  return *shared;
}

// The line of a choice; empty: there is none.
std::string LineOf(const SharedPlans& shared, const std::string& name) {
  for (const std::string& line : AlternativeLines(shared.plans[0])) {
    if (line.starts_with(name)) return line.substr(name.size());
  }
  return "";
}

double ThetaOf(const SharedPlans& shared, const std::string& name) {
  const std::string line = LineOf(shared, name);
  INFO(name << SharedText(shared));
  REQUIRE_THAT(line, Contains(" times "));
  return std::stod(line);
}

}  // namespace

TEST_CASE("choices beside a deal are the best of their kind, every deal of it tried") {
  int machines_told = 0, kinds_told = 0;
  for (const auto& [rate_a, rate_b] :
       {std::pair(1.0, 1.0), std::pair(3.0, 1.0), std::pair(1.0, 6.0)}) {
    INFO(rate_a << " " << rate_b);
    const std::vector<PlannerInput> inputs = {SharedInput(kMixed, "Llama-3-8B", rate_a),
                                              SharedInput(kMixed, "Qwen2.5-7B", rate_b)};
    const SharedPlans shared = Shared(inputs);
    // By groups of devices: A40 and two L4 in a, an L4 in b.
    const auto best = [&](const std::function<bool(const std::vector<int>&)>& wanted) {
      return BestTheta(inputs[0], inputs[1], rate_a, rate_b, "exact", wanted);
    };
    if (!LineOf(shared, kMachines).empty()) {
      ++machines_told;
      const double machines = best([](const std::vector<int>& part) {
        return part[0] == (part[1] > 0 ? 1 : 0) && part[1] % 2 == 0;
      });
      CHECK(ThetaOf(shared, kMachines) == Approx(machines).margin(6e-4));
      CHECK(ThetaOf(shared, kMachines) < shared.theta + 6e-4);
    }
    if (!LineOf(shared, kKinds).empty()) {
      ++kinds_told;
      const double kinds = best([](const std::vector<int>& part) {
        return part[1] == 2 * part[2] && (part[1] == 0 || part[1] == 2);
      });
      CHECK(ThetaOf(shared, kKinds) == Approx(kinds).margin(6e-4));
      CHECK(ThetaOf(shared, kKinds) < shared.theta + 6e-4);
    }
    // The first model in turn has the A40, the second the L4 of b; of the others both have one.
    CHECK(ThetaOf(shared, kEven) == Approx(std::min(RateOn(inputs[0], {1, 1, 0}, "exact") / rate_a,
                                                    RateOn(inputs[1], {0, 1, 1}, "exact") / rate_b))
                                        .margin(6e-4));
    const double in_turn = 1 / (rate_a / RateOn(inputs[0], {1, 2, 1}, "exact") +
                                rate_b / RateOn(inputs[1], {1, 2, 1}, "exact"));
    const std::string line = LineOf(shared, kInTurn);
    CHECK(std::stod(line.substr(line.find("of the time: ") + 13)) == Approx(in_turn).margin(6e-4));
    CHECK_THAT(line, Contains(" times the asked rates (") &&
                         Contains("no plan shares a device between models"));
    CHECK_THAT(LineOf(shared, kEven), Contains("Qwen2.5-7B limits it, on 2 L4") ||
                                          Contains("Llama-3-8B limits it, on 1 A40, 1 L4"));
  }
  CHECK(machines_told > 0);
  CHECK(kinds_told > 0);
}

TEST_CASE("a choice that the deal is one of is not told again") {
  // By far the best: 8B in each machine.
  const std::string apart = R"(
machines:
- {name: a, devices: [{kind: A40}]}
- {name: b, devices: [{kind: L40}]}
tiers: {site: {bandwidth: 1 Gbit/s, latency: 50 us}}
)";
  const SharedPlans shared =
      Shared({SharedInput(apart, "Llama-3-8B"), SharedInput(apart, "Qwen2.5-7B")});
  CHECK(LineOf(shared, kMachines).empty());
  CHECK(LineOf(shared, kKinds).empty());
  CHECK_THAT(LineOf(shared, kInTurn), Contains("Llama-3-8B 50 %, Qwen2.5-7B 50 % of the time: "
                                               "0.500 times what each model would serve alone"));
}

TEST_CASE("a choice that cannot be names the model that does not fit") {
  constexpr char kSmall[] = R"(
machines:
- {name: a, devices: [{kind: A40, count: 4}]}
- {name: b, devices: [{kind: L4, count: 2}]}
tiers: {site: {bandwidth: 25 Gbit/s, latency: 50 us}}
)";
  const SharedPlans shared =
      Shared({SharedInput(kSmall, "Llama-2-70B"), SharedInput(kSmall, "Llama-3-8B")});
  CHECK(LineOf(shared, kEven) == "none, Llama-2-70B does not fit on its 2 A40, 1 L4");
  constexpr char kOne[] = "machines: [{name: a, devices: [{kind: A40, count: 2}]}]";
  const SharedPlans one =
      Shared({SharedInput(kOne, "Llama-3-8B", 1), SharedInput(kOne, "Qwen2.5-7B", 1)});
  CHECK(LineOf(one, kMachines) == "none, there are fewer machines than models");
  CHECK(LineOf(one, kKinds) == "none, there are fewer kinds of devices than models");
}

TEST_CASE("on more devices the program comes near the best deal of whole machines") {
  for (const auto& [rate_a, rate_b] : {std::pair(10.0, 2.0), std::pair(10.0, 10.0)}) {
    const std::vector<PlannerInput> inputs = {SharedInput(kMany, "Llama-3-8B", rate_a),
                                              SharedInput(kMany, "Qwen2.5-14B", rate_b)};
    const SharedPlans shared = Shared(inputs);
    const double best =
        BestTheta(inputs[0], inputs[1], rate_a, rate_b, "best", [](const std::vector<int>& part) {
          return std::all_of(part.begin(), part.end(), [](int n) { return n % 4 == 0; });
        });
    if (LineOf(shared, kMachines).empty()) continue;
    CHECK(ThetaOf(shared, kMachines) <= best * 1.001);
    CHECK(ThetaOf(shared, kMachines) >= best * 0.9);
    CHECK(shared.theta >= ThetaOf(shared, kMachines) * 0.999);
  }
}

TEST_CASE("who stops the search early is told so, of the deal and of the choices") {
  const std::vector<PlannerInput> inputs = {SharedInput(kMany, "Llama-3-8B", 10),
                                            SharedInput(kMany, "Qwen2.5-14B", 2)};
  int asked = 0;
  PlannerOptions options;
  options.watch.stop = [&] { return ++asked < 0; };
  Shared(inputs, options);
  const int all = asked;
  bool deal_cut = false, choices_cut = false;
  for (const int tenths : {5, 8, 9}) {
    asked = 0;
    const int most = all / 10 * tenths;
    options.watch.stop = [&] { return ++asked > most; };
    const auto shared = PlanShared(inputs, options);
    if (!shared.ok()) {
      CHECK_THAT(std::string(shared.status().message()), Contains("interrupted"));
      continue;
    }
    CHECK_THAT(SharedText(*shared), Contains("interrupted: not all other choices were tried"));
    CHECK_THAT(SharedText(*shared), !Contains("does not fit"));
    choices_cut = true;
    deal_cut = deal_cut || shared->text.find("the best deal found until then") != std::string::npos;
  }
  CHECK(choices_cut);
  CHECK(deal_cut);
}

}  // namespace tessera::scheduler
