// Simulated replicas whose steps try drafts, beside the cost model's formula.
#include <catch2/catch.hpp>
#include <limits>
#include <memory>

#include "scheduler/cost/replica_cost.h"
#include "tests/scheduler/cost/shapes.h"
#include "tests/scheduler/simulator/tables.h"

namespace tessera::tests {
namespace {

using scheduler::DraftOrigin;
using scheduler::ModelShape;
using scheduler::SimulationResult;
using scheduler::SimulationSetup;

const double kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kPrompt = 100, kAnswer = 1500;

ModelShape Drafted(ModelShape model, int most, double acceptance) {
  model.drafts = {DraftOrigin::kText, most, acceptance, kInfinity, kInfinity};
  return model;
}

// Three of four layers keep a state.
ModelShape Hybrid() {
  ModelShape model = Llama3_8B();
  LayerShape delta = model.kinds[0];
  delta.heads = delta.kv_heads = delta.head_dim = 0;
  delta.key_groups = 16;
  delta.group_columns = 512;
  delta.group_values = 256;
  delta.group_state_elements = 50000;
  model.kinds.push_back(delta);
  for (int layer = 0; layer < model.layers; ++layer)
    model.kind_of_layer.push_back(layer % 4 == 3 ? 0 : 1);
  return model;
}

scheduler::ReplicaSpec Replica(const scheduler::DeviceSpec* device, int stages) {
  scheduler::ReplicaSpec replica;
  for (int j = 0; j < stages; ++j) {
    scheduler::StageSpec& stage = replica.stages.emplace_back();
    stage.ranks = {device};
    stage.first_layer = 32 / stages * j;
    stage.layers = 32 / stages;
    stage.holds_embedding = j == 0;
    stage.holds_head = j + 1 == stages;
    if (stages > 1) replica.hops.push_back({1e10, 1e-5});
  }
  return replica;
}

SimulationResult Run(const ModelShape& model, const scheduler::ReplicaSpec& replica, int requests,
                     int64_t logit_rows = 256) {
  SimulationSetup setup;
  setup.check_invariants = true;
  setup.replicas.emplace_back().name = "r";
  setup.replicas[0].cost = scheduler::MakeModelCostTable(model, replica);
  setup.replicas[0].micro_batches = static_cast<int>(replica.stages.size());
  setup.replicas[0].limits.total_blocks = 1 << 20;
  setup.replicas[0].limits.max_logit_rows = logit_rows;
  // So that each lane takes its part of the prompts.
  const auto stages = static_cast<int64_t>(replica.stages.size());
  setup.replicas[0].limits.max_batched_tokens = kPrompt * requests / stages;
  scheduler::SimulatedRequest one;
  one.prompt_tokens = kPrompt;
  one.output_tokens = kAnswer;
  setup.requests.assign(static_cast<size_t>(requests), one);
  auto dispatcher = scheduler::MakeRouterDispatcher();
  auto result = Simulate(setup, dispatcher.get());
  INFO(result.status());
  REQUIRE(result.ok());
  return *std::move(result);
}

double TpotOf(const SimulationResult& result) {
  double sum = 0;
  for (const scheduler::RequestOutcome& one : result.outcomes) {
    CHECK(one.fate == scheduler::Fate::kFinished);
    CHECK(one.output_tokens == kAnswer);
    sum += one.tpot_seconds();
  }
  return sum / static_cast<double>(result.outcomes.size());
}

}  // namespace

TEST_CASE("tokens with drafts come as fast as the formula says") {
  const scheduler::DeviceSpec device = Device("x", 800, 100, 1000);
  const int stages = GENERATE(1, 2), sequences = GENERATE(1, 8, 24);
  const bool hybrid = GENERATE(false, true);
  INFO(stages << " stages, " << sequences << " sequences" << (hybrid ? ", states" : ""));
  const ModelShape model = Drafted(hybrid ? Hybrid() : Llama3_8B(), 4, 0.6);
  const scheduler::ReplicaSpec replica = Replica(&device, stages);
  const int lanes = std::min(stages, sequences);
  const auto work = scheduler::DecodeWork(1.0 * sequences / lanes, kPrompt + kAnswer / 2.0);
  const double formula = lanes * PeriodOf(model, replica, work, lanes).seconds;
  const SimulationResult result = Run(model, replica, sequences);
  CHECK(TpotOf(result) == Approx(formula).epsilon(0.05));
  const double without = TpotOf(Run(Drafted(model, 0, 0), replica, sequences));
  CHECK(TpotOf(result) < 0.9 * without);
  CHECK(result.counters[0].output_tokens == kAnswer * sequences);
}

TEST_CASE("where no draft pays a replica is simulated as without, leaps and all") {
  const scheduler::DeviceSpec slow = Device("slow", 800, 1, 1000);
  const scheduler::ReplicaSpec replica = Replica(&slow, 1);
  const SimulationResult without = Run(Llama3_8B(), replica, 16);
  const SimulationResult with = Run(Drafted(Llama3_8B(), 6, 0.7), replica, 16);
  CHECK(with.end_seconds == without.end_seconds);
  CHECK(with.counters[0].leapt_steps == without.counters[0].leapt_steps);
  CHECK(with.counters[0].leapt_steps > 1000);
}

TEST_CASE("drafts take the rows with logits that sequences leave over") {
  const scheduler::DeviceSpec device = Device("x", 800, 1e6, 1000);
  const scheduler::ReplicaSpec replica = Replica(&device, 1);
  const ModelShape model = Drafted(Llama3_8B(), 3, 1);
  // All stand: four tokens a step, and a prompt's step gives one.
  const SimulationResult all = Run(model, replica, 8, 32);
  CHECK(all.counters[0].steps == 1 + (kAnswer - 1 + 3) / 4);
  const SimulationResult some = Run(model, replica, 8, 16);
  CHECK(some.counters[0].steps > all.counters[0].steps);
  const SimulationResult none = Run(model, replica, 8, 8);
  CHECK(none.counters[0].steps == kAnswer);
}

TEST_CASE("a request has the same tokens in every run") {
  const scheduler::DeviceSpec device = Device("x", 800, 100, 1000);
  const ModelShape model = Drafted(Llama3_8B(), 4, 0.5);
  const SimulationResult one = Run(model, Replica(&device, 1), 5);
  const SimulationResult again = Run(model, Replica(&device, 1), 5);
  CHECK(one.end_seconds == again.end_seconds);
  CHECK(one.counters[0].steps == again.counters[0].steps);
}

}  // namespace tessera::tests
