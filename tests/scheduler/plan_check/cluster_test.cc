// plan_check against figures and against the cluster description: each property is broken once.
#include <catch2/catch.hpp>
#include <functional>
#include <string>

#include "scheduler/input/catalogue.h"
#include "scheduler/plan_check/plan_check.h"
#include "scheduler/planner/planner.h"
#include "scheduler/planner/report/note_text.h"
#include "scheduler/search/layout/assemble.h"
#include "tests/scheduler/planner/written_input.h"

namespace tessera::scheduler {
namespace {

// Two sites; every machine and site has an uplink of its own.
constexpr char kCluster[] = R"(
machines:
- {name: a, site: east, devices: [{kind: A100-40, count: 2}], uplink: {bandwidth: 50 Gbit/s, latency: 10 us}}
- {name: b, site: east, devices: [{kind: A100-40, count: 2}]}
- {name: c, site: west, devices: [{kind: L4, count: 2}]}
tiers:
  site: {bandwidth: 40 Gbit/s, latency: 20 us}
  region: {bandwidth: 20 Gbit/s, latency: 1 ms}
sites:
- {name: west, uplink: {bandwidth: 30 Gbit/s, latency: 1 ms}}
)";

LayoutStage Stage(int pool, int width, int layers) { return {pool, width, layers}; }

PlannerInput Input(const std::string& cluster) {
  return tests::WrittenInput(cluster, "Qwen2.5-14B");
}

// r0 prefills on a, r1 decodes over b and c, two stages; so there are hops and KV on the links.
absl::StatusOr<v1::DeploymentPlan> SplitPlanOn(const PlannerInput& input,
                                               PlannerOptions options = {}) {
  options.given_search = [](const PlacementProblem& problem) {
    PlacedReplica prefill, decode;
    prefill.role = Role::kPrefill;
    prefill.stages = {Stage(0, 2, 48)};
    decode.role = Role::kDecode;
    decode.stages = {Stage(1, 2, 40), Stage(2, 2, 8)};
    return Assemble(problem, {prefill, decode});
  };
  return MakePlan(input, options);
}

struct Case {
  PlannerInput input = Input(kCluster);
  v1::DeploymentPlan plan;

  Case() {
    const auto made = SplitPlanOn(input);
    REQUIRE(made.status().message() == "");
    plan = *made;
  }
  std::string Reason() const {
    return std::string(CheckPlanOn(plan, input.cluster, input.catalogue).message());
  }
  v1::PlannedWorker& Worker(int replica, int stage, int rank) {
    return *plan.mutable_replicas(replica)->mutable_stages(stage)->mutable_workers(rank);
  }
};

using Catch::Contains;

}  // namespace

TEST_CASE("a plan of the planner passes, and states what its links carry") {
  Case c;
  CHECK(c.Reason() == "");
  // a -> b and a -> c carry KV, b -> c activations; then two uplinks.
  REQUIRE(c.plan.links_size() == 5);
  // By hand: 48 layers, 8 kv heads of 128, keys and values of 2 bytes, 1000 tokens, 8 layers for c.
  const double rate = c.plan.prediction().requests_per_second();
  REQUIRE(rate > 0);
  REQUIRE(c.plan.routing(0).kv_codec() == "int8");
  const double ratio = 0.53125;
  CHECK(c.plan.links(1).from() == "a");
  CHECK(c.plan.links(1).to() == "c");
  CHECK(c.plan.links(1).bytes_per_second() == Approx(rate * 1000 * 8 * 8 * 128 * 2 * 2 * ratio));
  CHECK(c.plan.links(2).to() == "c");
  CHECK(c.plan.links(2).bytes_per_second() == Approx(rate * 199 * 5120 * 2));
  CHECK(c.plan.links(3).from() == "a");
  CHECK(c.plan.links(3).bytes_per_second() ==
        Approx(c.plan.links(0).bytes_per_second() + c.plan.links(1).bytes_per_second()));
  CHECK(c.plan.links(4).from() == "west");
  c.plan.mutable_routing(0)->set_kv_codec("foo");
  CHECK_THAT(c.Reason(), Contains("kv_codec is \"foo\", which is none of raw, int8, int4"));
}

