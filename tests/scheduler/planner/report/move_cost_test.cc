#include "scheduler/planner/report/move_cost.h"

#include <catch2/catch.hpp>

#include "scheduler/planner/planner.h"
#include "scheduler/planner/report/plan_diff.h"
#include "scheduler/planner/report/plan_table.h"
#include "scheduler/planner/request/plan_request.h"
#include "tests/scheduler/planner/written_input.h"

namespace tessera::scheduler {
namespace {

using Catch::Contains;

PlannerInput Input(const std::string& read = "") {
  const std::string cluster = "machines:\n- {name: a, devices: [{kind: A40, count: 2}]" + read +
                              "}\n- {name: b, devices: [{kind: L4, count: 2}]}\n"
                              "tiers: {site: {bandwidth: 25 Gbit/s, latency: 50 us}}\n";
  return tests::WrittenInput(cluster, "Llama-3-8B");
}

double BytesOn(const v1::DeploymentPlan& plan, const std::string& machine) {
  double bytes = 0;
  for (const auto& [device, part] : BytesToLoad(v1::DeploymentPlan(), plan)) {
    if (device.starts_with(machine + "/")) bytes += part;
  }
  return bytes;
}

v1::DeploymentPlan PlanOf(const PlannerInput& input, const PlannerOptions& options = {}) {
  const auto plan = MakePlan(input, options);
  REQUIRE(plan.status().message() == "");
  return *plan;
}

}  // namespace

TEST_CASE("all workers of a machine share what it reads; the slowest machine is what takes long") {
  const v1::DeploymentPlan plan = PlanOf(Input());
  REQUIRE(BytesOn(plan, "a") > 0);
  REQUIRE(BytesOn(plan, "b") > 0);
  CHECK(plan.move().load_seconds() ==
        Approx(std::max(BytesOn(plan, "a"), BytesOn(plan, "b")) / 2e9));
  for (const v1::Replica& replica : plan.replicas())
    CHECK(replica.load_seconds() <= plan.move().load_seconds());
  CHECK_THAT(PlanTable(plan), Contains("weights load in ") &&
                                  Contains("weights are read at 2 GB/s per machine (default") &&
                                  !Contains("moving from"));
  // The machine's own figure beats the option, a network in between caps both.
  const v1::DeploymentPlan slow = PlanOf(Input(", weight_read: 500 MB/s"));
  CHECK(slow.move().load_seconds() == Approx(BytesOn(slow, "a") / 5e8));
  PlannerOptions options;
  options.move.network_bytes_per_second = 1.25e8;
  CHECK(PlanOf(Input(), options).move().load_seconds() ==
        Approx(std::max(BytesOn(plan, "a"), BytesOn(plan, "b")) / 1.25e8));
}

TEST_CASE("from the same plan nothing moves; from one with other routing nothing is read") {
  PlannerInput input = Input();
  input.running = PlanOf(input);
  v1::DeploymentPlan plan = PlanOf(input);
  CHECK(plan.move().seconds() == 0);
  CHECK(plan.move().lost_requests() == 0);
  CHECK(plan.move().stay_size() == plan.replicas_size());
  CHECK_THAT(PlanTable(plan), Contains("re-routing only"));
  input.running->mutable_routing(0)->set_share(0.1);
  CHECK(PlanOf(input).move().seconds() == 0);
}

TEST_CASE("a replica that only flips its role reads nothing") {
  PlannerInput input = Input();
  PlannerOptions options;
  options.allow_split = false;
  input.running = PlanOf(input, options);
  input.running->mutable_replicas(0)->set_role(v1::REPLICA_ROLE_DECODE);
  const v1::DeploymentPlan plan = PlanOf(input, options);
  REQUIRE(plan.move().flip_size() == 1);
  CHECK(plan.move().stay_size() == plan.replicas_size() - 1);
  CHECK(plan.replicas(0).load_seconds() > 0);
  CHECK(plan.move().seconds() == 0);
  CHECK(plan.move().lost_requests() == 0);
  CHECK_THAT(PlanTable(plan), Contains("change their role only"));
}

TEST_CASE("another model is read whole; replicas on other devices are rebuilt") {
  PlannerInput input = Input();
  PlannerOptions keeps;
  keeps.move.keeps_weights = true;
  input.running = PlanOf(input);
  input.running->mutable_model()->set_name("another");
  const v1::DeploymentPlan plan = PlanOf(input, keeps);
  CHECK(plan.move().rebuilt_size() == plan.replicas_size());
  CHECK(plan.move().seconds() == Approx(plan.move().load_seconds()));
  CHECK(plan.move().meanwhile_requests_per_second() == 0);
  input.running = PlanOf(Input());
  input.running->mutable_replicas(0)->mutable_stages(0)->mutable_workers(0)->set_device("z/0");
  const v1::DeploymentPlan moved = PlanOf(input, keeps);
  REQUIRE(moved.move().rebuilt_size() == 1);
  CHECK_THAT(PlanTable(moved), Contains("weights are read for r0") && Contains("the move takes"));
}

TEST_CASE("nonsense is refused by the flag's name, and requests carry the options") {
  PlannerOptions options;
  options.move.disk_bytes_per_second = 0;
  CHECK_THAT(std::string(MakePlan(Input(), options).status().message()), Contains("--weight-read"));
  v1::PlanRequest request;
  const PlannerInput input = Input();
  *request.mutable_cluster() = input.cluster;
  *request.mutable_workload() = input.workload;
  *request.mutable_running() = PlanOf(input);
  request.set_weight_read_bytes_per_second(1e9);
  request.mutable_options()->set_no_usual_limits(true);  // as the running plan was made
  const auto reply = AnswerPlanRequest(request, input.model, {});
  REQUIRE(reply.status().message() == "");
  CHECK_THAT(reply->text(), Contains("re-routing only") && Contains("1 GB/s per machine (option)"));
  request.mutable_running()->mutable_replicas(0)->clear_stages();
  CHECK_THAT(std::string(AnswerPlanRequest(request, input.model, {}).status().message()),
             Contains("request: running: "));
}

}  // namespace tessera::scheduler
