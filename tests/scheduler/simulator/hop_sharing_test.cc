// Activations and KV on one link, computed by hand.
#include <catch2/catch.hpp>

#include "scheduler/simulator/simulator.h"
#include "tests/scheduler/simulator/tables.h"

namespace tessera::tests {
namespace {

using scheduler::ReplicaLoad;
using scheduler::ReplicaSetup;
using scheduler::Role;
using scheduler::Route;
using scheduler::SimulatedRequest;

// By the request's class: to the pipeline, or to the pair behind it.
class ByClass : public scheduler::Dispatcher {
 public:
  Route Choose(std::span<const ReplicaLoad>, const SimulatedRequest& request, double) override {
    if (request.request_class < 2) return {request.request_class, request.request_class, 0};
    return {2, 3, 0};
  }
};

// Two stages of 10 and 13 ms and hops of 2 ms, 10,000 bytes per row over link 0.
ReplicaSetup Pipeline(const std::string& name) {
  PlainFigures figures;
  figures.base = 0.010;
  figures.hop = 0.002;
  figures.stages = 2;
  ReplicaSetup setup = PlainReplica(name, figures);
  setup.hop_links = {{0}};
  setup.hop_bytes_per_row = 1e4;
  return setup;
}

// Two pipelines, and a pair whose KV takes 200 bytes per token over the same link of 1e6 bytes/s.
scheduler::SimulationSetup OneLink() {
  scheduler::SimulationSetup setup;
  setup.check_invariants = true;
  PlainFigures figures;
  figures.base = 0.010;
  figures.per_prefill_token = 0.0001;
  ReplicaSetup prefill = PlainReplica("p", figures), decode = PlainReplica("d", figures);
  prefill.role = Role::kPrefill;
  decode.role = Role::kDecode;
  setup.replicas = {Pipeline("one"), Pipeline("two"), prefill, decode};
  setup.transfers.links = {{"a > b", 1e6}};
  setup.transfers.routes.resize(16);
  setup.transfers.routes[2 * 4 + 3] = {{200, 0, {0}}};
  return setup;
}

SimulatedRequest Request(int32_t to, int64_t prompt, int64_t output) {
  SimulatedRequest request;
  request.request_class = to;
  request.prompt_tokens = prompt;
  request.output_tokens = output;
  return request;
}

scheduler::SimulationResult Run(const scheduler::SimulationSetup& setup) {
  ByClass dispatcher;
  auto result = Simulate(setup, &dispatcher);
  INFO(result.status());
  REQUIRE(result.ok());
  return *std::move(result);
}

}  // namespace

TEST_CASE("a hop alone on its link takes what the cost table says") {
  for (const bool leaps : {false, true}) {
    scheduler::SimulationSetup setup = OneLink();
    setup.leaps = leaps;
    setup.requests = {Request(0, 1, 10)};
    const auto result = Run(setup);
    CHECK(result.outcomes[0].finished_seconds == Approx(10 * 0.027));
    CHECK(result.link_bytes[0] == Approx(10 * 1e4));
  }
}

TEST_CASE("KV slows the hops of steps that start beside it, and activations slow KV") {
  for (const bool leaps : {false, true}) {
    scheduler::SimulationSetup setup = OneLink();
    setup.leaps = leaps;
    setup.requests = {Request(0, 1, 10), Request(2, 400, 3)};
    const auto result = Run(setup);
    // The pipeline sends 10,000 bytes in 27 ms; the rest of the link is the KV's, from 50 ms on.
    const double sent = 1e4 / 0.027;
    const double arrived = 0.050 + 400 * 200 / (1e6 - sent);
    CHECK(result.outcomes[1].finished_seconds == Approx(arrived + 2 * 0.010));
    // A hop gets half of the link: 10 ms more. Two steps began before, four beside the KV.
    REQUIRE(arrived > 0.054 + 3 * 0.037);
    REQUIRE(arrived < 0.054 + 4 * 0.037);
    CHECK(result.outcomes[0].finished_seconds == Approx(0.054 + 4 * 0.037 + 4 * 0.027));
    CHECK(result.link_bytes[0] == Approx(10 * 1e4 + 400 * 200));
  }
}

TEST_CASE("pipelines leave each other what they do not send") {
  for (const bool leaps : {false, true}) {
    scheduler::SimulationSetup setup = OneLink();
    setup.leaps = leaps;
    setup.requests = {Request(0, 1, 4), Request(1, 1, 8)};
    const auto result = Run(setup);
    // Their first steps find the link idle; from then on each has what the other's steps leave.
    const double sent = 1e4 / 0.027;
    const double delayed = 0.027 + 1e4 * (1 / (1e6 - sent) - 1 / 1e6);
    CHECK(result.outcomes[0].finished_seconds == Approx(0.027 + 3 * delayed));
    // The fifth step of the longer one starts at the moment in which the other has none to start.
    CHECK(result.outcomes[1].finished_seconds == Approx(0.027 + 4 * delayed + 3 * 0.027));
  }
}

TEST_CASE("incast: hops and KV that meet are senders") {
  scheduler::SimulationSetup setup = OneLink();
  setup.transfers.links[0].incast_threshold = 1;
  setup.transfers.links[0].incast_seconds_per_byte = 1e-6;
  setup.requests = {Request(0, 1, 3), Request(2, 400, 3)};
  const auto result = Run(setup);
  // Two senders at the start of the third step: half as much for both together, half of it each.
  CHECK(result.outcomes[0].finished_seconds == Approx(2 * 0.027 + 0.027 + 1e4 * (4e-6 - 1e-6)));
}

TEST_CASE("a hop over a link that there is not is refused") {
  scheduler::SimulationSetup setup = OneLink();
  setup.replicas[0].hop_links = {{1}};
  setup.requests = {Request(0, 1, 4)};
  ByClass dispatcher;
  CHECK(Simulate(setup, &dispatcher).status().message() ==
        "replica one: its activations pass link 1, but there are 1");
}

}  // namespace tessera::tests
