// Engine and simulator are asked the same: with steps of constant time they run the same steps at
// the same times, with one lane and with several.
#include <catch2/catch.hpp>
#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "scheduler/simulator/replica.h"
#include "tests/worker/engine/engine_harness.h"
#include "tests/worker/engine/scripted_executor.h"

namespace tessera::worker {
namespace {

using Shape = ScriptedExecutor::Shape;

constexpr double kStageSeconds = 1;

struct Arrival {
  double seconds = 0;
  int64_t prompt_tokens = 0;
  int32_t output_tokens = 0;
};

struct Workload {
  int lanes = 1;  // and stages
  scheduler::BatchLimits limits;
  std::vector<Arrival> arrivals;
};

struct Run {
  std::vector<Shape> steps;
  std::vector<double> end_seconds;  // by arrival: of its last token
  int64_t preemptions = 0;
};

Workload MakeWorkload(uint32_t seed, int lanes) {
  std::mt19937 random(seed);
  const auto from = [&](int low, int high) {
    return low + static_cast<int>(random() % static_cast<uint32_t>(high - low + 1));
  };
  Workload workload;
  workload.lanes = lanes;
  workload.limits.block_tokens = 4;
  workload.limits.max_batched_tokens = from(8, 40);
  workload.limits.max_sequences = from(2, 8);
  workload.limits.max_logit_rows = workload.limits.max_sequences;
  workload.limits.total_blocks = from(12, 60);
  // Steps end at whole seconds, so no two things happen at one time.
  double seconds = 0.37;
  for (int i = 0; i < 40; ++i) {
    seconds += from(0, 3) + 0.001;
    workload.arrivals.push_back({seconds, from(1, 30), from(1, 15)});
  }
  return workload;
}

// Stages of constant time, each serving one step at a time.
class ConstantTable final : public scheduler::CostTable {
 public:
  ConstantTable(int stages, std::vector<Shape>* steps) : stages_(stages), steps_(*steps) {}

  int stages() const override { return stages_; }
  bool linear_in_context() const override { return false; }
  void Step(const scheduler::StepWork& work, std::span<scheduler::StageTime> times) const override {
    for (scheduler::StageTime& time : times) time = {kStageSeconds, 0};
    // A chunk of one row that ends its prompt is a decoding row to both.
    steps_.push_back({static_cast<int64_t>(work.decode_rows),
                      static_cast<int64_t>(work.prefill_tokens),
                      static_cast<int64_t>(work.sampled_rows)});
  }

 private:
  const int stages_;
  std::vector<Shape>& steps_;
};

class EndTimes final : public scheduler::ReplicaListener {
 public:
  explicit EndTimes(std::vector<double>* seconds) : seconds_(*seconds) {}

  void OnFinished(int, const scheduler::SimulatedSequence& sequence, double now) override {
    seconds_[static_cast<size_t>(sequence.request)] = now;
  }
  void OnStarted(int, const scheduler::SimulatedSequence&, double, double) override {}
  void OnFirstToken(int, const scheduler::SimulatedSequence&, double) override {}
  void OnPreempted(int, const scheduler::SimulatedSequence&, double) override {}
  void OnNeverFits(int, const scheduler::SimulatedSequence&, double) override {}