TEST_CASE("without a runtime reserve, rows travel as CPU workers send them") {
  Case c;
  const auto made = SplitPlanOn(c.input, {.runtime_reserve_bytes = 0});
  REQUIRE(made.status().message() == "");
  c.plan = *made;
  CHECK(c.Reason() == "");
  CHECK(c.plan.links(2).to() == "c");
  CHECK(c.plan.links(2).bytes_per_second() ==
        Approx(c.plan.prediction().requests_per_second() * 199 * 5120 * 4));
}

TEST_CASE("weights, KV pool and KV limit are computed again") {
  Case c;
  c.Worker(1, 0, 1).set_weight_bytes(c.Worker(1, 0, 1).weight_bytes() / 2);
  CHECK_THAT(c.Reason(), Contains("replica r1, stage 0: device b/1 is said to hold") &&
                             Contains("GiB are missing"));
  c = Case();
  c.Worker(1, 1, 0).set_kv_bytes(c.Worker(1, 1, 0).kv_bytes() - (1 << 20));
  CHECK_THAT(c.Reason(), Contains("replica r1, stage 1: device c/0 has") && Contains("for KV"));
  c = Case();
  c.Worker(0, 0, 0).set_available_bytes(1LL << 34);
  CHECK_THAT(c.Reason(), Contains("device a/0 needs") && Contains("GiB are missing"));
  c = Case();
  c.plan.mutable_replicas(1)->mutable_prediction()->set_kv_capacity_tokens(1000);
  CHECK_THAT(c.Reason(), Contains("the longest sequence of the workload has 1200"));
  c = Case();
  c.plan.mutable_basis()->set_decode_context_tokens(1e6);
  CHECK_THAT(c.Reason(), Contains("decode_context_tokens is 1e+06"));
  c = Case();
  c.plan.mutable_basis()->set_requests_per_second(1e4);
  CHECK_THAT(c.Reason(), Contains("replica r1") && Contains("are kept free"));
}

TEST_CASE("figures that were left out let nothing through") {
  const auto without = [](const auto& clear) {
    Case c;
    for (int stage = 0; stage < 2; ++stage) {
      for (int rank = 0; rank < 2; ++rank) clear(&c.Worker(1, stage, rank));
    }
    return std::string(CheckPlan(c.plan).message());
  };
  using Worker = v1::PlannedWorker;
  CHECK_THAT(without([](Worker* w) { w->clear_weight_bytes(); }),
             Contains("device b/0 is said to hold 0.000 GiB of weights"));
  CHECK_THAT(without([](Worker* w) { w->clear_kv_bytes(); }),
             Contains("device b/0 has 0.000 GiB for KV"));
  CHECK_THAT(without([](Worker* w) { w->clear_activation_bytes(); }),
             Contains("device b/0 has 0.000000 GiB for activations, but a step of 2048 rows"));
  CHECK_THAT(without([](Worker* w) { w->clear_available_bytes(); }),
             Contains("and offers 0.00 GiB"));
}

TEST_CASE("without any figure what the ranges hold must fit") {
  Case c;
  v1::DeploymentPlan bare;
  *bare.mutable_model() = c.plan.model();
  *bare.mutable_replicas() = c.plan.replicas();
  for (v1::Replica& replica : *bare.mutable_replicas()) {
    replica.clear_prediction();
    for (v1::Stage& stage : *replica.mutable_stages()) {
      for (v1::PlannedWorker& worker : *stage.mutable_workers()) {
        worker.clear_weight_bytes();
        worker.clear_kv_bytes();
        worker.clear_activation_bytes();
      }
    }
  }
  CHECK(CheckPlan(bare).message() == "");
  bare.mutable_replicas(0)->mutable_stages(0)->mutable_workers(1)->set_available_bytes(1LL << 33);
  CHECK_THAT(std::string(CheckPlan(bare).message()),
             Contains("device a/1 needs 13.") && Contains("and offers 8.00 GiB"));
}

