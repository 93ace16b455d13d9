// Who chooses. That it is as in the daemon: tests/coordinator/routing_trace_test.
#include "scheduler/simulator/dispatcher.h"

#include <catch2/catch.hpp>
#include <map>
#include <utility>

namespace tessera::tests {
namespace {

using scheduler::PairShare;
using scheduler::ReplicaLoad;
using scheduler::Route;
using scheduler::SimulatedRequest;

std::vector<ReplicaLoad> Ready(size_t count) {
  std::vector<ReplicaLoad> loads(count);
  for (ReplicaLoad& load : loads) load.ready = true;
  return loads;
}

}  // namespace

TEST_CASE("what one replica prefills goes to its partners only, by the shares of the pairs") {
  std::vector<ReplicaLoad> loads = Ready(4);
  for (const size_t r : {0, 1}) loads[r].can_decode = false;
  for (const size_t r : {2, 3}) loads[r].can_prefill = false;
  const auto dispatcher =
      scheduler::MakePlanDispatcher({{0, {{0, 2, 0.3}, {0, 3, 0.3}, {1, 3, 0.4}}}});
  std::map<std::pair<int, int>, int> routed;
  SimulatedRequest request;
  request.output_tokens = 2;  // a single one would be prefill's own
  const auto route = [&](int requests) {
    for (int i = 0; i < requests; ++i) {
      const Route got = dispatcher->Choose(loads, request, 0);
      ++routed[{got.prefill_replica, got.decode_replica}];
    }
  };
  route(1000);
  CHECK(std::abs(routed[{0, 2}] - 300) <= 20);
  CHECK(std::abs(routed[{0, 3}] - 300) <= 20);
  CHECK(std::abs(routed[{1, 3}] - 400) <= 20);
  CHECK(routed[{1, 2}] == 0);
  loads[3].ready = false;  // the only partner of 1, which serves alone by load then
  loads[0].queued_prompt_tokens = 1'000'000;
  route(100);
  CHECK(routed[{1, 1}] == 100);
  CHECK(routed[{1, 2}] == 0);
}

TEST_CASE("other shares hold from their time on") {
  const auto dispatcher =
      scheduler::MakePlanDispatcher({{10, {{1, 1, 1}}}, {0, {{0, 0, 1}}}, {20, {}}});
  const std::vector<ReplicaLoad> loads = Ready(2);
  CHECK(dispatcher->Choose(loads, SimulatedRequest(), 0).prefill_replica == 0);
  CHECK(dispatcher->Choose(loads, SimulatedRequest(), 9.9).prefill_replica == 0);
  CHECK(dispatcher->Choose(loads, SimulatedRequest(), 10).prefill_replica == 1);
  CHECK(dispatcher->Choose(loads, SimulatedRequest(), 20).prefill_replica == 0);
}

}  // namespace tessera::tests
