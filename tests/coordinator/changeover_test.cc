#include "coordinator/deployment/changeover.h"

#include <catch2/catch.hpp>
#include <string>
#include <utility>

namespace tessera::coordinator {
namespace {

using Catch::Matchers::Contains;

void AddReplica(const std::string& name, const std::string& device, v1::ReplicaRole role,
                v1::DeploymentPlan* plan) {
  v1::Replica& replica = *plan->add_replicas();
  replica.set_name(name);
  replica.set_role(role);
  replica.add_stages()->add_workers()->set_device(device);
}

// r0 on a and r1 on b, both of role both.
v1::DeploymentPlan Before() {
  v1::DeploymentPlan plan;
  AddReplica("r0", "a", v1::REPLICA_ROLE_BOTH, &plan);
  AddReplica("r1", "b", v1::REPLICA_ROLE_BOTH, &plan);
  return plan;
}

// r0 stays, r1 flips, r2 comes anew on c.
v1::DeploymentPlan After() {
  v1::DeploymentPlan plan;
  AddReplica("r0", "a", v1::REPLICA_ROLE_BOTH, &plan);
  AddReplica("r1", "b", v1::REPLICA_ROLE_DECODE, &plan);
  AddReplica("r2", "c", v1::REPLICA_ROLE_BOTH, &plan);
  return plan;
}

// A change and the replicas that it looks at.
struct Case {
  explicit Case(const v1::DeploymentPlan& to = After())
      : change({{Before()}, true}, {{to}, true}, /*on_trial=*/true,
               {.drain_seconds = 60, .form_seconds = 100}, 1000) {}

  Changeover::Orders Advance(double now) {
    return change.Advance([this](const std::string& name) { return views[name]; }, now);
  }
  // Until r1 has ended and the new plan is in force.
  void PassDraining() {
    Advance(1000);
    Advance(1001);
    views["r1"] = {};
    REQUIRE(Advance(1002).in_force != nullptr);
  }