TEST_CASE("weights are not loaded faster than the disks that the description names") {
  Case c;
  CHECK(c.Reason() == "");
  c.input.cluster.mutable_machines(1)->set_weight_read_bytes_per_second(1e9);
  CHECK_THAT(c.Reason(), Contains("replica r1: load_seconds is ") && Contains("machine b reads"));
}

TEST_CASE("a replica is sent no more than it serves") {
  Case c;
  auto* prediction = c.plan.mutable_replicas(0)->mutable_prediction();
  prediction->set_requests_per_second(prediction->requests_per_second() / 10);
  CHECK_THAT(c.Reason(), Contains("replica r0 is sent"));
}

TEST_CASE("USD follow from the prices of devices, machines and spot") {
  Case c;
  v1::Prediction& all = *c.plan.mutable_prediction();
  // By hand: two A100-40 of the first machine, two of the second, two L4.
  const auto price = [&](const char* kind) {
    return FindKind(c.input.catalogue, kind)->price_usd_per_hour();
  };
  const double usd = 4 * price("A100-40") + 2 * price("L4");
  CHECK(all.usd_per_million_output_tokens() ==
        Approx(usd / 3600 / all.output_tokens_per_second() * 1e6));
  all.set_usd_per_million_output_tokens(all.usd_per_million_output_tokens() * 0.9);
  CHECK_THAT(c.Reason(), Contains("the plan: ") && Contains("its rented machines cost"));
  c = Case();
  v1::Prediction& one = *c.plan.mutable_replicas(1)->mutable_prediction();
  one.set_usd_per_million_output_tokens(one.usd_per_million_output_tokens() * 1.1);
  CHECK_THAT(c.Reason(), Contains("replica r1: ") && Contains("USD per million output tokens"));
  c = Case();
  c.input.cluster.mutable_machines(2)->set_price_usd_per_hour(40);
  CHECK_THAT(c.Reason(), Contains("USD per million output tokens"));
  v1::SpotMix& mix = *c.plan.add_spot();
  mix.set_machine("c");
  CHECK_THAT(c.Reason(), Contains("spot: c is no machine with a spot price"));
  // Machine c as spot: the whole costs what the mix says.
  c.input.cluster.mutable_machines(2)->set_spot_price_usd_per_hour(30);
  mix.set_target(1);
  mix.set_spot(1);
  mix.set_usd_per_hour(40);
  CHECK_THAT(c.Reason(), Contains("c is said to cost 40.0000 USD/h") && Contains("30.0000"));
  mix.set_usd_per_hour(30);
  mix.set_target(2);
  CHECK_THAT(c.Reason(), Contains("the plan uses 1"));
  mix.set_target(1);
  const double rate = c.plan.prediction().requests_per_second() * 200 * 3600;
  c.plan.mutable_prediction()->set_usd_per_million_output_tokens((4 * price("A100-40") + 30) /
                                                                 rate * 1e6);
  c.plan.mutable_replicas(1)->mutable_prediction()->set_usd_per_million_output_tokens(
      (2 * price("A100-40") + 35) / rate * 1e6);  // between the two prices
  CHECK(c.Reason() == "");
}

TEST_CASE("a machine with a price is paid whole, however little of it is used") {
  Case c;
  std::string described = kCluster;
  const std::string two = "devices: [{kind: L4, count: 2}]";
  described.replace(described.find(two), two.size(),
                    "price: 10 USD/h, devices: [{kind: L4, count: 4}]");
  c.input = Input(described);
  c.plan = *SplitPlanOn(c.input);
  CHECK(c.Reason() == "");
  const double others = 4 * FindKind(c.input.catalogue, "A100-40")->price_usd_per_hour();
  v1::Prediction& all = *c.plan.mutable_prediction();
  const double whole = all.usd_per_million_output_tokens();
  CHECK(whole == Approx((others + 10) / 3600 / all.output_tokens_per_second() * 1e6));
  // The part that its two used devices are of it.
  all.set_usd_per_million_output_tokens(whole * (others + 5) / (others + 10));
  CHECK_THAT(c.Reason(), Contains("the plan: ") && Contains("its rented machines cost"));
}

