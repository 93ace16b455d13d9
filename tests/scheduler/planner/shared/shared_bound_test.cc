#include <catch2/catch.hpp>
#include <random>
#include <string>
#include <vector>

#include "scheduler/planner/report/plan_table.h"
#include "scheduler/planner/shared/shared_cluster.h"
#include "scheduler/planner/shared/shared_text.h"
#include "tests/scheduler/planner/shared/shared_oracle.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

using Catch::Contains;
using tests::BestTheta;
using tests::SharedInput;

int Draw(std::mt19937* random, int most) {
  return static_cast<int>((*random)() % static_cast<unsigned>(most));
}

// Two or three machines of one or two devices, four at most; links from slow to fast.
std::string DrawnCluster(std::mt19937* random) {
  static constexpr const char* kKinds[] = {"A40", "L4", "A100-40", "A6000", "T4"};
  std::string cluster = "machines:\n";
  int left = 4;
  for (int machine = 0; machine < 3 && left > 0; ++machine) {
    const int count = std::min(left, 1 + Draw(random, 2));
    left -= count;
    cluster += StrCat("- {name: m", machine, ", devices: [{kind: ", kKinds[Draw(random, 5)],
                      ", count: ", count, "}]}\n");
  }
  static constexpr const char* kLinks[] = {"100 Mbit/s", "10 Gbit/s", "100 Gbit/s"};
  return StrCat(cluster, "tiers: {site: {bandwidth: ", kLinks[Draw(random, 3)],
                ", latency: 50 us}}\n");
}

SharedPlans Bounded(const std::vector<PlannerInput>& inputs, const PlannerOptions& options = {}) {
  SharingOptions sharing;
  sharing.choices = false;
  const auto shared = PlanShared(inputs, options, sharing);
  REQUIRE(shared.status().message() == "");
  return *shared;
}

}  // namespace

TEST_CASE("no deal of devices with any layouts serves more than the bound") {
  int bounded = 0, near = 0;
  for (unsigned seed = 1; seed <= 24; ++seed) {
    std::mt19937 random(seed);
    const std::string cluster = DrawnCluster(&random);
    const double rate_a = 1 + Draw(&random, 4), rate_b = 1 + Draw(&random, 4);
    const std::vector<PlannerInput> inputs = {
        SharedInput(cluster, seed % 2 == 0 ? "Llama-3-8B" : "Llama-2-13B", rate_a),
        SharedInput(cluster, "Qwen2.5-7B", rate_b)};
    INFO(seed << "\n" << cluster << rate_a << " " << rate_b);
    const double best = BestTheta(inputs[0], inputs[1], rate_a, rate_b);
    if (best <= 0) continue;
    const SharedPlans shared = Bounded(inputs);
    REQUIRE(shared.upper_bound > 0);
    CHECK(shared.upper_bound >= best * (1 - 1e-6));
    ++bounded;
    if (shared.upper_bound < best * 1.6) ++near;
  }
  CHECK(bounded >= 12);
  CHECK(near >= bounded / 2);
}

TEST_CASE("on more devices the bound is near the deal, and follows weights and splitting") {
  const auto inputs = [](double rate_a, double rate_b) {
    return std::vector<PlannerInput>{SharedInput(tests::kMany, "Llama-3-8B", rate_a),
                                     SharedInput(tests::kMany, "Qwen2.5-14B", rate_b)};
  };
  const SharedPlans shared = Bounded(inputs(10, 2));
  CHECK(shared.upper_bound >= shared.theta);
  CHECK(shared.upper_bound <= shared.theta * 1.1);
  const SharedPlans half = Bounded(inputs(20, 4));
  CHECK(half.upper_bound == Approx(shared.upper_bound / 2).epsilon(0.02));
  PlannerOptions whole;
  whole.allow_split = false;
  const SharedPlans unsplit = Bounded(inputs(10, 2), whole);
  CHECK(unsplit.upper_bound >= unsplit.theta);
  CHECK(unsplit.upper_bound <= shared.upper_bound * 1.02);
  const std::string text = SharedText(shared);
  CHECK_THAT(text, Contains("\n  at most ") &&
                       Contains(" times the asked rates, whatever the deal: the gap is ") &&
                       Contains("moves (heuristic)") && !Contains("no bound"));
  for (const v1::DeploymentPlan& plan : shared.plans)
    CHECK_THAT(PlanTable(plan), Contains("the gap is ") && !Contains("no bound is proved"));
}

TEST_CASE("who stops the search is promised no bound that was not reached") {
  const std::vector<PlannerInput> inputs = {SharedInput(tests::kMixed, "Llama-3-8B", 3),
                                            SharedInput(tests::kMixed, "Qwen2.5-7B", 1)};
  int asked = 0;
  PlannerOptions options;
  options.watch.stop = [&] { return ++asked < 0; };
  const SharedPlans whole = Bounded(inputs, options);
  REQUIRE(whole.upper_bound > 0);
  const int most = asked;
  for (int stop_at = most - 1; stop_at > most - 12 && stop_at > 0; --stop_at) {
    asked = 0;
    options.watch.stop = [&] { return ++asked > stop_at; };
    SharingOptions sharing;
    sharing.choices = false;
    const auto cut = PlanShared(inputs, options, sharing);
    if (!cut.ok()) continue;
    CHECK((cut->upper_bound == 0 || cut->upper_bound >= whole.theta));
  }
}

}  // namespace tessera::scheduler
