// What people read of a plan, from figures that no planner made.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <tuple>

#include "scheduler/planner/planner.h"
#include "scheduler/planner/report/assumption_text.h"
#include "scheduler/planner/report/bound_text.h"
#include "scheduler/planner/report/plan_summary.h"
#include "scheduler/planner/report/plan_table.h"
#include "scheduler/planner/report/plan_text.h"
#include "scheduler/planner/report/weak_replicas.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

using Catch::Contains;

v1::DeploymentPlan Predicted() {
  v1::DeploymentPlan plan;
  plan.mutable_model()->set_name("some model");
  plan.mutable_basis()->set_requests_per_second(3);
  v1::Prediction& prediction = *plan.mutable_prediction();
  prediction.set_requests_per_second(4);
  prediction.set_time_to_first_token_seconds(1);
  prediction.set_time_per_output_token_seconds(0.1);
  return plan;
}

TEST_CASE("what a reader must not miss stands at the head, and nowhere else") {
  v1::DeploymentPlan plan = Predicted();
  plan.add_notes()->set_interrupted_simulation(true);
  CHECK_THAT(PlanTable(plan), Contains("\nwarning: interrupted: not simulated\npredicted at") &&
                                  !Contains("why:") && !Contains("  warning"));
  plan.add_notes()->set_simulation_error("too slow");
  CHECK_THAT(PlanTable(plan),
             Contains("\nwhy:\n  not simulated: too slow\n") && !Contains("  warning"));
}

TEST_CASE("the short report has all its parts however much there is to warn of") {
  v1::DeploymentPlan plan = Predicted();
  plan.mutable_prediction()->set_usd_per_million_output_tokens(1);
  plan.mutable_prediction()->set_output_tokens_per_second(100);
  v1::Replica& replica = *plan.add_replicas();
  replica.set_name("r0");
  for (const char* device : {"a/0", "b/0"}) {
    v1::PlannedWorker& worker = *replica.add_stages()->add_workers();
    worker.set_device(device);
    worker.set_kind("T4");
    worker.mutable_share()->mutable_layers()->set_end(4);
  }
  plan.add_notes()->set_unmeasured_pipelines(true);
  plan.add_notes()->mutable_idle()->add_kinds()->set_kind("L4");
  const std::string pipelines = "stages on several machines";
  SummaryCommands commands;
  commands.weights = "MODEL_FOLDER";
  CHECK_THAT(PlanSummary(plan, commands),
             Contains("how sure:\n  " + pipelines) && Contains("not proved"));

  plan.mutable_model()->set_name(std::string(90, 'm'));
  commands.picture = "plan.svg";
  for (int i = 0; i < 3; ++i) {
    v1::MissedLimit& missed = *plan.add_missed_limits();
    missed.set_limit(v1::LATENCY_LIMIT_TPOT);
    missed.set_limit_seconds(0.1 + 0.1 * i);
    missed.set_seconds(0.9);
    const std::string text = PlanSummary(plan, commands);
    INFO(text);
    CHECK(std::count(text.begin(), text.end(), '\n') <= kSummaryLines + 1);
    CHECK_THAT(text, Contains("warning: ") && Contains("what to expect:\n  TTFT ") &&
                         Contains("USD/h") && Contains("how sure:") && Contains(pipelines) &&
                         Contains("drawn in plan.svg"));
  }
}

TEST_CASE("the short report cuts off no pipeline, amount or command, and counts tokens") {
  v1::DeploymentPlan plan = Predicted();
  plan.mutable_basis()->set_output_tokens(211);
  v1::Replica& replica = *plan.add_replicas();
  replica.set_name("r0");
  std::string last;
  for (int i = 0; i < 24; ++i) {
    v1::PlannedWorker& worker = *replica.add_stages()->add_workers();
    last = "machine" + std::to_string(i) + "/0";
    worker.set_device(last);
    worker.set_kind(i % 2 == 0 ? "RTX3090" : "RTX4090");
    worker.mutable_share()->mutable_layers()->set_end(4);
  }
  v1::IdleDevices& idle = *plan.add_notes()->mutable_idle();
  for (int i = 0; i < 12; ++i) {
    v1::IdleKind& kind = *idle.add_kinds();
    kind.set_kind("KIND-" + std::to_string(i));
    kind.set_devices(100 + i);
    kind.add_machines("idle" + std::to_string(i));
  }
  SummaryCommands commands;
  commands.weights = "/models/" + std::string(120, 'w');
  commands.plan_file = "/plans/" + std::string(120, 'p') + ".json";
  const std::string text = PlanSummary(plan, commands);
  INFO(text);
  CHECK_THAT(text, !Contains(" ...") && Contains(last) && Contains("KIND-11") &&
                       Contains(commands.weights) && Contains(commands.plan_file) &&
                       Contains("4.000 requests/s (predicted), 844 output tokens/s"));
}