TEST_CASE("devices are those of the cluster") {
  Case c;
  c.Worker(0, 0, 0).set_device("z/0");
  CHECK_THAT(c.Reason(), Contains("device z/0 is not in the cluster description"));
  c = Case();
  c.Worker(0, 0, 0).set_device("a/2");
  CHECK_THAT(c.Reason(), Contains("device a/2 is not in the cluster description"));
  c = Case();
  c.Worker(0, 0, 0).set_kind("H100");
  CHECK_THAT(c.Reason(), Contains("device a/0 is a A100-40, the plan says H100"));
  c = Case();
  c.input.cluster.mutable_machines(2)->mutable_devices(0)->set_memory_bytes(1LL << 32);
  CHECK_THAT(c.Reason(), Contains("device c/0 (L4) needs") && Contains("GiB are missing"));
  c = Case();
  c.Worker(0, 0, 1).set_available_bytes(39LL << 30);
  CHECK_THAT(c.Reason(), Contains("offers 35.00 GiB, the plan says 39.00"));
}

TEST_CASE("no prediction beats the peaks of the devices") {
  Case c;
  c.plan.mutable_prediction()->clear_time_per_output_token_seconds();  // the mean of the replicas'
  c.plan.mutable_replicas(1)->mutable_prediction()->set_time_per_output_token_seconds(1e-3);
  CHECK_THAT(c.Reason(), Contains("replica r1: a TPOT of 1.00 ms is predicted"));
  // Unless its steps give as many tokens: 1 + 0.5 + 0.25 + 0.125.
  c = Case();
  c.plan.mutable_prediction()->clear_time_per_output_token_seconds();
  v1::Prediction& figures = *c.plan.mutable_replicas(1)->mutable_prediction();
  figures.set_time_per_output_token_seconds(11e-3);
  CHECK_THAT(c.Reason(), Contains("replica r1: a TPOT of 11.00 ms is predicted"));
  v1::DraftTerms& drafts = *c.plan.mutable_assumptions()->mutable_planning()->mutable_drafts();
  drafts.set_draft_tokens(3);
  drafts.set_acceptance(0.5);
  CHECK(c.Reason() == "");
  figures.set_time_per_output_token_seconds(6e-3);
  CHECK_THAT(c.Reason(), Contains("replica r1: a TPOT of 6.00 ms is predicted"));
  c = Case();
  c.plan.mutable_replicas(0)->mutable_prediction()->set_requests_per_second(1e4);
  CHECK_THAT(c.Reason(), Contains("replica r0") && Contains("whose peak is 312.0"));
  c = Case();
  c.plan.mutable_prediction()->clear_time_to_first_token_seconds();
  c.plan.mutable_replicas(0)->mutable_prediction()->set_time_to_first_token_seconds(1e-6);
  CHECK_THAT(c.Reason(), Contains("replica r0: a TTFT of 0.00 ms is predicted"));
}

TEST_CASE("links join what exchanges anything, and carry it") {
  Case c;
  c.input.cluster.mutable_tiers()->clear_region();
  CHECK_THAT(c.Reason(), Contains("machine c cannot be reached from b") ||
                             Contains("machine c cannot be reached from a"));
  c = Case();
  c.input.cluster.mutable_tiers()->mutable_site()->set_bandwidth_bytes_per_second(1e6);
  CHECK_THAT(c.Reason(), Contains("the link from a to b would carry"));
  c = Case();
  c.input.cluster.mutable_machines(0)->mutable_uplink()->set_bandwidth_bytes_per_second(1e6);
  CHECK_THAT(c.Reason(), Contains("the uplink of machine a would carry"));
  c = Case();
  c.input.cluster.mutable_sites(0)->mutable_uplink()->set_bandwidth_bytes_per_second(1e6);
  CHECK_THAT(c.Reason(), Contains("the uplink of site west would carry"));
  c = Case();
  c.plan.mutable_links(0)->set_bytes_per_second(1);
  CHECK_THAT(c.Reason(), Contains("the link from a to b is said to carry"));
  c = Case();
  c.plan.mutable_links()->DeleteSubrange(0, 1);
  CHECK_THAT(c.Reason(), Contains("the plan does not say what the link from a to b carries"));
}

