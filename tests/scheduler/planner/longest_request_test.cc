// Replicas that decode have KV for the longest request that may come, or the plan says that none
// has.
#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <string>

#include "proto/document.h"
#include "proto/model/model_folder.h"
#include "scheduler/input/catalogue.h"
#include "scheduler/planner/planner.h"
#include "scheduler/planner/preference.h"
#include "scheduler/planner/report/note_text.h"
#include "scheduler/search/layout/assemble.h"
#include "tests/scheduler/planner/written_input.h"

namespace tessera::scheduler {
namespace {

using Catch::Contains;

// Of replicas that decode: the least.
int64_t LeastKv(const v1::DeploymentPlan& plan) {
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const v1::Replica& replica : plan.replicas()) {
    if (replica.role() != v1::REPLICA_ROLE_PREFILL)
      least = std::min(least, replica.prediction().kv_capacity_tokens());
  }
  return least;
}

v1::DeploymentPlan PlanOf(const PlannerInput& input, const PlannerOptions& options) {
  auto plan = MakePlan(input, options);
  REQUIRE(plan.status().message() == "");
  return *std::move(plan);
}

std::string WarningOf(const v1::DeploymentPlan& plan) {
  for (const v1::Note& note : plan.notes()) {
    if (note.has_short_kv()) return NoteText(note, plan);
  }
  return "";
}

// As `deploy/quickstart --split`.
PlannerInput FourUnlikeWorkers() {
  PlannerInput input;
  REQUIRE(ReadDocumentFile("deploy/clusters/four_unlike_workers_split.yaml", &input.cluster).ok());
  REQUIRE(ReadDocumentFile("deploy/workloads/short_questions.yaml", &input.workload).ok());
  input.catalogue = *BuiltInDevices();
  input.model = *ReadModelFolder("deploy/demo_model/tessera-demo");
  return input;
}

PlannerOptions OfServing(int64_t context) {
  PlannerOptions options;
  options.preference = UsualPreference();
  options.context_tokens = context;
  options.simulate = false;
  return options;
}

}  // namespace

TEST_CASE("four unlike CPU workers, split: the replicas that decode hold the model's context") {
  const PlannerInput input = FourUnlikeWorkers();
  PlannerOptions options = OfServing(input.model.max_positions());
  options.require_split = true;
  options.runtime_reserve_bytes = 0;
  options.max_step_tokens = 256;
  const v1::DeploymentPlan plan = PlanOf(input, options);
  CHECK(LeastKv(plan) >= 2048);
  CHECK(WarningOf(plan) == "");
}

TEST_CASE("two L4: a request that one does not hold takes both; in whole blocks of KV") {
  const PlannerInput input =
      tests::WrittenInput("machines: [{name: a, devices: [{kind: L4, count: 2}]}]", "Llama-3-8B");
  const v1::DeploymentPlan usual = PlanOf(input, OfServing(0));
  REQUIRE(usual.replicas_size() == 2);
  const int64_t alone = LeastKv(usual);

  const v1::DeploymentPlan fits = PlanOf(input, OfServing(alone / 64 * 64));
  CHECK(fits.replicas_size() == 2);
  const v1::DeploymentPlan longer = PlanOf(input, OfServing(alone / 64 * 64 + 1));
  CHECK(longer.replicas_size() == 1);
  CHECK(LeastKv(longer) > alone);
  CHECK(WarningOf(longer) == "");
}

TEST_CASE("where no plan holds the longest request, the best one says by how much") {
  const PlannerInput input =
      tests::WrittenInput("machines: [{name: a, devices: [{kind: L4, count: 2}]}]", "Llama-3-8B");
  const v1::DeploymentPlan usual = PlanOf(input, OfServing(0));
  const v1::DeploymentPlan plan = PlanOf(input, OfServing(10'000'000));
  CHECK(plan.prediction().requests_per_second() == usual.prediction().requests_per_second());
  const std::string kv = std::to_string(LeastKv(usual));
  CHECK_THAT(WarningOf(plan),
             Contains("warning: no plan has KV for a request of 10000000 tokens") &&
                 Contains(" has " + kv + "; --max-model-len " + kv));
  CHECK(WarningOf(usual) == "");
}

TEST_CASE("of a layout that does not hold the longest request nothing is said of other plans") {
  const PlannerInput input =
      tests::WrittenInput("machines: [{name: a, devices: [{kind: L4, count: 2}]}]", "Llama-3-8B");
  PlannerOptions options = OfServing(LeastKv(PlanOf(input, OfServing(0))) + 1);
  CHECK(WarningOf(PlanOf(input, options)) == "");  // both together hold it
  options.given_search = [](const PlacementProblem& problem) {
    PlacedReplica one, other;
    one.stages = {{0, 1, problem.model->layers}};
    other.stages = {{0, 1, problem.model->layers}};
    return Assemble(problem, {one, other});
  };
  CHECK_THAT(WarningOf(PlanOf(input, options)),
             Contains("warning: the layout lacks KV for a request of") && Contains(" r0 has "));
}

}  // namespace tessera::scheduler
