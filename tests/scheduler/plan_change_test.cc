#include "scheduler/plan_change.h"

#include <catch2/catch.hpp>
#include <functional>

namespace tessera::scheduler {
namespace {

using Kind = ReplicaChange::Kind;

// On one device of its name, which holds everything.
v1::Replica& AddReplica(const std::string& name, const std::string& device,
                        v1::DeploymentPlan* plan) {
  v1::Replica& replica = *plan->add_replicas();
  replica.set_name(name);
  replica.set_role(v1::REPLICA_ROLE_BOTH);
  replica.set_max_sequences(16);
  v1::PlannedWorker& worker = *replica.add_stages()->add_workers();
  worker.set_device(device);
  worker.set_kv_bytes(1 << 20);
  worker.mutable_share()->mutable_layers()->set_end(6);
  return replica;
}

void AddRoute(const std::string& prefill, const std::string& decode, double share,
              v1::DeploymentPlan* plan) {
  v1::RoutingShare& route = *plan->add_routing();
  route.set_prefill_replica(prefill);
  route.set_decode_replica(decode);
  route.set_share(share);
}

v1::DeploymentPlan TwoReplicas() {
  v1::DeploymentPlan plan;
  AddReplica("r0", "a/0", &plan);
  AddReplica("r1", "b/0", &plan);
  AddRoute("r0", "r0", 0.5, &plan);
  AddRoute("r1", "r1", 0.5, &plan);
  return plan;
}

// "keep r0, flip r1>r2, rebuild >r3, drop r4, routes"
std::string Text(const PlanChange& change) {
  std::string text;
  for (const ReplicaChange& replica : change.replicas) {
    const char* const kinds[] = {"keep", "flip", "rebuild", "drop"};
    text += text.empty() ? "" : ", ";
    text += kinds[static_cast<int>(replica.kind)];
    text += " " + (replica.from == replica.to ? replica.to : replica.from + ">" + replica.to);
  }
  return text + (change.routes ? ", routes" : "");
}

std::string TextAfter(const std::function<void(v1::DeploymentPlan*)>& edit) {
  v1::DeploymentPlan to = TwoReplicas();
  edit(&to);
  return Text(ChangeOf(TwoReplicas(), to));
}

v1::Replica& R1(v1::DeploymentPlan* plan) { return *plan->mutable_replicas(1); }

}  // namespace

TEST_CASE("what differs only for people is no change") {
  v1::DeploymentPlan to = TwoReplicas();
  to.mutable_model()->set_name("another name");
  to.add_notes()->set_simulation_error("because");
  R1(&to).mutable_prediction()->set_requests_per_second(7);
  R1(&to).mutable_stages(0)->mutable_workers(0)->set_weight_bytes(7);
  to.mutable_routing()->SwapElements(0, 1);
  const PlanChange change = ChangeOf(TwoReplicas(), to);
  CHECK(Text(change) == "keep r0, keep r1");
  CHECK(change.empty());
  CHECK(GoingReplicas(change).empty());
}

TEST_CASE("routes alone") {
  CHECK(TextAfter([](auto* to) { to->mutable_routing(0)->set_share(0.25); }) ==
        "keep r0, keep r1, routes");
  CHECK(TextAfter([](auto* to) { to->mutable_routing(0)->set_decode_replica("r1"); }) ==
        "keep r0, keep r1, routes");
  CHECK(TextAfter([](auto* to) { to->mutable_routing(0)->set_kv_codec("raw"); }) ==
        "keep r0, keep r1, routes");
}

TEST_CASE("a replica flips where its workers hold what it needs") {
  CHECK(TextAfter([](auto* to) { R1(to).set_role(v1::REPLICA_ROLE_DECODE); }) ==
        "keep r0, flip r1");
  CHECK(TextAfter([](auto* to) { R1(to).set_micro_batches(3); }) == "keep r0, flip r1");
  CHECK(TextAfter([](auto* to) { R1(to).set_name("r2"); }) == "keep r0, flip r1>r2");
  CHECK(TextAfter([](auto* to) { to->mutable_replicas()->SwapElements(0, 1); }) ==
        "keep r1, keep r0");
  CHECK(TextAfter([](auto* to) {
          to->mutable_replicas(0)->set_name("r1");
          R1(to).set_name("r0");
        }) == "flip r0>r1, flip r1>r0");
}

TEST_CASE("a replica is rebuilt where they do not") {
  const std::function<void(v1::PlannedWorker&)> edits[] = {
      [](v1::PlannedWorker& w) { w.set_device("c/0"); },
      [](v1::PlannedWorker& w) { w.set_kv_bytes(2 << 20); },
      [](v1::PlannedWorker& w) { w.mutable_share()->mutable_layers()->set_end(5); }};
  for (const auto& edit : edits) {
    CHECK(TextAfter([&](auto* to) { edit(*R1(to).mutable_stages(0)->mutable_workers(0)); }) ==
          "keep r0, rebuild r1");
  }
  CHECK(TextAfter([](auto* to) { R1(to).set_max_sequences(17); }) == "keep r0, rebuild r1");
  CHECK(TextAfter([](auto* to) { R1(to).set_max_batched_tokens(17); }) == "keep r0, rebuild r1");
  CHECK(TextAfter([](auto* to) { *R1(to).add_stages() = R1(to).stages(0); }) ==
        "keep r0, rebuild r1");
  CHECK(TextAfter([](auto* to) { to->set_weight_dtype(v1::DATA_TYPE_INT8); }) ==
        "rebuild r0, rebuild r1");
  CHECK(TextAfter([](auto* to) { to->set_kv_dtype(v1::DATA_TYPE_FLOAT32); }) ==
        "rebuild r0, rebuild r1");
}

TEST_CASE("replicas come and go") {
  CHECK(TextAfter([](auto* to) { AddReplica("r2", "c/0", to); }) ==
        "keep r0, keep r1, rebuild >r2");
  CHECK(TextAfter([](auto* to) { to->mutable_replicas()->RemoveLast(); }) == "keep r0, drop r1>");
  // One over both devices takes both away.
  v1::DeploymentPlan to = TwoReplicas();
  *R1(&to).mutable_stages()->Add() = to.replicas(0).stages(0);
  to.mutable_replicas()->DeleteSubrange(0, 1);
  const PlanChange change = ChangeOf(TwoReplicas(), to);
  CHECK(Text(change) == "rebuild r1, drop r0>");
  CHECK(GoingReplicas(change) == std::vector<std::string>{"r0", "r1"});
  CHECK(Text(ChangeOf({}, TwoReplicas())) == "rebuild >r0, rebuild >r1, routes");
}

}  // namespace tessera::scheduler