TEST_CASE("what links can carry is the description's word, not the plan's") {
  Case c;
  REQUIRE(c.plan.links(3).from() == "a");
  CHECK(c.plan.links(1).capacity_bytes_per_second() == Approx(20e9 / 8));  // the tier
  CHECK(c.plan.links(3).capacity_bytes_per_second() == Approx(50e9 / 8));  // of machine a
  CHECK(c.plan.links(4).capacity_bytes_per_second() == Approx(30e9 / 8));  // of site west
  c.plan.mutable_links(3)->set_capacity_bytes_per_second(25e9 / 8);
  CHECK_THAT(c.Reason(), Contains("the uplink of a is said to have 25.000000 Gbit/s; the "
                                  "description gives it 50.000000"));
  c = Case();
  c.plan.mutable_links(4)->set_capacity_bytes_per_second(60e9 / 8);
  CHECK_THAT(c.Reason(), Contains("the uplink of west is said to have") && Contains("30.000000"));
  c = Case();
  c.plan.mutable_links(1)->set_capacity_bytes_per_second(1);
  CHECK_THAT(c.Reason(), Contains("the link from a to c is said to have") && Contains("20.000000"));
  c = Case();
  v1::LinkLoad& unheard = *c.plan.add_links();
  unheard.set_from("z");
  CHECK_THAT(c.Reason(), Contains("speaks of the uplink of z, which the description does not"));
  unheard.set_to("a");
  CHECK_THAT(c.Reason(), Contains("speaks of the link from z to a"));
}

TEST_CASE("an uplink narrower than the links behind it is what these have") {
  Case c;
  c.input.cluster.mutable_machines(0)->mutable_uplink()->set_bandwidth_bytes_per_second(15e9 / 8);
  c.input.cluster.mutable_sites(0)->mutable_uplink()->set_bandwidth_bytes_per_second(10e9 / 8);
  const auto made = SplitPlanOn(c.input);
  REQUIRE(made.status().message() == "");
  c.plan = *made;
  CHECK(c.Reason() == "");
  CHECK(c.plan.links(0).capacity_bytes_per_second() == Approx(15e9 / 8));  // a -> b, one site
  CHECK(c.plan.links(1).capacity_bytes_per_second() == Approx(10e9 / 8));  // a -> c, two sites
  c.plan.mutable_links(1)->set_capacity_bytes_per_second(15e9 / 8);
  CHECK_THAT(c.Reason(), Contains("the link from a to c is said to have") && Contains("10.000000"));
}

TEST_CASE("what shared links cannot carry is not promised") {
  PlannerInput input = Input(kCluster);
  // Two pipelines from a to b: the uplink of a would do for either, not for both.
  input.cluster.mutable_machines(0)->mutable_uplink()->set_bandwidth_bytes_per_second(20e6);
  PlannerOptions options;
  options.given_search = [](const PlacementProblem& problem) {
    PlacedReplica replica;
    replica.stages = {Stage(0, 1, 24), Stage(1, 1, 24)};
    return Assemble(problem, {replica, replica});
  };
  const auto plan = MakePlan(input, options);
  REQUIRE(plan.status().message() == "");
  CHECK(plan->prediction().requests_per_second() > 0);
  double sent = 0, could = 0;
  for (const v1::RoutingShare& share : plan->routing()) sent += share.share();
  for (const v1::Replica& replica : plan->replicas())
    could += replica.prediction().requests_per_second();
  CHECK(sent == Approx(1));
  CHECK(plan->prediction().requests_per_second() == Approx(could / 2).epsilon(0.3));
  bool said = false;
  for (const std::string& line : NoteLines(*plan))
    said = said || line.find("links that replicas share carry") != std::string::npos;
  CHECK(said);
}

TEST_CASE("a plan is for one model") {
  Case c;
  CHECK(CheckPlanIsFor(c.plan, c.input.model).message() == "");
  CHECK_THAT(std::string(CheckPlanIsFor(c.plan, *BuiltInModel("Qwen2.5-7B")).message()),
             Contains("the plan is for a model with layers = 48, Qwen2.5-7B has 28"));
}

}  // namespace tessera::scheduler