 private:
  std::vector<double>& seconds_;
};

Run Simulate(const Workload& workload) {
  Run run;
  run.end_seconds.assign(workload.arrivals.size(), -1);
  EndTimes listener(&run.end_seconds);
  scheduler::ReplicaSetup setup;
  setup.name = "r0";
  setup.cost = std::make_shared<ConstantTable>(workload.lanes, &run.steps);
  setup.limits = workload.limits;
  setup.micro_batches = workload.lanes;
  scheduler::SteppingOptions stepping;
  stepping.leaps = false;
  stepping.check_invariants = true;
  scheduler::SimulatedReplica replica(0, setup, stepping, &listener);
  for (size_t next = 0;
       next < workload.arrivals.size() || std::isfinite(replica.next_end_seconds());) {
    const double arrival =
        next < workload.arrivals.size() ? workload.arrivals[next].seconds : INFINITY;
    if (replica.next_end_seconds() < arrival) {
      const double now = replica.next_end_seconds();
      replica.EndSteps();
      replica.Start(now);
      continue;
    }
    scheduler::SimulatedSequence sequence;
    sequence.request = static_cast<int32_t>(next);
    sequence.order = static_cast<int64_t>(next);
    sequence.known_tokens = workload.arrivals[next].prompt_tokens;
    sequence.left_tokens = workload.arrivals[next].output_tokens;
    sequence.unspent_tokens = sequence.left_tokens;
    replica.Submit(sequence, arrival);
    replica.Start(arrival);
    ++next;
  }
  run.preemptions = replica.counters().preemptions;
  return run;
}

Run Serve(const Workload& workload) {
  EngineOptions options = SmallOptions();
  options.limits = workload.limits;
  options.prefix_cache = false;
  auto executor =
      std::make_unique<ScriptedExecutor>(workload.lanes, workload.limits.total_blocks,
                                         workload.limits.block_tokens, options.vocabulary);
  ScriptedExecutor* workers = executor.get();
  EngineCore core(options, std::move(executor));
  Run run;
  run.end_seconds.assign(workload.arrivals.size(), -1);
  EngineCore::Events events;
  std::deque<double> ends;  // of steps in flight
  std::vector<double> stage_free(static_cast<size_t>(workload.lanes), 0);
  const auto begin = [&](double now) {
    const size_t before = workers->shapes.size();
    core.BeginSteps(now, &events);
    for (size_t i = before; i < workers->shapes.size(); ++i) {
      double at = now;
      for (double& free : stage_free) at = free = std::max(at, free) + kStageSeconds;
      ends.push_back(at);
    }
  };
  for (size_t next = 0; next < workload.arrivals.size() || !ends.empty();) {
    const double arrival =
        next < workload.arrivals.size() ? workload.arrivals[next].seconds : INFINITY;
    const double now = ends.empty() ? arrival : std::min(arrival, ends.front());
    if (now < arrival) {
      ends.pop_front();
      workers->RunOldest();
      core.EndStep([now] { return now; }, &events);
    } else {
      const Arrival& a = workload.arrivals[next];
      v1::Submit submit = MakeSubmit(next, Prompt(a.prompt_tokens, 1), a.output_tokens);
      submit.set_ignore_eos(true);
      core.Submit(std::move(submit), now, &events);
      ++next;
    }
    begin(now);
    for (const v1::TokenEvent& event : events) {
      REQUIRE(event.finish() != v1::FINISH_REASON_ERROR);
      if (event.finish() == v1::FINISH_REASON_LENGTH) run.end_seconds[event.submission_id()] = now;
    }
    events.clear();
  }
  REQUIRE_FALSE(core.Busy());
  run.steps = workers->shapes;
  run.preemptions = static_cast<int64_t>(core.load().preemptions());
  return run;
}

TEST_CASE("the engine runs the steps that the simulator says") {
  int64_t preemptions = 0;
  for (const int lanes : {1, 2, 3}) {
    for (uint32_t seed = 0; seed < 20; ++seed) {
      INFO("lanes " << lanes << ", seed " << seed);
      const Workload workload = MakeWorkload(seed, lanes);
      const Run simulated = Simulate(workload), served = Serve(workload);
      REQUIRE(served.steps.size() == simulated.steps.size());
      for (size_t i = 0; i < served.steps.size(); ++i) {
        INFO("step " << i);
        REQUIRE(served.steps[i].single_rows + served.steps[i].chunk_rows ==
                simulated.steps[i].single_rows + simulated.steps[i].chunk_rows);
        REQUIRE(served.steps[i].draws == simulated.steps[i].draws);
      }
      CHECK(served.preemptions == simulated.preemptions);
      preemptions += served.preemptions;
      for (size_t i = 0; i < served.end_seconds.size(); ++i) {
        INFO("request " << i);
        REQUIRE(served.end_seconds[i] >= 0);
        REQUIRE(served.end_seconds[i] == Approx(simulated.end_seconds[i]));
      }
    }
  }
  CHECK(preemptions > 0);  // else the workloads are too easy to tell
}

}  // namespace
}  // namespace tessera::worker