TEST_CASE("what a plan promises after the loss of a machine stands in the first line") {
  v1::DeploymentPlan plan = Predicted();
  CHECK_THAT(PlanSummary(plan, {}), !Contains("after the loss"));
  plan.mutable_survival()->set_requests_per_second(2.5);
  CHECK_THAT(PlanSummary(plan, {}),
             Contains(": up to 4.000 requests/s (predicted), 2.500 after the loss of any"));
}

TEST_CASE("latencies that the formula has no figure for are not left out silently") {
  v1::DeploymentPlan plan = Predicted();
  v1::Replica& replica = *plan.add_replicas();
  replica.set_name("r0");
  replica.set_role(v1::REPLICA_ROLE_PREFILL);
  CHECK_THAT(PlanTable(plan), Contains("mean TTFT 1 s, mean TPOT 100.0 ms") &&
                                  !Contains("unknown"));  // nothing is sent to r0
  v1::RoutingShare& share = *plan.add_routing();
  share.set_prefill_replica("r0");
  share.set_decode_replica("r1");
  plan.mutable_prediction()->clear_time_to_first_token_seconds();
  CHECK_THAT(PlanTable(plan), Contains("predicted at 3.000 requests/s: TTFT unknown") &&
                                  Contains("r0: prefill; up to 0.000 requests/s, TTFT unknown"));
  plan.clear_prediction();
  CHECK_THAT(PlanTable(plan), !Contains("predicted") && !Contains("unknown"));
}

TEST_CASE("in which code KV is sent stands beside the share, unless it is sent as it is") {
  v1::DeploymentPlan plan = Predicted();
  v1::RoutingShare& share = *plan.add_routing();
  share.set_share(1);
  share.set_prefill_replica("r0");
  share.set_decode_replica("r1");
  share.set_kv_codec("raw");
  CHECK_THAT(PlanTable(plan), Contains("100.0 %  r0 -> r1\n"));
  share.set_kv_codec("int4");
  CHECK_THAT(PlanTable(plan), Contains("100.0 %  r0 -> r1 (KV sent as int4)\n"));
}

TEST_CASE("latencies at a rate that is not attained are called so") {
  v1::DeploymentPlan plan = Predicted();
  CHECK(LatencyText(plan) == "TTFT 1 s, TPOT 100 ms (means at 3 requests/s, predicted)");
  v1::SimulatedFigures& seen = *plan.mutable_simulated();
  seen.set_latency_requests_per_second(3);
  seen.set_time_to_first_token_mean_seconds(385);
  seen.set_time_per_output_token_mean_seconds(0.09);
  seen.set_time_to_first_token_p99_seconds(740);
  seen.set_time_per_output_token_p99_seconds(0.1);
  seen.set_attained_requests_per_second(3.5);
  seen.set_attained_seeds(3);
  CHECK(LatencyText(plan) ==
        "TTFT 385 s, TPOT 90 ms (means at 3 requests/s, simulated); p99 740 s and 100 ms");
  seen.set_attained_requests_per_second(2.5);
  CHECK(LatencyText(plan) ==
        "TTFT 385 s, TPOT 90 ms (means at 3 requests/s, more than it attains, simulated)");
}

TEST_CASE("what is not proved is called heuristic, how close its bound may be") {
  v1::DeploymentPlan plan;
  v1::Certificate& certificate = *plan.mutable_certificate();
  certificate.set_upper_bound(10);
  certificate.set_gap(0.03);
  for (const v1::Objective objective : {v1::OBJECTIVE_THROUGHPUT, v1::OBJECTIVE_GOODPUT}) {
    certificate.set_objective(objective);
    CHECK_THAT(BoundLine(plan),
               Catch::StartsWith("heuristic, not proved to be the best: a better plan could serve "
                                 "10.000 requests/s") &&
                   Contains("the gap is 3.00 %"));
  }
}

