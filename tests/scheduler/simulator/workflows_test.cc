#include "scheduler/simulator/workflows.h"

#include <catch2/catch.hpp>

#include "tests/scheduler/simulator/tables.h"

namespace tessera::tests {
namespace {

using scheduler::ReplicaSetup;
using scheduler::Workflow;

constexpr scheduler::WorkflowCall kExpected = {3000, 110};

// `slow` times as slow as the first.
ReplicaSetup Replica(const std::string& name, double slow) {
  PlainFigures figures;
  figures.base = 0.010 * slow;
  figures.per_prefill_token = 0.0001 * slow;
  figures.per_row = 0.0003 * slow;
  ReplicaSetup setup = PlainReplica(name, figures);
  setup.limits.total_blocks = 20'000;
  return setup;
}

std::vector<ReplicaSetup> Unequal() {
  return {Replica("fast", 1), Replica("half", 2), Replica("quarter", 4)};
}

std::vector<Workflow> Generate(const std::vector<ReplicaSetup>& replicas, double rate,
                               int64_t count) {
  std::vector<scheduler::ReplicaSpeed> speeds;
  for (const ReplicaSetup& replica : replicas) speeds.push_back(SpeedOf(replica, 3055));
  scheduler::WorkflowProcess process;
  process.workflows_per_second = rate;
  process.workflows = count;
  return GenerateWorkflows(process, speeds);
}

}  // namespace

TEST_CASE("how fast a replica is") {
  const scheduler::ReplicaSpeed speed = SpeedOf(Replica("fast", 1), 3055);
  CHECK(speed.prefill_tokens_per_second == Approx(2048 / (0.010 + 0.2048)));
  CHECK(speed.alone_seconds_per_token == Approx(0.0103));
  const double rows = 20'000 * 16 / 3055.0;
  CHECK(speed.crowded_tokens_per_second == Approx(rows / (0.010 + 0.0003 * rows)));
}

TEST_CASE("generated workflows have the shape asked for") {
  const std::vector<Workflow> workflows = Generate(Unequal(), 1, 2000);
  double calls = 0, prompts = 0, outputs = 0;
  for (const Workflow& w : workflows) {
    size_t own = 0;
    for (const auto& stage : w.stages) {
      REQUIRE(!stage.empty());
      REQUIRE(stage.size() <= 8);
      own += stage.size();
      for (const auto& call : stage) {
        prompts += static_cast<double>(call.prompt_tokens);
        outputs += static_cast<double>(call.output_tokens);
      }
    }
    REQUIRE(own >= 3);
    REQUIRE(own <= 15);
    REQUIRE(w.deadline_seconds > 0);
    calls += static_cast<double>(own);
  }
  CHECK(prompts / calls == Approx(3000).epsilon(0.02));
  CHECK(outputs / calls == Approx(110).epsilon(0.02));
  CHECK(workflows.back().arrival_seconds == Approx(2000).epsilon(0.1));
  CHECK(Generate(Unequal(), 1, 2000)[1234].deadline_seconds == workflows[1234].deadline_seconds);
}

TEST_CASE("a workflow's stages follow each other") {
  const std::vector<ReplicaSetup> replicas = {Replica("fast", 1)};
  Workflow workflow;
  workflow.deadline_seconds = 10;
  workflow.stages = {{{100, 1}, {100, 1}}, {{200, 2}}};
  const auto result = SimulateWorkflows(replicas, {workflow}, {}, {}, kExpected);
  REQUIRE(result.ok());
  // Both prompts in one step; then the next prompt; then one token.
  CHECK(result->seconds[0] == Approx((0.010 + 0.020) + (0.010 + 0.020) + 0.0103));
  CHECK(result->attainment == 1);
  workflow.deadline_seconds = 0.05;
  CHECK(SimulateWorkflows(replicas, {workflow}, {}, {}, kExpected)->attainment == 0);
}

TEST_CASE("tuned dispatch beats round-robin on unequal replicas at light load") {
  const std::vector<ReplicaSetup> replicas = Unequal();
  const std::vector<Workflow> workflows = Generate(replicas, 0.35, 400);
  const auto plain = SimulateWorkflows(replicas, workflows, {}, {}, kExpected);
  scheduler::TuningOptions tuning;
  tuning.tuned = true;
  const auto tuned = SimulateWorkflows(replicas, workflows, {}, tuning, kExpected);
  REQUIRE(plain.ok());
  REQUIRE(tuned.ok());
  CHECK(plain->tunings == 0);
  CHECK(tuned->tunings > 3);
  CHECK(tuned->round_robin_calls < plain->round_robin_calls / 2);
  CHECK(tuned->attainment > plain->attainment);
  CHECK(tuned->p95_seconds < 0.9 * plain->p95_seconds);
  CHECK(tuned->longest_tuning_seconds < 5);
}

TEST_CASE("beyond capacity round-robin is left before it has built a queue") {
  const std::vector<ReplicaSetup> replicas = Unequal();
  const std::vector<Workflow> workflows = Generate(replicas, 1, 300);
  const auto plain = SimulateWorkflows(replicas, workflows, {}, {}, kExpected);
  scheduler::TuningOptions tuning;
  tuning.tuned = true;
  const auto tuned = SimulateWorkflows(replicas, workflows, {}, tuning, kExpected);
  REQUIRE(tuned.ok());
  CHECK(tuned->round_robin_calls * 5 < tuned->calls);
  CHECK(tuned->p95_seconds < 0.8 * plain->p95_seconds);
  // Only the choices that are given are tried: with none, round-robin stays.
  tuning.alphas = {};
  CHECK(SimulateWorkflows(replicas, workflows, {}, tuning, kExpected)->seconds == plain->seconds);
}

TEST_CASE("at nine tenths of the load, least slack first makes fewer late than round-robin") {
  std::vector<ReplicaSetup> replicas = Unequal();
  for (ReplicaSetup& replica : replicas) replica.limits.max_sequences = 4;  // the others wait
  const std::vector<Workflow> all = Generate(replicas, 1, 400);
  const double capacity = *WorkflowCapacity(replicas, all, kExpected);
  const std::vector<Workflow> workflows = Generate(replicas, 0.9 * capacity, 400);
  const auto plain = SimulateWorkflows(replicas, workflows, {}, {}, kExpected);
  const auto by_arrival =
      SimulateWorkflows(replicas, workflows, {false, 0.3, false}, {}, kExpected);
  const auto by_slack = SimulateWorkflows(replicas, workflows, {false, 0.3, true}, {}, kExpected);
  INFO(plain->attainment << ", by arrival " << by_arrival->attainment << ", by slack "
                         << by_slack->attainment);
  CHECK(by_slack->attainment > plain->attainment);
  CHECK(by_slack->attainment > by_arrival->attainment);
}

TEST_CASE("replicas of a role are refused; capacity is what is got through at once") {
  std::vector<ReplicaSetup> replicas = Unequal();
  const std::vector<Workflow> workflows = Generate(replicas, 1, 100);
  const auto capacity = WorkflowCapacity(replicas, workflows, kExpected);
  REQUIRE(capacity.ok());
  CHECK(*capacity > 0.2);
  CHECK(*capacity < 2);
  replicas[1].role = scheduler::Role::kDecode;
  CHECK(WorkflowCapacity(replicas, workflows, kExpected).status().message() ==
        "replica half only prefills or only decodes: workflows are dispatched to replicas that do "
        "both");
}

TEST_CASE("equal replicas leave round-robin nothing to lose") {
  const std::vector<ReplicaSetup> replicas = {Replica("a", 2), Replica("b", 2)};
  for (const double rate : {0.2, 0.6, 1.5}) {
    const std::vector<Workflow> workflows = Generate(replicas, rate, 300);
    const auto plain = SimulateWorkflows(replicas, workflows, {}, {}, kExpected);
    scheduler::TuningOptions tuning;
    tuning.tuned = true;
    const auto tuned = SimulateWorkflows(replicas, workflows, {}, tuning, kExpected);
    REQUIRE(tuned.ok());
    INFO("rate " << rate);
    CHECK(tuned->attainment >= plain->attainment - std::max(0.05 * plain->attainment, 0.01));
    CHECK(tuned->p95_seconds <= 1.05 * plain->p95_seconds);
  }
}

}  // namespace tessera::tests
