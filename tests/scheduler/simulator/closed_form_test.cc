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
  // As published, in ms: prefill a, b, c; decode of fewer than 95 rows a, b, c; of more.
  const struct {
    const char* name;
    double prefill[3], decode[3], large[3];
  } published[] = {
      {"13B-TP1", {18.10, .10191, 7.12e-6}, {19.93, 6.27e-4, .03851}, {7.17, 5.80e-4, .15831}},
      {"13B-TP2", {14.74, .06858, 2.45e-6}, {13.29, 3.41e-4, .06296}, {10.64, 3.12e-4, .08563}},
      {"66B-TP4", {29.44, .15135, 8.32e-6}, {30.76, 4.52e-4, .06328}, {27.47, 4.05e-4, .12481}},
      {"66B-TP8", {25.49, .10659, 3.39e-6}, {23.16, 2.27e-4, .04801}, {21.72, 3.76e-4, .08979}},
  };
  for (const auto& of : published) {
    INFO(of.name);
    const auto fit = scheduler::DistServeLatencies(of.name);
    REQUIRE(fit.ok());
    const auto table = scheduler::MakeFittedCostTable(*fit);
    const auto ms = [&](const scheduler::StepWork& work) {
      scheduler::StageTime time;
      table->Step(work, {&time, 1});
      CHECK(time.hop_seconds == 0);
      return time.stage_seconds * 1e3;
    };
    // a + b * len + c * len^2; a + b * contexts + c * rows.
    CHECK(ms(scheduler::PrefillWork(1000, 0)) ==
          Approx(of.prefill[0] + of.prefill[1] * 1000 + of.prefill[2] * 1e6).epsilon(1e-12));
    for (const double rows : {10, 94})
      CHECK(ms(scheduler::DecodeWork(rows, 1000)) ==
            Approx(of.decode[0] + of.decode[1] * 1000 * rows + of.decode[2] * rows).epsilon(1e-12));
    for (const double rows : {95, 200})
      CHECK(ms(scheduler::DecodeWork(rows, 1000)) ==
            Approx(of.large[0] + of.large[1] * 1000 * rows + of.large[2] * rows).epsilon(1e-12));
  }
  CHECK(scheduler::DistServeLatencies("7B").status().message() ==
        "there is no fit called \"7B\"; there are 13B-TP1, 13B-TP2, 66B-TP4, 66B-TP8");
}

}  // namespace tessera::tests