TEST_CASE("an estimate that several kinds share is named once") {
  v1::DeploymentPlan plan;
  CHECK(EstimatesText(plan) == "");
  v1::Assumptions& assumed = *plan.mutable_assumptions();
  for (const char* kind : {"A100", "L40S"}) {
    v1::KindTerms& terms = *assumed.add_kinds();
    terms.set_kind(kind);
    terms.set_compute_efficiency(0.6);
    v1::SourcedPrices& prices = *assumed.mutable_prices()->add_devices();
    prices.set_source("one provider");
    prices.add_prices()->set_kind(kind);
  }
  v1::KindTerms& fitted = *assumed.add_kinds();
  fitted.set_kind("L4");
  fitted.set_compute_efficiency(0.6);
  fitted.set_efficiency_source("fitted");
  CHECK(EstimatesText(plan) ==
        "ESTIMATED, not measured: efficiencies of A100, L40S; prices of devices");
}

TEST_CASE("columns stand below each other, however long the names") {
  v1::DeploymentPlan plan = Predicted();
  v1::Replica& replica = *plan.add_replicas();
  for (const char* device : {"a/0", "a-machine-with-a-very-long-name/0"}) {
    v1::PlannedWorker& worker = *replica.add_stages()->add_workers();
    worker.set_device(device);
    worker.set_kind("A100-80");
    worker.mutable_share()->mutable_layers()->set_end(10);
    worker.set_available_bytes(int64_t{1} << 30);
  }
  const std::string table = PlanTable(plan);
  const auto column = [&](const std::string& what, size_t from) {
    const size_t at = table.find(what, from);
    REQUIRE(at != std::string::npos);
    return at - table.rfind('\n', at);
  };
  const size_t header = table.find("  stage  devices"), first = table.find("  0      a/0");
  const size_t second = table.find("  1      a-machine");
  CHECK(column("0-9", first) == column("layers", header));
  CHECK(column("0-9", second) == column("layers", header));
}

TEST_CASE("replicas that read alike are shown once, with all their names") {
  v1::DeploymentPlan plan = Predicted();
  for (int i = 0; i < 10; ++i) {
    const std::string name = "r" + std::to_string(i);
    v1::Replica& replica = *plan.add_replicas();
    replica.set_name(name);
    replica.set_role(v1::REPLICA_ROLE_BOTH);
    v1::PlannedWorker& worker = *replica.add_stages()->add_workers();
    worker.set_device(name + "-machine/0");
    worker.set_kind(i == 1 ? "A40" : "L4");
    v1::RoutingShare& share = *plan.add_routing();
    share.set_prefill_replica(name);
    share.set_decode_replica(name);
    share.set_share(0.1);
    v1::Pace& pace = *plan.mutable_certificate()->add_pace();
    pace.set_replica(name);
    pace.set_kind("L4");
  }
  const std::string table = PlanTable(plan), names = "r0, r2, r3, r4, r5, r6 and 3 more";
  CHECK_THAT(table, Contains("\n" + names +
                             " (9 alike, shown with the devices of r0): prefill and decode;") &&
                        Contains("\nr1: prefill and decode;") && Contains("r0-machine/0 L4") &&
                        Contains("r1-machine/0 A40"));
  CHECK_THAT(table, Contains("\n  r2: r2-machine/0\n  r3: r3-machine/0\n") &&
                        Contains("\n  r6: r6-machine/0\n  plan.json has the devices of 3 more\n") &&
                        !Contains("r7-machine"));
  CHECK_THAT(table, Contains("   10.0 %  each of r0, r1, r2, r3, r4, r5 and 4 more\n"));
  CHECK_THAT(table, Contains("  r0, r1, r2, r3, r4, r5 and 4 more: stage 0 (L4) is the slowest\n"));
}

TEST_CASE("devices of replicas that read alike stand below, stage by stage, as far as lines go") {
  v1::DeploymentPlan plan = Predicted();
  const auto add = [&](int kv_tokens, const std::string& machine) {
    v1::Replica& replica = *plan.add_replicas();
    replica.set_name("r" + std::to_string(plan.replicas_size() - 1));
    replica.mutable_prediction()->set_kv_capacity_tokens(kv_tokens);
    for (const char* site : {"-east", "-west"}) {
      v1::Stage& stage = *replica.add_stages();
      for (int i = 0; i < 4; ++i)
        stage.add_workers()->set_device(machine + site + "/" + std::to_string(i));
    }
  };
  add(1, "a");
  add(1, "b");
  CHECK_THAT(PlanTable(plan), Contains("\n  r1: b-east/0..3, b-west/0..3\n") &&
                                  !Contains("plan.json has the devices"));
  for (int i = 2; i < 100; ++i) add(i / 2 + 1, "m" + std::to_string(i));
  const std::string table = PlanTable(plan);
  CHECK_THAT(table, Contains("\n  r79: m79-east/0..3, m79-west/0..3\n") && !Contains("r81: m81") &&
                        Contains("r80, r81 (2 alike, ") &&
                        Contains("\n  plan.json has the devices of 1 more\n"));
}

