// What stops a leap, one kind at a time: two leaps where there would be one, and the same times as
// without leaps.
#include <catch2/catch.hpp>

#include "scheduler/simulator/simulator.h"
#include "tests/scheduler/simulator/tables.h"

namespace tessera::tests {
namespace {

using scheduler::ReplicaLoad;
using scheduler::ReplicaSetup;
using scheduler::Role;
using scheduler::ScheduledChange;
using scheduler::SimulatedRequest;
using scheduler::SimulationResult;
using scheduler::SimulationSetup;

// By the request's class: a replica that does both, or a pair of replicas.
class ByClass : public scheduler::Dispatcher {
 public:
  scheduler::Route Choose(std::span<const ReplicaLoad>, const SimulatedRequest& request,
                          double) override {
    if (request.request_class == 0) return {0, 0, 0};
    return {1, 2, 0};
  }
};

SimulatedRequest Request(double arrival, int64_t prompt, int64_t output, int32_t to = 0) {
  SimulatedRequest request;
  request.arrival_seconds = arrival;
  request.prompt_tokens = prompt;
  request.output_tokens = output;
  request.request_class = to;
  return request;
}

// One replica of 10 ms per step that decodes 100 tokens from 0.01 s on; and a pair beside it.
SimulationSetup Decoding() {
  PlainFigures figures;
  figures.base = 0.010;
  SimulationSetup setup;
  setup.check_invariants = true;
  for (const char* name : {"whole", "prefill", "decode"})
    setup.replicas.push_back(PlainReplica(name, figures));
  setup.replicas[1].role = Role::kPrefill;
  setup.replicas[2].role = Role::kDecode;
  setup.requests = {Request(0, 10, 101)};
  return setup;
}

SimulationResult Run(const SimulationSetup& setup) {
  ByClass dispatcher;
  auto result = Simulate(setup, &dispatcher);
  INFO(result.status());
  REQUIRE(result.ok());
  return *std::move(result);
}

// Leaps of a replica; the outcomes are those of stepping.
int64_t Leaps(SimulationSetup setup, size_t replica = 0) {
  const SimulationResult leaping = Run(setup);
  setup.leaps = false;
  const SimulationResult stepping = Run(setup);
  CHECK(stepping.counters[replica].leaps == 0);
  for (size_t i = 0; i < leaping.outcomes.size(); ++i) {
    CHECK(leaping.outcomes[i].finished_seconds ==
          Approx(stepping.outcomes[i].finished_seconds).epsilon(1e-9));
  }
  return leaping.counters[replica].leaps;
}

}  // namespace

TEST_CASE("nothing stops a leap before the last token") {
  CHECK(Leaps(Decoding()) == 1);
  CHECK(Run(Decoding()).counters[0].leapt_steps == 100);
}

TEST_CASE("an arrival stops it, and chunks are not leapt") {
  SimulationSetup setup = Decoding();
  setup.replicas[0].limits.max_batched_tokens = 64;
  setup.requests.push_back(Request(0.505, 150, 20));  // three chunks
  CHECK(Leaps(setup) == 3);                           // before it, both, and the first alone
  const SimulationResult result = Run(setup);
  CHECK(result.counters[0].steps - result.counters[0].leapt_steps == 1 + 3);
}

TEST_CASE("a finish stops it") {
  SimulationSetup setup = Decoding();
  setup.requests.push_back(Request(0, 10, 51));
  CHECK(Leaps(setup) == 2);
}

TEST_CASE("a shortage of blocks stops it") {
  SimulationSetup setup = Decoding();
  // Two that are expected to be short, as the first is.
  setup.requests = {Request(0, 10, 3), Request(0.1, 10, 101), Request(0.1, 10, 101)};
  setup.replicas[0].limits.total_blocks = 10;  // 160 tokens: not enough for both
  CHECK(Leaps(setup) > 2);
  CHECK(Run(setup).counters[0].preemptions > 0);
}

TEST_CASE("a transfer stops it: room that is reserved, KV that has arrived") {
  SimulationSetup setup = Decoding();
  setup.requests = {Request(0, 10, 102, 1), Request(0.505, 10, 2, 1)};
  setup.transfers.links = {{"p > d", 1e3}};
  setup.transfers.routes.resize(9);
  setup.transfers.routes[1 * 3 + 2] = {{10, 0, {0}}};
  // Until the second asks for room, until its KV is there, and behind it.
  CHECK(Leaps(setup, 2) >= 3);
  setup.requests.pop_back();
  CHECK(Leaps(setup, 2) == 1);
}

TEST_CASE("a straggler and a loss stop it") {
  SimulationSetup setup = Decoding();
  ScheduledChange slow;
  slow.at_seconds = 0.505;
  slow.kind = ScheduledChange::Kind::kSlow;
  slow.factor = 2;
  setup.changes = {slow};
  CHECK(Leaps(setup) == 2);
  ScheduledChange lose;
  lose.at_seconds = 0.505;
  ScheduledChange back = lose;
  back.at_seconds = 0.6;
  back.kind = ScheduledChange::Kind::kRecover;
  setup.changes = {lose, back};
  setup.requests[0].request_class = 0;
  class WhenReady : public ByClass {
    scheduler::Route Choose(std::span<const ReplicaLoad> loads, const SimulatedRequest& request,
                            double now) override {
      return loads[0].ready ? ByClass::Choose(loads, request, now) : scheduler::Route();
    }
  } dispatcher;
  const auto result = Simulate(setup, &dispatcher);
  REQUIRE(result.ok());
  CHECK(result->counters[0].leaps == 2);
}

TEST_CASE("a service level that is missed stops it, is noted, and asks for a plan") {
  for (const bool leaps : {true, false}) {
    SimulationSetup setup = Decoding();
    setup.leaps = leaps;
    setup.limits = {{0.010, 0.505}};  // the first is met to the moment
    std::vector<double> asked;
    int64_t outstanding = 0;
    setup.replan = [&](double now, std::span<const ReplicaLoad> loads) {
      asked.push_back(now);
      outstanding = loads[0].outstanding_output_tokens;
      return std::vector<ScheduledChange>();
    };
    const SimulationResult result = Run(setup);
    CHECK(result.outcomes[0].first_token_missed_seconds == -1);
    CHECK(result.outcomes[0].last_token_missed_seconds == Approx(0.505));
    REQUIRE(asked.size() == 1);
    CHECK(outstanding == 101 - 50);
    CHECK(result.counters[0].leaps == (leaps ? 2 : 0));
    setup.limits = {{}, {0.001, 0.002}};  // of another class
    asked.clear();
    CHECK(Run(setup).outcomes[0].last_token_missed_seconds == -1);
    CHECK(asked.empty());
  }
}

}  // namespace tessera::tests
