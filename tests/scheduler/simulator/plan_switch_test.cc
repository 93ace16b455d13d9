// Plans that follow each other in one simulation.
#include "scheduler/simulator/plan_switch.h"

#include <catch2/catch.hpp>

#include "tests/scheduler/simulator/tables.h"

namespace tessera::tests {
namespace {

using scheduler::PlanReplicas;
using scheduler::PlanTimeline;
using scheduler::ReplicaSetup;
using scheduler::Role;
using scheduler::SimulatedRequest;

// 10 ms per step and token; nothing else counts.
ReplicaSetup Replica(const std::string& name, Role role = Role::kBoth) {
  PlainFigures figures;
  figures.base = 0.010;
  ReplicaSetup setup = PlainReplica(name, figures);
  setup.role = role;
  return setup;
}

PlanReplicas Plan(std::vector<ReplicaSetup> replicas, double usd_per_hour) {
  PlanReplicas plan;
  for (int i = 0; i < static_cast<int>(replicas.size()); ++i)
    plan.shares.push_back({i, i, 1.0 / static_cast<double>(replicas.size())});
  plan.replicas = std::move(replicas);
  plan.usd_per_hour = usd_per_hour;
  return plan;
}

scheduler::SimulationResult Run(const PlanTimeline& timeline,
                                const std::vector<SimulatedRequest>& requests) {
  scheduler::SimulationSetup setup;
  setup.check_invariants = true;
  setup.replicas = timeline.replicas.replicas;
  setup.transfers = timeline.replicas.transfers;
  setup.changes = timeline.changes;
  setup.requests = requests;
  const auto dispatcher = scheduler::MakePlanDispatcher(timeline.shares);
  auto result = Simulate(setup, dispatcher.get());
  INFO(result.status());
  REQUIRE(result.ok());
  return *std::move(result);
}

std::vector<SimulatedRequest> OncePerSecond(int count, int64_t output) {
  std::vector<SimulatedRequest> requests(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    requests[static_cast<size_t>(i)].arrival_seconds = i + 0.5;
    requests[static_cast<size_t>(i)].output_tokens = output;
  }
  return requests;
}

}  // namespace

TEST_CASE("a replica stays, one goes, one comes when its weights are there") {
  PlanTimeline timeline = scheduler::StartWith(Plan({Replica("r0"), Replica("r1")}, 4));
  const PlanReplicas next = Plan({Replica("r0"), Replica("r1")}, 2);
  REQUIRE(
      SwitchTo(next, std::vector<scheduler::ReplicaSwitch>{{-1, 20}, {1, 0}}, 30, &timeline).ok());
  REQUIRE(timeline.replicas.replicas.size() == 3);
  CHECK(timeline.replicas.replicas[2].name == "r0'");
  CHECK(timeline.running == std::vector<int>{2, 1});
  CHECK(timeline.settled_seconds == 50);
  const auto result = Run(timeline, OncePerSecond(100, 100));  // a second each: nobody waits
  std::vector<int> early(3, 0), between(3, 0), late(3, 0);
  for (size_t i = 0; i < result.requests.size(); ++i) {
    REQUIRE(result.outcomes[i].fate == scheduler::Fate::kFinished);
    const double at = result.requests[i].arrival_seconds;
    // What r0 was at when it went ended elsewhere.
    const bool moved = result.outcomes[i].attempts > 1;
    CHECK((!moved || at > 28));
    ++(at < 28   ? early
       : at < 50 ? between
                 : late)[static_cast<size_t>(result.outcomes[i].decode_replica)];
  }
  CHECK(early[0] >= 12);
  CHECK(early[2] == 0);
  CHECK(between[0] <= 1);
  CHECK(between[1] >= 20);
  CHECK(between[2] == 0);
  CHECK(late[0] == 0);
  CHECK(late[2] >= 20);
  CHECK(scheduler::MeanUsdPerHour(timeline, 60) == Approx(3));
  CHECK(scheduler::MeanUsdPerHour(timeline, 15) == Approx(4));
}

TEST_CASE("nothing serves while everything loads: requests fail, as at the coordinator") {
  PlanTimeline timeline = scheduler::StartWith(Plan({Replica("r0")}, 0));
  REQUIRE(SwitchTo(Plan({Replica("r0")}, 0), std::vector<scheduler::ReplicaSwitch>{{-1, 10}}, 20,
                   &timeline)
              .ok());
  const auto result = Run(timeline, OncePerSecond(60, 20));
  for (size_t i = 0; i < result.requests.size(); ++i) {
    const double at = result.requests[i].arrival_seconds;
    CHECK((result.outcomes[i].fate == scheduler::Fate::kFinished) == (at < 20 || at >= 30));
  }
}

TEST_CASE("KV goes over the links of the new plan too") {
  const auto split = [](const char* link, double bytes) {
    PlanReplicas plan = Plan({Replica("p", Role::kPrefill), Replica("d", Role::kDecode)}, 0);
    plan.shares = {{0, 1, 1.0}};
    plan.transfers.links = {{link, 1e6}};
    plan.transfers.routes.resize(4);
    plan.transfers.routes[1] = {{bytes, 0, {0}}};
    return plan;
  };
  PlanTimeline timeline = scheduler::StartWith(split("a > b", 1000));
  REQUIRE(SwitchTo(split("a > c", 2000), std::vector<scheduler::ReplicaSwitch>{{0, 0}, {-1, 1}}, 10,
                   &timeline)
              .ok());
  const auto result = Run(timeline, OncePerSecond(20, 3));
  REQUIRE(result.links.size() == 2);
  CHECK(result.links[1].name == "a > c");
  CHECK(result.link_bytes[0] == Approx(10 * 1000));
  CHECK(result.link_bytes[1] == Approx(9 * 2000));
  CHECK(result.outcomes[15].finished_seconds == Approx(15.5 + 0.010 + 0.002 + 0.020));
}

TEST_CASE("no switch while the one before is going on") {
  PlanTimeline timeline = scheduler::StartWith(Plan({Replica("r0")}, 0));
  const PlanReplicas next = Plan({Replica("r0")}, 0);
  const std::vector<scheduler::ReplicaSwitch> loads = {{-1, 10}};
  REQUIRE(SwitchTo(next, loads, 20, &timeline).ok());
  CHECK(SwitchTo(next, loads, 29, &timeline).message() ==
        "at 29 s the plan before it is still being loaded, until 30 s: switch later");
  CHECK(SwitchTo(next, loads, 30, &timeline).ok());
}

}  // namespace tessera::tests
