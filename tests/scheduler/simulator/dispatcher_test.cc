// Who chooses: the plan's shares are kept as the coordinator keeps them.
#include "scheduler/simulator/dispatcher.h"

#include <catch2/catch.hpp>
#include <map>
#include <utility>

#include "coordinator/flow/routing_shares.h"
#include "scheduler/simulator/arrivals.h"

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

TEST_CASE("every choice is the coordinator's, shares and losses included") {
  for (const uint64_t seed : {1, 2, 3, 4, 5}) {
    scheduler::Random random(seed);
    const std::vector<std::string> names = {"a", "b", "c", "d"};
    std::vector<PairShare> pairs;
    coordinator::RoutingShares::Shares by_name;
    for (int i = 0; i < 3; ++i) {  // the last has none
      pairs.push_back({i, i, 0.05 + 0.3 * random.Uniform()});
      by_name[names[static_cast<size_t>(i)]] = pairs.back().share;
    }
    coordinator::RoutingShares theirs(by_name);
    const auto ours = scheduler::MakePlanDispatcher({{0, pairs}});
    std::vector<ReplicaLoad> loads = Ready(4);
    int held_back = 0;
    for (int i = 0; i < 2000; ++i) {
      for (ReplicaLoad& load : loads) {
        load.queued_prompt_tokens = random.Integer(0, 20'000);
        load.outstanding_output_tokens = random.Integer(0, 5'000);
        if (random.Uniform() > 0.002) continue;
        load.ready = !load.ready;
        if (load.ready) theirs.Restart();
      }
      SimulatedRequest request;
      request.prompt_tokens = random.Integer(1, 4000);
      request.output_tokens = random.Integer(1, 400);
      std::vector<ReplicaLoad> theirs_to_take = loads;
      theirs.Restrict(names, theirs_to_take);
      const scheduler::RouteRequest asked = {request.prompt_tokens, request.output_tokens};
      const Route expected = ChooseReplica(theirs_to_take, asked);
      const Route got = ours->Choose(loads, request, i);
      REQUIRE(got.prefill_replica == expected.prefill_replica);
      REQUIRE(got.decode_replica == expected.decode_replica);
      held_back += got.prefill_replica != ChooseReplica(loads, asked).prefill_replica ? 1 : 0;
      if (got.prefill_replica >= 0) theirs.Note(names[static_cast<size_t>(got.prefill_replica)]);
    }
    CHECK(held_back > 200);  // by their shares
  }
}

TEST_CASE("what one replica prefills goes to its partners only, by the shares of the pairs") {
  std::vector<ReplicaLoad> loads = Ready(4);
  for (const size_t r : {0, 1}) loads[r].can_decode = false;
  for (const size_t r : {2, 3}) loads[r].can_prefill = false;
  const auto dispatcher =
      scheduler::MakePlanDispatcher({{0, {{0, 2, 0.3}, {0, 3, 0.3}, {1, 3, 0.4}}}});
  std::map<std::pair<int, int>, int> routed;
  const auto route = [&](int requests) {
    for (int i = 0; i < requests; ++i) {
      const Route got = dispatcher->Choose(loads, SimulatedRequest(), 0);
      ++routed[{got.prefill_replica, got.decode_replica}];
    }
  };
  route(1000);
  CHECK(std::abs(routed[{0, 2}] - 300) <= 20);
  CHECK(std::abs(routed[{0, 3}] - 300) <= 20);
  CHECK(std::abs(routed[{1, 3}] - 400) <= 20);
  CHECK(routed[{1, 2}] == 0);
  loads[3].ready = false;  // the only partner of 1
  route(100);
  CHECK(routed[{1, 2}] >= 30);
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
