// Other roles for a plan in force, of workers that registered.
#include "coordinator/replanning/registered_roles.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <string>

#include "proto/document.h"
#include "scheduler/input/catalogue.h"

namespace tessera::coordinator {
namespace {

using Catch::Contains;

WorkerRecord Worker(int64_t gib) {
  WorkerRecord record;
  record.state = v1::WORKER_STATE_REGISTERED;
  record.registration.mutable_device()->set_memory_bytes(gib << 30);
  return record;
}

v1::Workload Lengths(int64_t prompt, int64_t output) {
  v1::Workload all;
  v1::LengthSample& lengths = *all.add_classes()->add_lengths();
  lengths.set_prompt_tokens(prompt);
  lengths.set_output_tokens(output);
  return all;
}

auto Prefilling(const v1::DeploymentPlan& plan) {
  return std::count_if(plan.replicas().begin(), plan.replicas().end(), [](const auto& replica) {
    return replica.role() == v1::REPLICA_ROLE_PREFILL;
  });
}

}  // namespace

TEST_CASE("roles change for another workload, on the devices that the plan has") {
  ClusterQuestion start;
  REQUIRE(ReadDocument("machines: [{name: a, devices: [{kind: L40S, count: 4}]}]", "cluster.yaml",
                       &start.input.cluster)
              .message() == "");
  start.options.require_split = true;
  start.input.workload = Lengths(3000, 40);
  const v1::Model model = *scheduler::BuiltInModel("Llama-3-8B");
  // a/1 is not there: the planner knows a/2 by another place.
  std::map<std::string, WorkerRecord> workers = {
      {"a/0", Worker(45)}, {"a/2", Worker(45)}, {"a/3", Worker(45)}};
  const auto plan = PlanForRegistered(start, model, workers);
  REQUIRE(plan.status().message() == "");
  CHECK(Prefilling(*plan) == 2);
  CHECK(RolesForRegistered(start, model, workers, *plan)->gain < 0.1);
  const ClusterQuestion now = WithWorkload(start, Lengths(200, 800));
  const auto choice = RolesForRegistered(now, model, workers, *plan);
  REQUIRE(choice.status().message() == "");
  CHECK(choice->gain > 0.1);
  CHECK(Prefilling(choice->plan) == 1);
  REQUIRE(choice->plan.replicas_size() == plan->replicas_size());
  for (int i = 0; i < plan->replicas_size(); ++i) {
    CHECK(choice->plan.replicas(i).stages(0).workers(0).device() ==
          plan->replicas(i).stages(0).workers(0).device());
  }
  workers["a/2"].state = v1::WORKER_STATE_LOST;
  CHECK_THAT(std::string(RolesForRegistered(now, model, workers, *plan).status().message()),
             Contains("needs a/2, which is not there or not described"));
}

TEST_CASE("limits of latency stay where the workload changes") {
  ClusterQuestion start;
  start.input.workload = Lengths(10, 10);
  start.input.trace.emplace_back();
  CHECK_FALSE(WithWorkload(start, Lengths(20, 20)).input.workload.has_objectives());
  v1::WorkloadClass* one = start.input.workload.mutable_classes(0);
  one->set_share(0.3);
  one->mutable_objectives()->set_time_per_output_token_seconds(0.2);
  v1::WorkloadClass* larger = start.input.workload.add_classes();
  larger->set_share(0.6);
  larger->mutable_objectives()->set_time_per_output_token_seconds(0.1);
  const ClusterQuestion now = WithWorkload(start, Lengths(20, 20));
  CHECK(now.input.workload.objectives().time_per_output_token_seconds() == 0.1);
  CHECK(now.input.workload.classes_size() == 1);
  CHECK(now.input.trace.empty());
  start.input.workload.mutable_objectives()->set_time_to_first_token_seconds(3);
  CHECK(WithWorkload(start, Lengths(20, 20))
            .input.workload.objectives()
            .time_to_first_token_seconds() == 3);
}

}  // namespace tessera::coordinator