TEST_CASE("of many reasons for the pace the first are told, and who has others") {
  v1::DeploymentPlan plan = Predicted();
  for (int i = 0; i < 14; ++i) {
    v1::Pace& pace = *plan.mutable_certificate()->add_pace();
    pace.set_replica("r" + std::to_string(i));
    pace.set_slowest_stage(i);
    pace.set_kind("L4");
  }
  CHECK_THAT(PlanTable(plan),
             Contains("  r11: stage 11 (L4) is the slowest\n  r12, r13: see plan.json\n") &&
                 !Contains("stage 12"));
}

TEST_CASE("what was asked of each class is said as it was asked") {
  v1::DeploymentPlan plan = Predicted();
  plan.mutable_simulated()->set_attainment(0.5);
  for (const auto& [name, share, asked] : {std::tuple("chat", 0.7, 0.9), {"code", 0.3, 0.8}}) {
    v1::ClassPrediction& one = *plan.mutable_prediction()->add_classes();
    one.set_name(name);
    one.set_share(share);
    one.mutable_objectives()->set_attainment(asked);
  }
  CHECK_THAT(PlanTable(plan), Contains("where 87 % are asked (90 % of chat, 80 % of code): below"));
  plan.mutable_prediction()->mutable_classes(1)->mutable_objectives()->set_attainment(0.9);
  CHECK_THAT(PlanTable(plan), Contains("where 90 % are asked: below"));
}

TEST_CASE("a simulation that is far from the prediction says how far") {
  v1::DeploymentPlan plan = Predicted();
  v1::SimulatedFigures& seen = *plan.mutable_simulated();
  seen.set_time_to_first_token_mean_seconds(3.1);
  seen.set_time_per_output_token_mean_seconds(0.11);
  seen.set_time_per_output_token_p50_seconds(0.09);
  CHECK_THAT(PlanTable(plan), Contains("TTFT mean 3.1 s (3.1 times the predicted), p50") &&
                                  Contains("TPOT mean 110.0 ms, p50 90.0 ms, p99"));
  CHECK_THAT(PlanTable(plan), Contains("trust the simulation where times differ by more"));
  // Another draw may come to as much as the prediction.
  seen.set_time_to_first_token_error_seconds(1.2);
  CHECK_THAT(PlanTable(plan), Contains("TTFT mean 3.1 s +- 1.2 s, p50"));
  CHECK_THAT(PlanTable(plan), !Contains("trust the simulation"));
  seen.set_time_to_first_token_error_seconds(0.3);
  CHECK_THAT(PlanTable(plan), Contains("TTFT mean 3.1 s +- 0.3 s (3.1 times the predicted), p50"));
  CHECK_THAT(PlanTable(plan), Contains("trust the simulation"));
  seen.clear_time_to_first_token_error_seconds();
  seen.set_time_to_first_token_mean_seconds(1.3);
  CHECK_THAT(PlanTable(plan), !Contains("trust the simulation"));
  seen.set_time_to_first_token_mean_seconds(0.5);
  CHECK_THAT(PlanTable(plan), Contains("TTFT mean 0.5 s (0.5 times the predicted)"));
  seen.set_time_per_output_token_mean_seconds(0.3);
  CHECK_THAT(PlanTable(plan), Contains("TPOT mean 300.0 ms (3 times the predicted), p50"));
}

TEST_CASE("a simulation of too few requests to fill the replicas says so") {
  v1::DeploymentPlan plan = Predicted();
  plan.mutable_basis()->set_output_tokens(100);  // 11 s for one
  v1::SimulatedFigures& seen = *plan.mutable_simulated();
  seen.set_offered_requests_per_second(4);
  seen.set_requests(400);
  CHECK_THAT(PlanTable(plan),
             Contains("these requests arrive within 100 s, and one takes 11 s: too few"));
  seen.set_requests(480);
  CHECK_THAT(PlanTable(plan), !Contains("too few"));
}

