// The simulator against cases that can be computed otherwise.
#include <catch2/catch.hpp>
#include <cmath>

#include "proto/document.h"
#include "scheduler/cost/queue.h"
#include "scheduler/simulator/arrivals.h"
#include "tests/scheduler/simulator/tables.h"

namespace tessera::tests {
namespace {

using scheduler::RequestLengths;
using scheduler::SimulatedRequest;
using scheduler::SimulationResult;
using scheduler::SimulationSetup;

SimulationResult Run(const SimulationSetup& setup) {
  auto dispatcher = scheduler::MakeRouterDispatcher();
  auto result = Simulate(setup, dispatcher.get());
  INFO(result.status());
  REQUIRE(result.ok());
  return *std::move(result);
}

// One request at a time: the replica is a single server.
SimulationSetup SingleServer(double per_prompt_token, double per_output_token) {
  PlainFigures figures;
  figures.per_prefill_token = per_prompt_token;
  figures.per_row = per_output_token;
  SimulationSetup setup;
  setup.replicas = {PlainReplica("server", figures)};
  setup.replicas[0].limits.max_sequences = 1;
  setup.replicas[0].limits.max_batched_tokens = 1 << 20;
  return setup;
}

double MeanWait(const SimulationResult& result) {
  double sum = 0;
  for (size_t i = 0; i < result.requests.size(); ++i) {
    sum += result.outcomes[i].started_seconds - result.requests[i].arrival_seconds;
  }
  return sum / static_cast<double>(result.requests.size());
}

}  // namespace

TEST_CASE("three requests, computed by hand") {
  PlainFigures figures;
  figures.base = 0.010;
  figures.per_prefill_token = 0.0001;
  figures.per_row = 0.001;
  figures.per_context_token = 0.00001;
  SimulationSetup setup;
  setup.check_invariants = true;
  setup.replicas = {PlainReplica("r0", figures)};
  setup.replicas[0].limits.max_batched_tokens = 100;
  SimulatedRequest a, b, c;
  a.prompt_tokens = 80, a.output_tokens = 3;
  b.arrival_seconds = 0.005, b.prompt_tokens = 150, b.output_tokens = 2;
  c.arrival_seconds = 0.020, c.prompt_tokens = 40, c.output_tokens = 1;
  setup.requests = {a, b, c};
  const SimulationResult result = Run(setup);
  // 0: 80 tokens of a                                 10 + 8                = 18.00 ms
  // 18.00: a decodes after 80, 99 tokens of b         10 + 9.9 + 1 + 0.80   = 21.70
  // 39.70: a decodes after 81, 51 of b, 40 of c       10 + 9.1 + 1 + 0.81   = 20.91
  // 60.61: b decodes after 150                        10 + 1 + 1.50         = 12.50
  const double kMicrosecond = 1e-6;
  const auto& o = result.outcomes;
  CHECK(o[0].first_token_seconds == Approx(0.018).margin(kMicrosecond));
  CHECK(o[0].finished_seconds == Approx(0.06061).margin(kMicrosecond));
  CHECK(o[1].started_seconds == Approx(0.018).margin(kMicrosecond));
  CHECK(o[1].first_token_seconds == Approx(0.06061).margin(kMicrosecond));
  CHECK(o[1].finished_seconds == Approx(0.07311).margin(kMicrosecond));
  CHECK(o[2].started_seconds == Approx(0.0397).margin(kMicrosecond));
  CHECK(o[2].finished_seconds == Approx(0.06061).margin(kMicrosecond));
  CHECK(result.counters[0].steps == 4);
  CHECK(result.counters[0].output_tokens == 6);
  CHECK(result.counters[0].prompt_tokens == 270);
  CHECK(result.end_seconds == Approx(0.07311).margin(kMicrosecond));
}

TEST_CASE("the wait of M/D/1") {
  for (const double rho : {0.3, 0.5, 0.8}) {
    SimulationSetup setup = SingleServer(0.001, 0);
    const std::vector<RequestLengths> lengths = {{1000, 1, 1}};
    setup.requests = scheduler::RequestsFromProcess({rho, 1, 1'000'000, 7}, lengths);
    const double expected = scheduler::MeanWaitSeconds(rho, {1, 1});
    INFO("rho " << rho);
    CHECK(expected == Approx(rho / (2 * (1 - rho))));
    CHECK(MeanWait(Run(setup)) == Approx(expected).epsilon(0.02));
  }
}

TEST_CASE("the wait of M/G/1 with the lengths of conversations") {
  v1::Workload workload;
  REQUIRE(ReadDocumentFile("deploy/workloads/azure_conversation.yaml", &workload).ok());
  const auto samples = scheduler::SamplesOf(workload, {}, 0, "azure_conversation.yaml");
  REQUIRE(samples.ok());
  const double per_prompt = 0.0002, per_output = 0.005;
  scheduler::ServiceMoments service;
  for (const RequestLengths& l : samples->samples) {
    const double s =
        per_prompt * std::round(l.prompt_tokens) + per_output * (std::round(l.output_tokens) - 1);
    service.mean += l.weight * s;
    service.second += l.weight * s * s;
  }
  const double rate = 0.7 / service.mean;
  SimulationSetup setup = SingleServer(per_prompt, per_output);
  setup.requests = scheduler::RequestsFromProcess({rate, 1, 1'000'000, 3}, samples->samples);
  CHECK(MeanWait(Run(setup)) == Approx(scheduler::MeanWaitSeconds(rate, service)).epsilon(0.03));
}

TEST_CASE("DistServe's fits as a cost table") {
  const auto fit = scheduler::DistServeLatencies("13B-TP1");
  REQUIRE(fit.ok());
  const auto table = scheduler::MakeFittedCostTable(*fit);
  scheduler::StageTime time;
  table->Step(scheduler::PrefillWork(1000, 0), {&time, 1});
  CHECK(time.stage_seconds == Approx(0.01810 + 0.10191 + 0.00712));
  table->Step(scheduler::DecodeWork(10, 1000), {&time, 1});
  CHECK(time.stage_seconds == Approx(0.01993 + 6.27e-7 * 10000 + 10 * 3.851e-5));
  table->Step(scheduler::DecodeWork(100, 1000), {&time, 1});
  CHECK(time.stage_seconds == Approx(0.00717 + 5.80e-7 * 100000 + 100 * 15.831e-5));
  CHECK(scheduler::DistServeLatencies("7B").status().message() ==
        "there is no fit called \"7B\"; there are 13B-TP1, 13B-TP2, 66B-TP4, 66B-TP8");
}

}  // namespace tessera::tests
