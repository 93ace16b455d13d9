// Pairs of split replicas judged together: what they share slows them all.
#include "scheduler/search/layout/split_attainment.h"

#include <catch2/catch.hpp>
#include <memory>

#include "proto/document.h"
#include "scheduler/input/catalogue.h"
#include "scheduler/search/layout/split_shares.h"
#include "tests/scheduler/cost/shapes.h"

namespace tessera::tests {
namespace {

using namespace scheduler;  // NOLINT: what is tested

// Two that prefill and two that decode, in a machine each; the first has an uplink of 10 Gbit/s for
// prompts of 131 MB.
struct Split {
  explicit Split(LatencyLimits limits) {
    v1::Cluster cluster;
    REQUIRE(ReadDocument(R"(
machines:
- {name: p1, devices: [{kind: H100-SXM}], uplink: {bandwidth: 10 Gbit/s, latency: 10 us}}
- {name: p2, devices: [{kind: H100-SXM}]}
- {name: d1, devices: [{kind: A100-80}]}
- {name: d2, devices: [{kind: A100-80}]}
tiers: {site: {bandwidth: 100 Gbit/s, latency: 10 us}}
)",
                         "c", &cluster)
                .message() == "");
    auto made = MakeClusterGraph(cluster, *BuiltInDevices(), "c");
    REQUIRE(made.status().message() == "");
    graph = std::make_unique<ClusterGraph>(*std::move(made));
    RequestClass one;
    one.name = "one";
    one.samples = {{1000, 101, 1}};
    one.limits = limits;
    one.required_attainment = 0.9;
    problem.model = &model;
    problem.graph = graph.get();
    problem.samples = one.samples;
    problem.classes = {one};
    problem.goal = Goal::kGoodput;
    problem.codec_rates.strongest = KvCodec::kInt4;
    const Role roles[] = {Role::kPrefill, Role::kPrefill, Role::kDecode, Role::kDecode};
    for (int i = 0; i < 4; ++i) {
      PlacedReplica replica;
      replica.role = roles[i];
      replica.stages = {{i, 1, model.layers}};
      replica.rate =
          CapacityOf(model, SpecOf(problem, replica), MomentsOf(problem.samples), problem.options);
      replicas.push_back(replica);
    }
  }
  AttainmentModel Model() const {
    return AttainmentModel(model, problem.classes, problem.options, 1);
  }
  ModelShape model = Llama3_8B();
  std::unique_ptr<ClusterGraph> graph;
  PlacementProblem problem;
  std::vector<PlacedReplica> replicas;
};

TEST_CASE("pairs over one uplink wait for each other's KV, pairs beside it do not") {
  const Split split({});
  const AttainmentModel model = split.Model();
  const SplitAttainment judged(split.problem, model, split.replicas);
  REQUIRE(judged.transport().pairs.size() == 4);
  // From the first token on; little is decoded.
  const auto after_first = [&](std::vector<Share> shares) {
    const Attained first = judged.At(judged.RatesOf(shares)).pairs[0];
    return first.end_to_end_seconds[0] - first.ttft_seconds[0];
  };
  // As int4 a prompt takes 0.03 s of the uplink.
  const double alone = after_first({{0, 2, 0.01}});
  const double beside = after_first({{0, 2, 0.01}, {0, 3, 25}});
  CHECK(beside > alone + 0.05);
  CHECK(beside < alone + 0.3);
  CHECK(after_first({{0, 2, 0.01}, {1, 3, 25}}) == Approx(alone).epsilon(1e-6));
  CHECK(judged.RatesOf({{1, 2, 3}, {0, 0, 5}}) == std::vector<double>{0, 0, 3, 0});
}

TEST_CASE("rates are drawn down to where all pairs together are within their limits") {
  LatencyLimits limits;
  limits.ttft_seconds = 0.5;
  limits.tpot_seconds = 0.02;
  Split split(limits);
  const AttainmentModel model = split.Model();
  const SplitAttainment judged(split.problem, model, split.replicas);
  const auto within = [&](const std::vector<double>& rates) {
    const SplitAttainment::Operation at = judged.At(rates);
    double all = 0, sum = 0;
    for (size_t k = 0; k < rates.size(); ++k) {
      if (rates[k] > 0) sum += rates[k] * at.pairs[k].all;
      all += rates[k];
    }
    return sum / all;
  };
  const std::vector<double> much = {3, 3, 30, 30};
  CHECK(within(much) < 0.9);
  const double part = judged.PartWithinLimits(much);
  REQUIRE(part > 0);
  REQUIRE(part < 1);
  const auto times = [&](double by) {
    std::vector<double> rates = much;
    for (double& rate : rates) rate *= by;
    return rates;
  };
  CHECK(within(times(part)) >= 0.9);
  CHECK(within(times(1.01 * part)) < 0.9);
  CHECK(judged.PartWithinLimits(times(0.5 * part)) == 1);
  // The shares that are chosen attain, and serve as much.
  std::vector<PlacedReplica> replicas = split.replicas;
  const auto shares = SharesWithinLimits(split.problem, model, &replicas);
  REQUIRE(shares.ok());
  double served = 0;
  for (const Share& share : *shares) served += share.requests_per_second;
  CHECK(served >= 0.99 * part * 66);
  CHECK(within(judged.RatesOf(*shares)) >= 0.9);
  std::vector<Share> kept = {{0, 2, 3}, {0, 3, 3}, {1, 2, 30}, {1, 3, 30}};
  KeepWithinLimits(split.problem, model, split.replicas, &kept);
  CHECK(kept[2].requests_per_second == Approx(30 * part));
}

}  // namespace
}  // namespace tessera::tests
