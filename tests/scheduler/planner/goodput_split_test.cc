// Goodput with prefill and decode split between replicas, and without: where either wins, the
// simulator says so too, and where room for KV is short, a split plan knows the wait for it.
#include <catch2/catch.hpp>

#include "proto/document.h"
#include "proto/layers/layers.h"
#include "scheduler/plan_check/plan_check.h"
#include "scheduler/planner/planner.h"
#include "scheduler/planner/written_layout.h"
#include "scheduler/simulator/goodput.h"
#include "tests/scheduler/planner/written_input.h"

namespace tessera::scheduler {
namespace {

struct Seen {
  bool split = false;
  double promised = 0, simulated = 0;  // requests per second
  double attained = 0;                 // at the promised rate, simulated
  double ttft_seconds = 0;             // predicted
};

// `layout` empty: the search's.
Seen PlanAndSimulate(const std::string& cluster, const std::string& workload, bool allow_split,
                     const std::string& layout = "") {
  const PlannerInput input = tests::WrittenInput(cluster, "Llama-3-8B", workload);
  PlannerOptions options;
  options.goal = Goal::kGoodput;
  options.simulate = false;
  options.allow_split = allow_split;
  if (!layout.empty()) {
    v1::WrittenLayout written;
    REQUIRE(ReadDocument(layout, "l.yaml", &written).message() == "");
    options.given_search = GivenLayout(written, "l.yaml");
  }
  const auto plan = MakePlan(input, options);
  REQUIRE(plan.status().message() == "");
  CHECK(CheckPlanOn(*plan, input.cluster, input.catalogue).message() == "");
  const ClusterGraph graph = *MakeClusterGraph(input.cluster, input.catalogue, "c.yaml");
  const WorkloadSamples samples = *SamplesOf(input.workload, {}, 8192, "w.yaml");
  const auto replicas = ReplicasOfPlan(*plan, graph, {});
  REQUIRE(replicas.status().message() == "");
  Seen seen;
  for (const v1::Replica& replica : plan->replicas())
    seen.split = seen.split || replica.role() != v1::REPLICA_ROLE_BOTH;
  seen.promised = plan->prediction().requests_per_second();
  seen.ttft_seconds = plan->prediction().time_to_first_token_seconds();
  const GoodputQuestion question = {&*replicas, &samples.classes};
  const auto simulated = SimulatedGoodputUpTo(question, 0, 3 * seen.promised);
  REQUIRE(simulated.status().message() == "");
  seen.simulated = *simulated;
  const auto at = SimulateAt(question, seen.promised);
  REQUIRE(at.status().message() == "");
  seen.attained = AttainedByClass(*at, samples.classes)[0];
  return seen;
}

std::string Requests(const std::string& limits, const std::string& lengths) {
  return "{objectives: {" + limits + ", attainment: 0.9}, classes: [{lengths: [{" + lengths +
         "}]}]}";
}

// Compute without memory bandwidth, and the reverse: an L40S reads the weights in 19 ms.
std::string Unlike(const std::string& link) {
  return R"(
machines:
- {name: c1, devices: [{kind: L40S, count: 1}], inside: {bandwidth: 64 GB/s, latency: 5 us}}
- {name: c2, devices: [{kind: L40S, count: 1}], inside: {bandwidth: 64 GB/s, latency: 5 us}}
- {name: d, devices: [{kind: A100-80, count: 1}], inside: {bandwidth: 300 GB/s, latency: 3 us}}
tiers: {site: {bandwidth: )" +
         link + ", latency: 10 us}}\n";
}
const std::string kTwentyMs = Requests("time_to_first_token: 2 s, time_per_output_token: 20 ms",
                                       "prompt_tokens: 3000, output_tokens: 200");

TEST_CASE("where prompts between its tokens keep the fast reader from its TPOT, splitting wins") {
  const Seen split = PlanAndSimulate(Unlike("400 Gbit/s"), kTwentyMs, true);
  const Seen whole = PlanAndSimulate(Unlike("400 Gbit/s"), kTwentyMs, false);
  INFO("promised " << split.promised << " and " << whole.promised << ", simulated "
                   << split.simulated << " and " << whole.simulated);
  CHECK(split.split);
  CHECK_FALSE(whole.split);
  CHECK(split.promised > 1.4 * whole.promised);
  CHECK(split.simulated > 1.3 * whole.simulated);
  CHECK(split.simulated >= 0.9 * split.promised);
}

TEST_CASE("a model whose KV cannot travel is planned whole, and one that needs it on one stage") {
  PlannerInput input = tests::WrittenInput(Unlike("400 Gbit/s"), "Llama-3-8B", kTwentyMs);
  PlannerOptions options;
  options.goal = Goal::kGoodput;
  options.simulate = false;
  // Half of the layers have heads of another size.
  v1::LayerKind other = input.model.kinds(0);
  other.mutable_attention()->set_head_dim(2 * other.attention().head_dim());
  input.model.mutable_layers(0)->set_count(16);
  AppendLayers(other, 16, &input.model);
  const auto plan = MakePlan(input, options);
  REQUIRE(plan.status().message() == "");
  for (const v1::Replica& replica : plan->replicas()) {
    CHECK(replica.role() == v1::REPLICA_ROLE_BOTH);
  }
  options.require_split = true;
  CHECK_THAT(std::string(MakePlan(input, options).status().message()),
             Catch::Contains("which are not handed over: leave out --split"));

  // Two cards, as one is too small: two ranks over a slow link rather than two stages.
  constexpr char kSmall[] = R"(
machines:
- {name: a, devices: [{kind: RTX3060, count: 2}], inside: {bandwidth: 1 GB/s, latency: 300 us}}
)";
  input = tests::WrittenInput(kSmall, "Llama-3-8B");
  const auto stages_of = [&input]() {
    const auto made = MakePlan(input, {});
    REQUIRE(made.status().message() == "");
    REQUIRE(made->replicas_size() == 1);
    return made->replicas(0).stages_size();
  };
  CHECK(stages_of() == 2);
  input.model.set_per_layer_width(1);
  CHECK(stages_of() == 1);
}

TEST_CASE("over a slow link the same devices serve more unsplit") {
  const Seen chosen = PlanAndSimulate(Unlike("1 Gbit/s"), kTwentyMs, true);
  const Seen forced = PlanAndSimulate(Unlike("1 Gbit/s"), kTwentyMs, true, R"({replicas: [
{role: prefill, stages: [{devices: [c1/0], layers: 32}]},
{role: prefill, stages: [{devices: [c2/0], layers: 32}]},
{role: decode, stages: [{devices: [d/0], layers: 32}]}]})");
  INFO("promised " << chosen.promised << " and " << forced.promised << ", simulated "
                   << chosen.simulated << " and " << forced.simulated);
  CHECK_FALSE(chosen.split);
  CHECK(forced.split);
  CHECK(chosen.promised > forced.promised);
  CHECK(chosen.simulated > forced.simulated);
}

