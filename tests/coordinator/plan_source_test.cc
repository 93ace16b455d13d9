// Where plans come from, and sets of plans of several models.
#include "coordinator/deployment/plan_source.h"

#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/deployment/plan_requests.h"
#include "scheduler/replicate.h"
#include "tests/coordinator/staged_plan.h"

namespace tessera::coordinator {
namespace {

using Catch::Matchers::Contains;

v1::Model Named(const std::string& name) {
  v1::Model model = SmallModel();
  model.set_name(name);
  return model;
}

using Workers = std::map<std::string, WorkerRecord>;

Workers Live(const std::vector<std::string>& names) {
  Workers workers;
  for (const std::string& name : names) {
    workers[name].registration.set_name(name);
    workers[name].registration.mutable_device()->set_memory_bytes(1 << 30);
  }
  return workers;
}

v1::DeploymentPlan PlanOn(const v1::Model& model, const std::vector<std::string>& devices) {
  std::vector<scheduler::DeviceOffer> offers;
  for (const std::string& device : devices) offers.push_back({device, 1 << 30});
  return scheduler::OneReplicaPerDevice(model, offers);
}

// What a source puts in force at once.
void Take(PlanSource& source, const Workers& workers, PlanSet* in_force) {
  if (std::optional<NextPlan> next = source.Next({*in_force, workers, 0})) {
    CHECK_FALSE(next->on_trial);
    *in_force = std::move(next->plans);
  }
}

using Names = std::set<std::string>;

}  // namespace

TEST_CASE("of several models a new worker gets the one with the fewest, and keeps it") {
  const auto source = EachWorkerAlone({Named("a"), Named("b")});
  PlanSet in_force;
  Take(*source, Live({}), &in_force);
  REQUIRE(in_force.plans.size() == 2);
  CHECK_FALSE(in_force.names_devices);
  Take(*source, Live({"w/1"}), &in_force);
  Take(*source, Live({"w/0", "w/1", "w/2"}), &in_force);
  const auto devices = [&](size_t model) { return DevicesOf({{in_force.plans[model]}, true}); };
  CHECK(devices(0) == Names{"w/1", "w/2"});
  CHECK(devices(1) == Names{"w/0"});
  // Nothing new: nothing changes.
  CHECK_FALSE(source->Next({in_force, Live({"w/0", "w/1", "w/2"}), 0}).has_value());
  Workers lost = Live({"w/0", "w/1", "w/2"});
  lost["w/1"].state = v1::WORKER_STATE_LOST;
  Take(*source, lost, &in_force);
  CHECK(devices(0) == Names{"w/2"});
  Take(*source, Live({"w/0", "w/1", "w/2"}), &in_force);
  CHECK(devices(0) == Names{"w/1", "w/2"});
  // A plan that somebody made is not theirs to change.
  in_force.names_devices = true;
  CHECK_FALSE(source->Next({in_force, Live({"w/3"}), 0}).has_value());
}

TEST_CASE("fixed plans come once, in the order of their models") {
  const std::vector<v1::Model> models = {Named("a"), Named("b")};
  auto source = FixedPlans({PlanOn(models[1], {"w/1"}), PlanOn(models[0], {"w/0"})}, models);
  REQUIRE(source.status().message() == "");
  PlanSet in_force;
  Take(**source, {}, &in_force);
  CHECK(in_force.names_devices);
  CHECK(DevicesOf({{in_force.plans[0]}, true}) == Names{"w/0"});
  CHECK_FALSE((*source)->Next({PlanSet(), {}, 0}).has_value());

  const auto refusal = [&](std::vector<v1::DeploymentPlan> plans) {
    return std::string(FixedPlans(std::move(plans), models).status().message());
  };
  CHECK_THAT(refusal({PlanOn(models[0], {"w/0"})}), Contains("no plan is for the model b"));
  CHECK_THAT(refusal({PlanOn(models[0], {"w/0"}), PlanOn(models[0], {"w/1"})}),
             Contains("two plans are for the model a"));
  CHECK_THAT(refusal({PlanOn(Named("c"), {"w/0"})}),
             Contains("for c, which may be several of the served models; served: a, b"));
  v1::Model other = Named("c");
  other.set_hidden(other.hidden() * 2);
  CHECK_THAT(refusal({PlanOn(other, {"w/0"})}), Contains("for c, which is not served"));
}

TEST_CASE("names of replicas are their models' where several are served, once") {
  const std::vector<v1::Model> models = {Named("a"), Named("b")};
  PlanSet set = {{PlanOn(Named("x"), {"w/0"}), PlanOn(models[1], {"w/1"})}, true};
  for (int times = 0; times < 2; ++times) {
    NameReplicas(models, &set);
    CHECK(set.plans[0].model().name() == "a");
    CHECK(set.plans[0].replicas(0).name() == "a/r-w/0");
    CHECK(set.plans[1].routing(0).decode_replica() == "b/r-w/1");
  }
  const v1::DeploymentPlan joined = Joined(set);
  CHECK(joined.replicas_size() == 2);
  CHECK(joined.routing_size() == 2);
  PlanSet one = {{PlanOn(models[0], {"w/0"})}, true};
  NameReplicas({models.data(), 1}, &one);
  CHECK(one.plans[0].replicas(0).name() == "r-w/0");
  CHECK(CheckDevicesApart(models, set).ok());
  set.plans[1] = PlanOn(models[1], {"w/0"});
  CHECK_THAT(std::string(CheckDevicesApart(models, set).message()),
             Contains("device w/0 is in the plans of a and b"));
}

TEST_CASE("a request for a plan of one model leaves those of the others, and ends once") {
  const std::vector<v1::Model> models = {Named("a"), Named("b")};
  const PlanSet in_force = {{PlanOn(models[0], {"w/0"}), PlanOn(models[1], {"w/1"})}, false};
  PlanRequests requests;
  std::vector<absl::Status> answers;
  const auto ask = [&](const std::string& device) {
    requests.Ask({std::nullopt, PlanOn(models[1], {device})},
                 [&](const auto& reply) { answers.push_back(reply.status()); });
  };
  const Workers workers = Live({"w/0", "w/1", "w/2"});
  ask("w/2");
  ask("w/2");
  REQUIRE(answers.size() == 1);
  CHECK(absl::IsFailedPrecondition(answers[0]));
  std::optional<NextPlan> next = requests.Next({in_force, workers, 0});
  REQUIRE(next.has_value());
  CHECK(next->on_trial);
  CHECK(next->plans.names_devices);
  CHECK(DevicesOf(next->plans) == Names{"w/0", "w/2"});
  CHECK_FALSE(requests.Next({in_force, workers, 0}).has_value());
  requests.Ended(v1::ApplyPlanReply());
  REQUIRE(answers.size() == 2);
  CHECK(answers[1].ok());
  ask("w/9");
  CHECK_FALSE(requests.Next({in_force, workers, 0}).has_value());
  REQUIRE(answers.size() == 3);
  CHECK_THAT(std::string(answers[2].message()), Contains("no worker named w/9 has registered"));
  ask("w/2");
  requests.Abandon(absl::UnavailableError("bye"));
  ask("w/2");
  REQUIRE(answers.size() == 5);
  CHECK(absl::IsUnavailable(answers[3]));
  CHECK(absl::IsUnavailable(answers[4]));
}

TEST_CASE("the planner is asked until there is a plan, and again without a worker gone for long") {
  int asked = 0;
  absl::StatusOr<v1::DeploymentPlan> answer = absl::UnavailableError("planning waits");
  const auto source = PlannedForWorkers(
      [&](const Workers&) {
        ++asked;
        return answer;
      },
      10);
  PlanSet in_force;
  Workers workers = Live({"w/0", "w/1"});
  Take(*source, workers, &in_force);
  CHECK(source->why_none() == "planning waits");
  answer = absl::UnavailableError("");
  Take(*source, workers, &in_force);
  CHECK(source->why_none() == "planning waits");
  answer = PlanOn(SmallModel(), {"w/0", "w/1"});
  source->Refuse(absl::InvalidArgumentError("it is wrong"));
  CHECK(source->why_none() == "the plan cannot be deployed: it is wrong");
  Take(*source, workers, &in_force);
  CHECK(in_force.has_replicas());
  CHECK(asked == 3);
  workers["w/1"].state = v1::WORKER_STATE_LOST;
  workers["w/1"].last_heartbeat_seconds = 100;
  CHECK_FALSE(source->Next({in_force, workers, 109}).has_value());
  CHECK(asked == 3);
  answer = PlanOn(SmallModel(), {"w/0"});
  const std::optional<NextPlan> next = source->Next({in_force, workers, 110});
  REQUIRE(next.has_value());
  CHECK(next->on_trial);
  CHECK(DevicesOf(next->plans) == Names{"w/0"});
}

TEST_CASE("the planner is asked without a worker that is much slower than before for long") {
  std::vector<Names> asked;
  const auto source = PlannedForWorkers(
      [&](const Workers& workers) {
        Names names;
        for (const auto& [name, worker] : workers) names.insert(name);
        asked.push_back(names);
        return PlanOn(SmallModel(), {names.begin(), names.end()});
      },
      10);
  PlanSet in_force;
  const Workers workers = Live({"w/0", "w/1"});
  Take(*source, workers, &in_force);
  REQUIRE(asked.size() == 1);
  const auto next = [&](const std::vector<Straggler>& stragglers) {
    return source->Next({in_force, workers, 100, stragglers});
  };
  const Straggler slow = {
      .replica = "r-w/1", .factor = 3.5, .seconds = 50, .much_seconds = 11, .workers = {"w/1"}};
  Straggler briefly = slow, slightly = slow, by_links = slow, other = slow;
  briefly.much_seconds = 9;
  slightly.factor = 2.9;
  by_links.workers.clear();
  other.workers = {"w/0"};
  CHECK_FALSE(next({briefly}).has_value());
  CHECK_FALSE(next({slightly}).has_value());
  CHECK_FALSE(next({by_links}).has_value());
  CHECK_FALSE(next({slow, other}).has_value());
  CHECK(asked.size() == 1);
  const std::optional<NextPlan> without = next({slow});
  REQUIRE(without.has_value());
  CHECK(without->on_trial);
  CHECK(DevicesOf(without->plans) == Names{"w/0"});
  CHECK(asked.back() == Names{"w/0"});
  // Nor has a later plan it, until another process has its name.
  in_force = without->plans;
  Workers later = Live({"w/0", "w/1", "w/2"});
  later["w/0"].state = v1::WORKER_STATE_LOST;
  CHECK(source->Next({in_force, later, 100}).has_value());
  CHECK(asked.back() == Names{"w/0", "w/2"});
  later["w/1"].registration.set_incarnation(7);
  CHECK(source->Next({in_force, later, 100}).has_value());
  CHECK(asked.back() == Names{"w/0", "w/1", "w/2"});
}

TEST_CASE("a worker that was slow is planned with again where no other plan can be made") {
  const auto source = PlannedForWorkers(
      [&](const Workers& workers) -> absl::StatusOr<v1::DeploymentPlan> {
        std::vector<std::string> live;
        for (const auto& [name, worker] : workers) {
          if (worker.state != v1::WORKER_STATE_LOST) live.push_back(name);
        }
        if (live.empty()) return absl::UnavailableError("no device");
        return PlanOn(SmallModel(), live);
      },
      10);
  PlanSet in_force;
  Workers workers = Live({"w/0", "w/1"});
  Take(*source, workers, &in_force);
  const Straggler slow = {
      .replica = "r-w/1", .factor = 4, .seconds = 11, .much_seconds = 11, .workers = {"w/1"}};
  const std::optional<NextPlan> without = source->Next({in_force, workers, 100, {slow}});
  REQUIRE(without.has_value());
  in_force = without->plans;
  workers["w/0"].state = v1::WORKER_STATE_LOST;
  CHECK_FALSE(source->Next({in_force, workers, 100}).has_value());
  const std::optional<NextPlan> again = source->Next({in_force, workers, 100});
  REQUIRE(again.has_value());
  CHECK(DevicesOf(again->plans) == Names{"w/1"});
}

}  // namespace tessera::coordinator
