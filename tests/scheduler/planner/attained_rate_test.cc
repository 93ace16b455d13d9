// The headline is a rate that simulations attain, and a trace is planned with few lengths.
#include "scheduler/planner/attained_rate.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "scheduler/input/length_buckets.h"
#include "scheduler/planner/planner.h"
#include "scheduler/search/math/seeded_random.h"
#include "scheduler/simulator/goodput.h"
#include "tests/scheduler/planner/written_input.h"

namespace tessera::scheduler {
namespace {

constexpr char kCluster[] =
    "machines:\n- {name: a, devices: [{kind: L4, count: 4}]}\n"
    "- {name: b, devices: [{kind: A40, count: 2}]}\n"
    "tiers: {site: {bandwidth: 10 Gbit/s, latency: 50 us}}";

TEST_CASE("what is printed first is attained with every seed") {
  const PlannerInput input = tests::WrittenInput(
      kCluster, "Llama-3-8B",
      "objectives: {time_to_first_token: 1500 ms, time_per_output_token: 120 ms, attainment: 0.9}\n"
      "classes: [{lengths: [{prompt_tokens: 1500, output_tokens: 200}]}]");
  PlannerOptions options;
  options.goal = Goal::kGoodput;
  options.attain_requests = 3000;
  const auto plan = MakePlan(input, options);
  REQUIRE(plan.status().message() == "");
  const v1::SimulatedFigures& seen = plan->simulated();
  REQUIRE(seen.attained_seeds() == 3);
  CHECK(seen.attained_requests() >= 3000);
  CHECK(seen.attained_requests_per_second() > 0);
  CHECK(seen.attained_requests_per_second() <= plan->prediction().requests_per_second());

  const auto graph = MakeClusterGraph(input.cluster, input.catalogue, "c");
  const auto samples = SamplesOf(input.workload, {}, input.model.max_positions(), "w");
  const auto replicas = ReplicasOfPlan(*plan, *graph, {});
  REQUIRE(replicas.ok());
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    GoodputQuestion question;
    question.replicas = &*replicas;
    question.classes = &samples->classes;
    question.arrival_variation = samples->arrival_variation;
    question.requests = seen.attained_requests();
    question.seed = seed;
    const auto result = SimulateAt(question, seen.attained_requests_per_second());
    REQUIRE(result.ok());
    CHECK(AttainedByClass(*result, samples->classes)[0] >= 0.9);
  }
}

TEST_CASE("a rate that is promised and not served is lowered until it is") {
  const PlannerInput input = tests::WrittenInput(
      kCluster, "Llama-3-8B", "classes: [{lengths: [{prompt_tokens: 1155, output_tokens: 211}]}]");
  auto plan = MakePlan(input, {});
  REQUIRE(plan.status().message() == "");
  const double served = plan->prediction().requests_per_second();
  plan->mutable_prediction()->set_requests_per_second(1.5 * served);
  const auto graph = MakeClusterGraph(input.cluster, input.catalogue, "c");
  const auto samples = SamplesOf(input.workload, {}, input.model.max_positions(), "w");
  AttainedQuestion question = {&*graph, &*samples, Goal::kThroughput, 4000};
  REQUIRE(AddAttained(question, &*plan).ok());
  CHECK(plan->simulated().attained_seeds() == 3);
  CHECK(plan->simulated().attained_requests_per_second() < 1.15 * served);
  CHECK(plan->simulated().attained_requests_per_second() > 0.7 * served);
  // Also where there is hardly time to say so.
  plan->clear_simulated();
  question.work = 1;
  REQUIRE(AddAttained(question, &*plan).ok());
  CHECK(plan->simulated().attained_seeds() == 3);
  CHECK(plan->simulated().attained_requests_per_second() < 1.2 * served);
  CHECK(plan->simulated().attained_requests_per_second() > 0.5 * served);
}

// Prompts and answers as long traces have them: log-normal, hanging together.
WorkloadSamples LongTrace(int requests) {
  SeededRandom random(7);
  const auto normal = [&] {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += random.Unit();
    return sum;
  };
  std::vector<TraceRequest> trace;
  for (int i = 0; i < requests; ++i) {
    const double shared = normal();
    trace.push_back({i * 0.2, std::round(std::exp(6.5 + 0.9 * shared)) + 1,
                     std::round(std::exp(4.8 + 0.3 * shared + 0.8 * normal())) + 1});
  }
  return *SamplesOf({}, trace, 8192, "trace");
}

TEST_CASE("a trace is planned with few lengths whose means are the same") {
  const WorkloadSamples all = LongTrace(20'000);
  const WorkloadSamples few = Bucketed(all);
  REQUIRE(all.samples.size() > 2 * kMaxBuckets);
  CHECK(few.samples.size() <= kMaxBuckets + 1);
  const LengthMoments a = MomentsOf(all.samples), b = MomentsOf(few.samples);
  CHECK(b.prompt_tokens == Approx(a.prompt_tokens).epsilon(1e-9));
  CHECK(b.output_tokens == Approx(a.output_tokens).epsilon(1e-9));
  CHECK(b.decode_context_sum == Approx(a.decode_context_sum).epsilon(0.02));
  CHECK(b.prefill_pairs == Approx(a.prefill_pairs).epsilon(0.02));
  CHECK(b.max_sequence_tokens == a.max_sequence_tokens);
  // A workload of few lengths stays as it is.
  CHECK(Bucketed(few).samples.size() == few.samples.size());
}

}  // namespace
}  // namespace tessera::scheduler