TEST_CASE("among like devices small chunks beside decoding serve more than splitting") {
  constexpr char kAlike[] = R"(
machines:
- {name: a, devices: [{kind: H100-SXM, count: 2}], inside: {bandwidth: 450 GB/s, latency: 3 us}}
- {name: b, devices: [{kind: H100-SXM, count: 2}], inside: {bandwidth: 450 GB/s, latency: 3 us}}
tiers: {site: {bandwidth: 400 Gbit/s, latency: 10 us}}
)";
  const std::string tight = Requests("time_to_first_token: 1 s, time_per_output_token: 7 ms",
                                     "prompt_tokens: 3000, output_tokens: 200");
  const Seen chosen = PlanAndSimulate(kAlike, tight, true);
  const Seen forced = PlanAndSimulate(kAlike, tight, true, R"({replicas: [
{role: prefill, stages: [{devices: [a/0], layers: 32}]},
{role: prefill, stages: [{devices: [a/1], layers: 32}]},
{role: decode, stages: [{devices: [b/0..1], layers: 32}]}]})");
  INFO("promised " << chosen.promised << " and " << forced.promised << ", simulated "
                   << chosen.simulated << " and " << forced.simulated);
  CHECK_FALSE(chosen.split);
  CHECK(chosen.promised > 1.05 * forced.promised);
  CHECK(chosen.simulated > 1.05 * forced.simulated);
}

TEST_CASE("what a split plan promises it attains where KV is short and where links are") {
  const auto cluster = [](const std::string& link) {
    return R"(
machines:
- {name: a, devices: [{kind: H100-SXM, count: 2}], inside: {bandwidth: 450 GB/s, latency: 3 us}}
- {name: b, devices: [{kind: A6000, count: 2}], inside: {bandwidth: 50 GB/s, latency: 3 us}}
tiers: {site: {bandwidth: )" +
           link + ", latency: 10 us}}\n";
  };
  constexpr char kOneToOne[] = R"({replicas: [
{role: prefill, stages: [{devices: [a/0], layers: 32}]},
{role: decode, stages: [{devices: [b/0], layers: 32}]}]})";
  constexpr char kOneToTwo[] = R"({replicas: [
{role: prefill, stages: [{devices: [a/0], layers: 32}]},
{role: decode, stages: [{devices: [b/0], layers: 32}]},
{role: decode, stages: [{devices: [b/1], layers: 32}]}]})";
  // Room for 34 sequences where they decode; the prompts take a seventh of a second each.
  const std::string of_kv =
      Requests("time_to_first_token: 1 s", "prompt_tokens: 6000, output_tokens: 400");
  const Seen kv = PlanAndSimulate(cluster("400 Gbit/s"), of_kv, true, kOneToOne);
  INFO("promised " << kv.promised << ", simulated " << kv.simulated << "; TTFT "
                   << kv.ttft_seconds);
  CHECK(kv.simulated >= 0.9 * kv.promised);
  CHECK(kv.simulated <= 1.2 * kv.promised);
  CHECK(kv.attained >= 0.75);
  CHECK(kv.ttft_seconds > 0.25);  // 0.14 s without the wait for room
  // As many as the link carries, nearly.
  const std::string of_link = Requests("time_to_first_token: 3 s, time_per_output_token: 100 ms",
                                       "prompt_tokens: 3000, output_tokens: 100");
  const Seen link = PlanAndSimulate(cluster("10 Gbit/s"), of_link, true, kOneToTwo);
  INFO("promised " << link.promised << ", simulated " << link.simulated);
  CHECK(link.simulated >= 0.85 * link.promised);
  CHECK(link.simulated <= 1.2 * link.promised);
}

}  // namespace
}  // namespace tessera::scheduler
