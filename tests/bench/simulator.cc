// How fast the simulator is: requests with the lengths of conversations on ten replicas of one
// device each, at 85 % and at 110 % of what the cost model says they serve.
//
//   tests/bench/run simulator [TRACE.csv]
//
// Bar: 20,000 requests per second of one core's time, at both loads. Without a trace the lengths
// are those of deploy/workloads/azure_conversation.yaml.
#include "scheduler/simulator/simulator.h"

#include <cstdio>
#include <ctime>
#include <string>

#include "proto/document.h"
#include "proto/file_text.h"
#include "scheduler/simulator/arrivals.h"
#include "scheduler/simulator/report.h"
#include "tests/scheduler/cost/shapes.h"

namespace tessera::tests {
namespace {

constexpr int kReplicas = 10;
constexpr int64_t kRequests = 40'000;
constexpr double kBar = 20'000;

double CpuSeconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

scheduler::DeviceSpec A100() {
  scheduler::DeviceSpec device = Device("A100-80", 80, 312, 2039);
  device.compute_efficiency = 0.77;
  device.memory_efficiency = 0.78;
  return device;
}

scheduler::ReplicaSpec OneDevice(const scheduler::ModelShape& model,
                                 const scheduler::DeviceSpec* device) {
  scheduler::StageSpec stage;
  stage.ranks = {device};
  stage.layers = model.layers;
  stage.holds_embedding = stage.holds_head = true;
  scheduler::ReplicaSpec replica;
  replica.stages = {stage};
  return replica;
}

absl::StatusOr<scheduler::WorkloadSamples> Lengths(int argc, char** argv) {
  v1::Workload workload;
  if (argc > 1) {
    const absl::StatusOr<std::string> text = ReadFileText(argv[1], int64_t{1} << 30);
    if (!text.ok()) return text.status();
    const auto trace = scheduler::ParseTrace(*text, argv[1]);
    if (!trace.ok()) return trace.status();
    return scheduler::SamplesOf(workload, *trace, 0, argv[1]);
  }
  const std::string file = "deploy/workloads/azure_conversation.yaml";
  if (absl::Status s = ReadDocumentFile(file, &workload); !s.ok()) return s;
  return scheduler::SamplesOf(workload, {}, 0, file);
}

// What one call of the batcher costs with `rows` sequences that decode.
double PlanStepSeconds(int rows) {
  scheduler::BatchLimits limits;
  limits.total_blocks = 1 << 20;
  std::vector<scheduler::RunningSequence> running;
  for (int i = 0; i < rows; ++i) running.push_back({1200 + i, 1199 + i, 80, 80, false});
  scheduler::StepPlan plan;
  constexpr int kCalls = 20'000;
  const double start = CpuSeconds();
  for (int i = 0; i < kCalls; ++i) {
    running[static_cast<size_t>(i % rows)].held_blocks = 70 + i % 10;
    PlanStep(limits, {running, {}, 1 << 19}, &plan);
  }
  return (CpuSeconds() - start) / kCalls;
}

int Main(int argc, char** argv) {
  const auto lengths = Lengths(argc, argv);
  if (!lengths.ok()) {
    std::fprintf(stderr, "%s\n", lengths.status().ToString().c_str());
    return 1;
  }
  const scheduler::ModelShape model = Llama3_8B();
  const scheduler::DeviceSpec device = A100();
  const scheduler::ReplicaSpec spec = OneDevice(model, &device);
  scheduler::ReplicaOptions options;
  const scheduler::ReplicaRate rate =
      CapacityOf(model, spec, scheduler::MomentsOf(lengths->samples), options);
  std::printf("asking the batcher costs %.2f us with 64 sequences, %.2f us with 256\n",
              1e6 * PlanStepSeconds(64), 1e6 * PlanStepSeconds(256));
  bool met = true;
  for (const double load : {0.85, 1.10}) {
    scheduler::SimulationSetup setup;
    for (int i = 0; i < kReplicas; ++i) {
      scheduler::ReplicaSetup replica;
      replica.name = "r" + std::to_string(i);
      replica.cost = scheduler::MakeModelCostTable(model, spec);
      replica.limits.total_blocks = static_cast<int64_t>(rate.kv_capacity_tokens) / 16;
      setup.replicas.push_back(replica);
    }
    const double arrivals = load * kReplicas * rate.requests_per_second;
    setup.requests = RequestsFromProcess({arrivals, 1, kRequests, 11}, lengths->samples);
    const auto router = scheduler::MakeRouterDispatcher();
    const double start = CpuSeconds();
    const auto result = Simulate(setup, router.get());
    const double seconds = CpuSeconds() - start;
    if (!result.ok()) {
      std::fprintf(stderr, "%s\n", result.status().ToString().c_str());
      return 1;
    }
    const scheduler::SimulationReport report = ReportOf(*result, {});
    int64_t plans = 0, steps = 0, leapt = 0;
    for (const scheduler::ReplicaCounters& c : result->counters) {
      plans += c.plans, steps += c.steps, leapt += c.leapt_steps;
    }
    const double speed = static_cast<double>(kRequests) / seconds;
    std::printf(
        "%3.0f %% load, %.1f requests/s: %.0f requests simulated per second of a core (bar %.0f); "
        "%.1f steps per request, %.0f %% leapt, batcher asked %.2f times; "
        "served %.0f %% of the predicted capacity, TTFT p50 %.2f s, TPOT "
        "p50 %.1f ms, %d preemptions\n",
        100 * load, arrivals, speed, kBar, static_cast<double>(steps) / kRequests,
        100.0 * static_cast<double>(leapt) / static_cast<double>(steps),
        static_cast<double>(plans) / kRequests,
        100 * report.requests_per_second / (kReplicas * rate.requests_per_second), report.ttft.p50,
        1e3 * report.tpot.p50, static_cast<int>(report.preemptions));
    met &= speed >= kBar;
  }
  return met ? 0 : 1;
}

}  // namespace
}  // namespace tessera::tests

int main(int argc, char** argv) { return tessera::tests::Main(argc, argv); }