  std::map<std::string, Changeover::View> views = {{"r0", {.formed = true, .serving = true}},
                                                   {"r1", {.formed = true, .serving = true}}};
  Changeover change;
};

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("what goes is drained, then what comes is formed, and what stays serves on") {
  Case c;
  CHECK(c.change.Retires("r1"));
  CHECK_FALSE(c.change.Retires("r0"));
  c.views["r1"].work = 2;
  CHECK(c.Advance(1000).end.empty());
  CHECK(c.change.progress() == "draining r1 (2 requests)");
  CHECK(c.Advance(1010).end.empty());
  c.views["r1"].work = 0;
  CHECK(c.Advance(1020).end == Names{"r1"});
  c.views["r1"] = {};
  Changeover::Orders orders = c.Advance(1021);
  REQUIRE(orders.in_force != nullptr);
  CHECK(orders.in_force->plans[0].replicas_size() == 3);
  CHECK(orders.forget == Names{"r1"});
  CHECK_FALSE(orders.over);
  CHECK_FALSE(c.change.Retires("r1"));
  c.views["r1"] = {.formed = true, .serving = true};
  c.views["r2"] = {.formed = true};
  CHECK_FALSE(c.Advance(1023).over);
  CHECK(c.change.progress() == "forming r2");
  c.views["r2"] = {.formed = true, .serving = true, .reads = true};
  orders = c.Advance(1027);
  CHECK(orders.over);
  CHECK(c.change.progress().empty());
  CHECK(orders.in_force == nullptr);
  const auto reply = c.change.result();
  REQUIRE(reply.ok());
  REQUIRE(reply->replicas_size() == 3);
  CHECK(reply->replicas(0).change() == v1::REPLICA_CHANGE_KIND_KEEP);
  CHECK(reply->replicas(1).change() == v1::REPLICA_CHANGE_KIND_FLIP);
  CHECK(reply->replicas(1).drain_seconds() == 20);
  CHECK(reply->replicas(1).ready_seconds() == 2);
  CHECK_FALSE(reply->replicas(1).read_weights());
  CHECK(reply->replicas(2).change() == v1::REPLICA_CHANGE_KIND_REBUILD);
  CHECK(reply->replicas(2).was().empty());
  CHECK(reply->replicas(2).drain_seconds() == 0);
  CHECK(reply->replicas(2).ready_seconds() == 6);
  CHECK(reply->replicas(2).read_weights());
}

TEST_CASE("where no replica stays one serves until the others have ended") {
  v1::DeploymentPlan roles;
  AddReplica("r0", "a", v1::REPLICA_ROLE_PREFILL, &roles);
  AddReplica("r1", "b", v1::REPLICA_ROLE_DECODE, &roles);
  Case c(roles);
  c.views["r1"].work = 1;
  CHECK(c.Advance(1000).end.empty());
  CHECK_FALSE(c.change.Retires("r0"));
  CHECK(c.change.Retires("r1"));
  CHECK(c.change.progress() == "draining r1 (1 request)");
  CHECK(c.Advance(1010).end.empty());
  c.views["r1"].work = 0;
  CHECK(c.Advance(1020).end == Names{"r1"});
  c.views["r0"].work = 1;
  c.views["r1"] = {};
  CHECK(c.Advance(1021).end.empty());
  CHECK(c.change.Retires("r0"));
  CHECK(c.change.progress() == "draining r0 (1 request)");
  c.views["r0"].work = 0;
  CHECK(c.Advance(1022).end == Names{"r0"});
  c.views["r0"] = {};
  CHECK(c.Advance(1023).in_force != nullptr);

  // One that does not serve is no capacity to keep.
  Case down(roles);
  down.views["r0"].serving = false;
  down.Advance(1000);
  CHECK(down.change.Retires("r0"));
  CHECK(down.change.Retires("r1"));
}

TEST_CASE("a replica has no more work only after it has heard that it retires") {
  Case c;
  CHECK(c.Advance(1000).end.empty());
  CHECK(c.Advance(1000.1).end == Names{"r1"});
}

TEST_CASE("a replica that serves nobody ends at once, one that works on has its time") {
  Case idle;
  idle.views["r1"].serving = false;
  CHECK(idle.Advance(1000).end == Names{"r1"});
  Case busy;
  busy.views["r1"].work = 1;
  busy.Advance(1000);
  CHECK(busy.Advance(1059.9).end.empty());
  CHECK(busy.Advance(1060).end == Names{"r1"});
}

TEST_CASE("routes alone are in force at once, and so is a plan that only leaves replicas out") {
  v1::DeploymentPlan routes = Before();
  routes.add_routing()->set_share(1);
  Case c(routes);
  Changeover::Orders orders = c.Advance(1000);
  REQUIRE(orders.in_force != nullptr);
  CHECK(orders.in_force->plans[0].routing_size() == 1);
  CHECK(orders.over);
  CHECK(c.change.result()->routes());

  v1::DeploymentPlan fewer = Before();
  fewer.mutable_replicas()->RemoveLast();
  Case drop(fewer);
  drop.Advance(1000);
  CHECK(drop.Advance(1001).end == Names{"r1"});
  drop.views["r1"] = {};
  orders = drop.Advance(1002);
  CHECK(orders.in_force != nullptr);
  CHECK(orders.over);
  CHECK(drop.change.result()->replicas(1).name() == "r1");
  CHECK(drop.change.result()->replicas(1).change() == v1::REPLICA_CHANGE_KIND_DROP);
}

TEST_CASE("a plan that does not come up makes way for the one before") {
  for (const bool fails : {true, false}) {
    Case c;
    c.PassDraining();
    c.views["r1"] = {.formed = true, .serving = true};
    c.views["r2"] = {.formed = !fails, .failure = fails ? "no room" : ""};
    Changeover::Orders orders = c.Advance(fails ? 1010 : 1102);
    CHECK(orders.end == (fails ? Names{"r1"} : Names{"r1", "r2"}));
    CHECK(orders.in_force == nullptr);
    CHECK_THAT(c.change.progress(), Contains("going back: replica r2"));
    CHECK(c.change.Retires("r1"));
    CHECK(c.change.Retires("r2"));
    CHECK_FALSE(c.change.Retires("r0"));
    c.views["r1"] = c.views["r2"] = {};
    orders = c.Advance(1103);
    REQUIRE(orders.in_force != nullptr);
    CHECK(orders.in_force->plans[0].replicas(1).role() == v1::REPLICA_ROLE_BOTH);
    CHECK(orders.in_force->plans[0].replicas_size() == 2);
    CHECK(orders.forget == Names{"r1", "r2"});
    CHECK(orders.over);
    CHECK_FALSE(c.change.Retires("r1"));
    const absl::Status why = c.change.result().status();
    CHECK(absl::IsAborted(why));
    CHECK_THAT(std::string(why.message()),
               Contains(fails ? "replica r2: no room" : "did not serve within 100 s"));
  }
}

TEST_CASE("what comes at once is in force and over, whether its replicas serve or not") {
  Changeover change({{Before()}, false}, {{After()}, true}, /*on_trial=*/false, {}, 1000);
  CHECK_FALSE(change.Retires("r1"));
  const Changeover::Orders orders =
      change.Advance([](const std::string&) { return Changeover::View(); }, 1000);
  REQUIRE(orders.in_force != nullptr);
  CHECK(orders.in_force->plans[0].replicas_size() == 3);
  CHECK(orders.in_force->names_devices);
  CHECK(orders.over);
  CHECK(orders.end.empty());
  CHECK(orders.forget.empty());
  CHECK(change.progress().empty());
}

TEST_CASE("a device moves to another model; of a model whose replicas all go, one serves on") {
  // r0 and r1 are of one model, s0 and s1 of another, which gets b.
  v1::DeploymentPlan a, b, fewer, more;
  AddReplica("r0", "a", v1::REPLICA_ROLE_BOTH, &a);
  AddReplica("r1", "b", v1::REPLICA_ROLE_BOTH, &a);
  AddReplica("s0", "c", v1::REPLICA_ROLE_BOTH, &b);
  AddReplica("s1", "d", v1::REPLICA_ROLE_BOTH, &b);
  AddReplica("r0", "a", v1::REPLICA_ROLE_BOTH, &fewer);
  AddReplica("s0", "c", v1::REPLICA_ROLE_PREFILL, &more);
  AddReplica("s1", "d", v1::REPLICA_ROLE_DECODE, &more);
  AddReplica("s2", "b", v1::REPLICA_ROLE_BOTH, &more);
  Changeover change({{a, b}, true}, {{fewer, more}, true}, /*on_trial=*/true, {}, 1000);
  std::map<std::string, Changeover::View> views;
  for (const char* name : {"r0", "r1", "s0", "s1"}) views[name] = {.formed = true, .serving = true};
  const auto advance = [&](double now) {
    return change.Advance([&](const std::string& name) { return views[name]; }, now);
  };
  CHECK(advance(1000).end.empty());
  CHECK_FALSE(change.Retires("r0"));
  CHECK(change.Retires("r1"));
  CHECK_FALSE(change.Retires("s0"));
  CHECK(change.Retires("s1"));
  CHECK(advance(1001).end == Names{"r1", "s1"});
  views["r1"] = views["s1"] = {};
  CHECK(advance(1002).end.empty());
  CHECK(change.Retires("s0"));
  CHECK(advance(1003).end == Names{"s0"});
  views["s0"] = {};
  const Changeover::Orders orders = advance(1004);
  REQUIRE(orders.in_force != nullptr);
  CHECK(orders.in_force->plans[1].replicas_size() == 3);
  for (const char* name : {"s0", "s1", "s2"}) views[name] = {.formed = true, .serving = true};
  CHECK(advance(1005).over);
  CHECK(Describe(change.change()) == "replicas: 1 kept, 2 flipped, 1 rebuilt, 1 dropped");
}

TEST_CASE("a change in words") {
  Case c;
  CHECK(Describe(c.change.change()) == "replicas: 1 kept, 1 flipped, 1 rebuilt");
}

}  // namespace tessera::coordinator