TEST_CASE("a simulation in which too few are in time is told, whatever was predicted") {
  v1::DeploymentPlan plan = Predicted();
  v1::ClassPrediction& one = *plan.mutable_prediction()->add_classes();
  one.set_share(1);
  one.mutable_objectives()->set_attainment(0.9);
  one.set_attainment(0.91);
  v1::SimulatedFigures& seen = *plan.mutable_simulated();
  seen.set_latency_requests_per_second(3);
  seen.set_attainment(0.725);
  CHECK_THAT(PlanTable(plan),
             Contains("warning: in the simulation 72.5 % of the requests are within their limits, "
                      "where 90 % are asked: below 3.000 requests/s more are\n"));
  seen.set_attainment(0.89);
  CHECK_THAT(PlanTable(plan), !Contains("warning"));
}

TEST_CASE("the head of a plan for goodput shows what the simulation attains of its promise") {
  v1::DeploymentPlan plan = Predicted();
  plan.mutable_prediction()->set_requests_per_second(4);
  v1::SimulatedFigures& seen = *plan.mutable_simulated();
  CHECK_THAT(PlanTable(plan), !Contains("by simulation") && Contains("no request was answered") &&
                                  !Contains("TTFT mean 0 s"));
  seen.set_attained_requests_per_second(3.2);
  CHECK_THAT(PlanTable(plan), Contains("up to 4.000 requests/s (by simulation: 3.200)") &&
                                  Contains("up to 4.000 requests/s, the simulation shows it up to "
                                           "3.200: rely on the simulation\n"));
  seen.set_attained_requests_per_second(3.97);
  CHECK_THAT(PlanTable(plan), !Contains("by simulation") && !Contains("warning") &&
                                  Contains("up to 3.970 requests/s (cost model: 4.000)"));
}

TEST_CASE("limits that too few requests keep are told, unless the plan is for goodput") {
  v1::DeploymentPlan plan = Predicted();
  v1::ClassPrediction& one = *plan.mutable_prediction()->add_classes();
  one.mutable_objectives()->set_attainment(0.9);
  one.set_attainment(0.95);
  CHECK_THAT(PlanTable(plan), !Contains("warning"));
  one.set_attainment(0.5);
  CHECK_THAT(PlanTable(plan),
             Contains("warning: fewer requests are within their limits than asked"));
  plan.mutable_basis()->set_goodput(true);
  CHECK_THAT(PlanTable(plan), !Contains("warning"));
}

TEST_CASE("classes are judged together where several have no limits of their own") {
  v1::DeploymentPlan plan = Predicted();
  plan.mutable_prediction()->add_classes()->set_name("a");
  plan.mutable_prediction()->add_classes()->set_judged_with(1);
  CHECK_THAT(PlanTable(plan), !Contains("together"));
  plan.mutable_prediction()->add_classes()->set_name("c");
  CHECK_THAT(PlanTable(plan), Contains("%, all classes without their own limits together)"));
}

void AddReplica(const char* name, int devices, v1::DeploymentPlan* plan) {
  v1::Replica& replica = *plan->add_replicas();
  replica.set_name(name);
  v1::Stage& stage = *replica.add_stages();
  for (int i = 0; i < devices; ++i) stage.add_workers();
}

void AddShare(const char* prefill, const char* decode, double part, v1::DeploymentPlan* plan) {
  v1::RoutingShare& share = *plan->add_routing();
  share.set_prefill_replica(prefill);
  share.set_decode_replica(decode);
  share.set_share(part);
}

TEST_CASE("replicas that serve next to nothing are named") {
  v1::DeploymentPlan plan;
  AddReplica("r0", 4, &plan);
  AddReplica("r1", 4, &plan);
  AddShare("r0", "r1", 0.5, &plan);  // r1 only decodes
  AddShare("r0", "r0", 0.5, &plan);
  CHECK(WeakReplicasLine(plan) == "");
  AddReplica("r2", 8, &plan);
  AddShare("r2", "r2", 0.0025, &plan);
  CHECK(WeakReplicasLine(plan) ==
        "r2 serves 0.25 % of the requests with 8 of the 16 devices in use: leaving it out loses no "
        "more than that");
  AddReplica("r3", 4, &plan);
  CHECK_THAT(WeakReplicasLine(plan), Contains("r2, r3 serve together 0.25 %"));
}

TEST_CASE("figures have as many digits as matter") {
  CHECK(UsdText(0.12721) == "0.127");
  CHECK(UsdText(1.6) == "1.60");
  CHECK(UsdText(36.84) == "36.84");
  CHECK(UsdText(240.3) == "240");
  CHECK(ChangeText(1.048) == "+4.8 %");
  CHECK(ChangeText(0.99996) == "unchanged");
  CHECK(ChangeText(1, "as much") == "as much");
}

}  // namespace
}  // namespace tessera::scheduler
