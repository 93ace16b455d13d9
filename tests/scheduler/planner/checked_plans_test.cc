// Whatever is asked, no plan that plan_check refuses leaves the planner: it says that there is
// none.
#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/str_format.h"
#include "scheduler/plan_check/plan_check.h"
#include "scheduler/planner/planner.h"
#include "scheduler/search/math/seeded_random.h"
#include "tests/scheduler/planner/written_input.h"

namespace tessera::scheduler {
namespace {

constexpr int kSeeds = 300;
constexpr double kGib = 0x1p30;
constexpr const char* kKinds[] = {"T4", "L4", "A100-40", "RTX3090", "RTX3060", "A10", "RTX2080Ti"};
constexpr const char* kModels[] = {"Llama-3-8B", "Llama-2-13B", "Qwen2.5-7B", "Mixtral-8x7B"};

double Between(SeededRandom* random, double least, double most) {
  return least + (most - least) * random->Unit();
}

template <size_t n>
const char* Any(SeededRandom* random, const char* const (&of)[n]) {
  return of[random->Below(static_cast<int>(n))];
}

// Machines of one to four cards, some with less memory than a card has.
std::string OddCluster(SeededRandom* random) {
  std::string text = "machines:\n";
  const int machines = 1 + random->Below(3);
  for (int m = 0; m < machines; ++m) {
    absl::StrAppendFormat(&text, "- {name: m%d, devices: [", m);
    const int groups = random->Below(3) == 0 ? 2 : 1;
    for (int g = 0; g < groups; ++g) {
      absl::StrAppendFormat(&text, "%s{kind: %s, count: %d", g > 0 ? ", " : "", Any(random, kKinds),
                            1 + random->Below(2));
      if (random->Below(3) == 0)
        absl::StrAppendFormat(&text, ", memory: %.3f GiB", Between(random, 6, 26));
      text += "}";
    }
    text += "]}\n";
  }
  return text + "tiers: {site: {bandwidth: 10 Gbit/s, latency: 60 us}}\n";
}

PlannerOptions OddOptions(SeededRandom* random) {
  PlannerOptions options;
  options.simulate = false;
  options.runtime_reserve_bytes = random->Below(6) == 0 ? 0 : Between(random, 0.01, 5.5) * kGib;
  options.utilisation = Between(random, 0.6, 1);
  options.max_step_tokens = static_cast<int64_t>(Between(random, 64, 5000));
  options.max_sequences = Between(random, 1, 300);
  if (random->Below(3) == 0) options.weight_dtype = v1::DATA_TYPE_INT8;
  if (random->Below(3) == 0) options.context_tokens = 1 + random->Below(9000);
  options.allow_split = random->Below(2) == 0;
  if (random->Below(4) > 0) options.preference = UsualPreference();
  options.survive_machine_loss = random->Below(12) == 0;
  if (random->Below(20) == 0) options.search = random->Below(2) == 0 ? "hexgen" : "hexgen2";
  return options;
}

TEST_CASE("300 seeded clusters with odd reserves have plans that plan_check takes, or none") {
  int planned = 0;
  for (int seed = 0; seed < kSeeds; ++seed) {
    SeededRandom random(static_cast<uint64_t>(seed) * 7919 + 5);
    const std::string cluster = OddCluster(&random);
    const PlannerInput input = tests::WrittenInput(cluster, Any(&random, kModels));
    const PlannerOptions options = OddOptions(&random);
    INFO("seed " << seed << ", reserve " << options.runtime_reserve_bytes / kGib << " GiB\n"
                 << cluster);
    const auto plan = MakePlan(input, options);
    if (!plan.ok()) {
      INFO(std::string(plan.status().message()));
      CHECK_FALSE(absl::IsInternal(plan.status()));
      continue;
    }
    ++planned;
    CHECK(CheckPlan(*plan).message() == "");
    CHECK(CheckPlanOn(*plan, input.cluster, input.catalogue).message() == "");
  }
  CHECK(planned > kSeeds / 3);
  CHECK(planned < kSeeds);  // some fit nothing
}

// Pairs of unlike cards: a pipeline over two T4 holds no more than half of what one over two L4
// does, and was kept although it did not fit.
TEST_CASE("a plan of like pipelines leaves out those that do not fit") {
  std::string text = "machines:\n";
  for (int i = 0; i < 24; ++i) {
    const char* kind = i % 6 == 0 ? "A100-40" : i % 3 == 1 ? "L4" : "T4";
    absl::StrAppendFormat(&text, "- {name: node-%d, devices: [{kind: %s}]}\n", i, kind);
  }
  text += "tiers: {site: {bandwidth: 1000 MB/s, latency: 1 ms}}\n";
  const PlannerInput input = tests::WrittenInput(
      text, "Llama-2-70B", "classes: [{lengths: [{prompt_tokens: 1155, output_tokens: 211}]}]");
  PlannerOptions options;
  options.allow_split = false;
  options.simulate = false;
  options.preference = UsualPreference();
  for (const double gib : {1.0, 2.5, 3.0, 3.5, 4.0}) {
    INFO(gib);
    options.runtime_reserve_bytes = gib * kGib;
    const auto plan = MakePlan(input, options);
    REQUIRE(plan.status().message() == "");
    CHECK(CheckPlanOn(*plan, input.cluster, input.catalogue).message() == "");
    for (const v1::Replica& replica : plan->replicas())
      CHECK(replica.prediction().kv_capacity_tokens() > 0);
  }
}

}  // namespace
}  // namespace tessera::scheduler
