// Other roles for the replicas of a plan that runs: what is found against every assignment, what
// workers keep, and what it brings where the mix of prompts and answers turns round.
#include "scheduler/planner/role_search.h"

#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/document.h"
#include "scheduler/input/cluster_graph.h"
#include "scheduler/plan_change.h"
#include "scheduler/plan_check/plan_check.h"
#include "scheduler/planner/written_layout.h"
#include "scheduler/simulator/plan_replicas.h"
#include "scheduler/simulator/plan_switch.h"
#include "tests/scheduler/planner/written_input.h"

namespace tessera::scheduler {
namespace {

constexpr v1::ReplicaRole kBoth = v1::REPLICA_ROLE_BOTH, kPrefill = v1::REPLICA_ROLE_PREFILL,
                          kDecode = v1::REPLICA_ROLE_DECODE;
constexpr char kLongPrompts[] = "classes: [{lengths: [{prompt_tokens: 3000, output_tokens: 40}]}]";
constexpr char kLongAnswers[] = "classes: [{lengths: [{prompt_tokens: 200, output_tokens: 600}]}]";

// A card each; `cards` may be of several kinds.
PlannerInput Machines(const std::vector<std::string>& cards, const char* workload) {
  std::string cluster = "machines:\n";
  for (size_t i = 0; i < cards.size(); ++i) {
    absl::StrAppend(&cluster, "- {name: m", i, ", devices: [{kind: ", cards[i], "}]}\n");
  }
  cluster += "tiers: {site: {bandwidth: 100 Gbit/s, latency: 20 us}}\n";
  return tests::WrittenInput(cluster, "Llama-3-8B", workload);
}

PlannerOptions Unsimulated() {
  PlannerOptions options;
  options.simulate = false;
  return options;
}

// A replica on each machine.
v1::DeploymentPlan PlanWith(const PlannerInput& input, const std::vector<v1::ReplicaRole>& roles) {
  v1::WrittenLayout layout;
  for (size_t i = 0; i < roles.size(); ++i) {
    v1::WrittenReplica& replica = *layout.add_replicas();
    replica.set_role(roles[i]);
    v1::WrittenStage& stage = *replica.add_stages();
    stage.add_devices(absl::StrCat("m", i, "/0"));
    stage.set_layers(32);
  }
  PlannerOptions options = Unsimulated();
  options.given_search = GivenLayout(layout, "layout");
  const auto plan = MakePlan(input, options);
  return plan.ok() ? *plan : v1::DeploymentPlan();
}

std::vector<v1::ReplicaRole> RolesOf(const v1::DeploymentPlan& plan) {
  std::vector<v1::ReplicaRole> roles;
  for (const v1::Replica& replica : plan.replicas()) roles.push_back(replica.role());
  return roles;
}

// The most that any assignment of these roles serves, and one that does.
v1::DeploymentPlan BestOfAll(const PlannerInput& input, size_t replicas,
                             const std::vector<v1::ReplicaRole>& roles) {
  v1::DeploymentPlan best;
  size_t count = 1;
  for (size_t i = 0; i < replicas; ++i) count *= roles.size();
  for (size_t number = 0; number < count; ++number) {
    std::vector<v1::ReplicaRole> assigned;
    for (size_t i = 0, rest = number; i < replicas; ++i, rest /= roles.size())
      assigned.push_back(roles[rest % roles.size()]);
    const v1::DeploymentPlan plan = PlanWith(input, assigned);
    if (plan.prediction().requests_per_second() > best.prediction().requests_per_second())
      best = plan;
  }
  REQUIRE(best.prediction().requests_per_second() > 0);
  return best;
}

void CheckNothingIsRead(const v1::DeploymentPlan& from, const v1::DeploymentPlan& to) {
  CHECK(CheckPlan(to).message() == "");
  for (const ReplicaChange& replica : ChangeOf(from, to).replicas) {
    CHECK(
        (replica.kind == ReplicaChange::Kind::kKeep || replica.kind == ReplicaChange::Kind::kFlip));
    CHECK(replica.from == replica.to);
  }
}

// What a simulation finishes in each ten seconds, where the second plan takes over at `at`.
std::vector<int> Finished(const PlannerInput& input, const v1::DeploymentPlan& first,
                          const v1::DeploymentPlan& second, double at, double rate, double until,
                          int64_t prompt, int64_t output) {
  const auto graph = MakeClusterGraph(input.cluster, input.catalogue, "c.yaml");
  REQUIRE(graph.ok());
  const auto before = ReplicasOfPlan(first, *graph, {});
  const auto after = ReplicasOfPlan(second, *graph, {});
  REQUIRE(before.ok());
  REQUIRE(after.ok());
  PlanTimeline timeline = StartWith(*before);
  std::vector<ReplicaSwitch> switches;
  for (int i = 0; i < first.replicas_size(); ++i) {
    const bool stays = first.replicas(i).role() == second.replicas(i).role();
    switches.push_back(stays ? ReplicaSwitch{i, 0} : ReplicaSwitch{-1, 1});
  }
  REQUIRE(SwitchTo(*after, switches, at, &timeline).message() == "");
  SimulationSetup setup;
  setup.check_invariants = true;
  setup.replicas = timeline.replicas.replicas;
  setup.transfers = timeline.replicas.transfers;
  setup.changes = timeline.changes;
  for (int i = 0; i < static_cast<int>(rate * until); ++i) {
    SimulatedRequest& request = setup.requests.emplace_back();
    request.arrival_seconds = i / rate;
    request.prompt_tokens = prompt;
    request.output_tokens = output;
  }
  const auto dispatcher = MakePlanDispatcher(timeline.shares);
  const auto result = Simulate(setup, dispatcher.get());
  REQUIRE(result.status().message() == "");
  std::vector<int> finished(static_cast<size_t>(until / 10) + 1, 0);
  for (const RequestOutcome& outcome : result->outcomes) {
    REQUIRE(outcome.fate == Fate::kFinished);
    CHECK(outcome.output_tokens == output);
    const auto slot = static_cast<size_t>(outcome.finished_seconds / 10);
    if (slot < finished.size()) ++finished[slot];
  }
  return finished;
}

}  // namespace

TEST_CASE("roles are those of the best assignment, found by trying all of them") {
  struct Case {
    std::vector<std::string> cards;
    std::vector<v1::ReplicaRole> from;
    const char* workload;
    bool split;
  };
  const std::vector<std::string> alike = {"L40S", "L40S", "L40S"};
  const std::vector<std::string> unlike = {"RTX4090", "A6000", "L40S"};
  const std::vector<std::string> five = {"RTX4090", "A6000", "L40S", "RTX3090", "A6000"};
  const Case cases[] = {
      {alike, {kPrefill, kPrefill, kDecode}, kLongAnswers, true},
      {alike, {kPrefill, kDecode, kDecode}, kLongPrompts, true},
      {unlike, {kPrefill, kPrefill, kDecode}, kLongAnswers, false},
      {unlike, {kBoth, kBoth, kBoth}, kLongPrompts, false},
      {five, {kPrefill, kPrefill, kPrefill, kPrefill, kDecode}, kLongAnswers, true},
  };
  for (const Case& one : cases) {
    PlannerInput input = Machines(one.cards, kLongPrompts);
    const v1::DeploymentPlan running = PlanWith(input, one.from);
    REQUIRE(running.replicas_size() > 0);
    input.workload.Clear();
    REQUIRE(ReadDocument(one.workload, "w.yaml", &input.workload).ok());
    PlannerOptions options = Unsimulated();
    options.require_split = one.split;
    const auto choice = BestRoles(input, options, running);
    REQUIRE(choice.status().message() == "");
    const std::vector<v1::ReplicaRole> roles =
        one.split ? std::vector{kPrefill, kDecode} : std::vector{kBoth, kPrefill, kDecode};
    const double best =
        BestOfAll(input, one.cards.size(), roles).prediction().requests_per_second();
    INFO(one.cards.size() << " " << one.cards[0] << " " << one.workload);
    CHECK(choice->figures.requests_per_second == Approx(best).epsilon(0.01));
    CHECK(choice->gain ==
          Approx(choice->figures.requests_per_second / choice->running.requests_per_second - 1)
              .margin(1e-9));
    CheckNothingIsRead(running, choice->plan);
  }
}

TEST_CASE("nothing is proposed where the plan is right, whether plans are simulated or not") {
  PlannerInput input = Machines({"L40S", "L40S", "L40S"}, kLongPrompts);
  for (const bool simulate : {false, true}) {
    PlannerOptions options = Unsimulated();
    options.simulate = simulate;
    options.require_split = true;
    const v1::DeploymentPlan best = BestOfAll(input, 3, {kPrefill, kDecode});
    const auto choice = BestRoles(input, options, best);
    REQUIRE(choice.status().message() == "");
    CHECK(choice->gain < 0.05);
    CHECK(RolesOf(choice->plan) == RolesOf(best));
  }
}

TEST_CASE("where replicas must not split, or must, no other roles are tried") {
  PlannerInput input = Machines({"L40S", "L40S"}, kLongAnswers);
  PlannerOptions options = Unsimulated();
  options.allow_split = false;
  const auto both = BestRoles(input, options, PlanWith(input, {kBoth, kBoth}));
  REQUIRE(both.status().message() == "");
  CHECK(RolesOf(both->plan) == std::vector{kBoth, kBoth});
  options.allow_split = true;
  options.require_split = true;
  const auto split = BestRoles(input, options, PlanWith(input, {kPrefill, kDecode}));
  REQUIRE(split.status().message() == "");
  CHECK(std::set<v1::ReplicaRole>{split->plan.replicas(0).role(), split->plan.replicas(1).role()} ==
        std::set<v1::ReplicaRole>{kPrefill, kDecode});
}

TEST_CASE("shares alone are mended where roles are right") {
  PlannerInput input = Machines({"RTX4090", "T4"}, kLongAnswers);
  input.model.mutable_layers(0)->set_count(8);
  v1::WrittenLayout layout;
  REQUIRE(ReadDocument("replicas: [{stages: [{devices: [m0/0], layers: 8}]}, {stages: [{devices: "
                       "[m1/0], layers: 8}]}]",
                       "layout", &layout)
              .message() == "");
  PlannerOptions options = Unsimulated();
  options.allow_split = false;
  options.given_search = GivenLayout(layout, "layout");
  const auto made = MakePlan(input, options);
  REQUIRE(made.status().message() == "");
  options.given_search = nullptr;
  v1::DeploymentPlan even = *made;
  for (v1::RoutingShare& share : *even.mutable_routing()) share.set_share(0.5);
  const auto choice = BestRoles(input, options, even);
  REQUIRE(choice.status().message() == "");
  CHECK(choice->gain > 0.1);
  const PlanChange change = ChangeOf(even, choice->plan);
  CHECK(change.routes);
  CHECK(GoingReplicas(change).empty());
  CHECK(ChangeOf(*made, BestRoles(input, options, *made)->plan).empty());
}

TEST_CASE("a mix that turns round under load: what is served recovers, and no request is lost") {
  PlannerInput input = Machines({"L40S", "L40S", "L40S"}, kLongPrompts);
  const v1::DeploymentPlan running = BestOfAll(input, 3, {kPrefill, kDecode});
  input.workload.Clear();
  REQUIRE(ReadDocument(kLongAnswers, "w.yaml", &input.workload).ok());
  PlannerOptions options;  // simulated
  options.require_split = true;
  const auto choice = BestRoles(input, options, running);
  REQUIRE(choice.status().message() == "");
  CHECK(choice->gain > 0.1);
  CheckNothingIsRead(running, choice->plan);
  const double rate = 0.7 * choice->figures.requests_per_second;
  REQUIRE(rate > choice->running.requests_per_second);
  const std::vector<int> flipped = Finished(input, running, choice->plan, 30, rate, 120, 200, 600);
  const std::vector<int> kept = Finished(input, running, running, 30, rate, 120, 200, 600);
  // Of as many as come in 40 s, once those that had waited are answered too.
  const auto late = [](const std::vector<int>& of) { return of[8] + of[9] + of[10] + of[11]; };
  INFO(rate << " requests/s come, " << choice->running.requests_per_second
            << " were served before; in 40 s " << 40 * rate << " come, " << late(flipped) << " and "
            << late(kept) << " are answered");
  CHECK(late(flipped) > 0.9 * 40 * rate);
  CHECK(late(kept) < 0.7 * 40 * rate);
}

}  // namespace tessera::scheduler
