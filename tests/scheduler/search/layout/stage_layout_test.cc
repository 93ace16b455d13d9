#include "scheduler/search/layout/stage_layout.h"

#include <catch2/catch.hpp>

#include "proto/cluster.pb.h"
#include "proto/document.h"
#include "scheduler/input/catalogue.h"
#include "scheduler/search/layout/layout_bound.h"
#include "tests/scheduler/cost/shapes.h"
#include "tests/scheduler/search/layout_enumerator.h"

namespace tessera::scheduler {
namespace {

using namespace tests;  // NOLINT: models and the oracle

TEST_CASE("the dynamic program reaches what trying every layout reaches") {
  int feasible = 0;
  for (int seed = 1000; seed < 1060; ++seed) {
    INFO("seed " << seed);
    LayoutInstance instance;
    MakeLayoutInstance(seed, 5, 10, &instance);
    instance.problem.exact = true;
    const Enumerated best = EnumerateLayouts(instance.problem);
    const Layout found = BestLayout(instance.problem);
    CHECK(found.rate.requests_per_second == Approx(best.requests_per_second).epsilon(1e-9));
    feasible += best.requests_per_second > 0 ? 1 : 0;
  }
  CHECK(feasible >= 50);
}

TEST_CASE("no layout is above its bound, and the layout beside it is nearly always the best") {
  int feasible = 0, reached = 0;
  for (int seed = 1000; seed < 1060; ++seed) {
    INFO("seed " << seed);
    LayoutInstance instance;
    MakeLayoutInstance(seed, 5, 10, &instance);
    const double best = EnumerateLayouts(instance.problem).requests_per_second;
    const BoundedLayout found = BoundLayout(instance.problem, {1e-4, 2000});
    CHECK(found.bound >= best * (1 - 1e-9));
    CHECK(found.layout.rate.requests_per_second <= best * (1 + 1e-9));
    if (best <= 0) continue;
    ++feasible;
    reached += found.layout.rate.requests_per_second >= best * (1 - 1e-6) ? 1 : 0;
  }
  CHECK(feasible >= 50);
  CHECK(reached >= feasible * 9 / 10);
}

TEST_CASE("layers with experts between dense ones: what is proved is the best of all layouts") {
  int feasible = 0;
  for (int seed = 3000; seed < 3040; ++seed) {
    INFO("seed " << seed);
    LayoutInstance instance;
    MakeLayoutInstance(seed, 4, 10, &instance);
    ModelShape& model = instance.model;
    // As many bytes as a dense layer, an eighth of its work.
    LayerShape routed = model.kinds[0];
    routed.experts = 16;
    routed.experts_per_token = 2;
    routed.expert_width = routed.ffn_width / 16;
    routed.ffn_width = 0;
    model.kinds.push_back(routed);
    model.kind_of_layer.assign(static_cast<size_t>(model.layers), 1);
    for (int layer = 0; layer < model.layers / 2; ++layer) {
      const int at = seed % 2 == 0 ? layer : model.layers - 1 - layer;
      model.kind_of_layer[static_cast<size_t>(at)] = 0;
    }
    instance.problem.exact = true;
    for (const Role role : {Role::kBoth, Role::kPrefill}) {
      instance.problem.role = role;
      const Enumerated best = EnumerateLayouts(instance.problem);
      const Layout found = BestLayout(instance.problem);
      CHECK(found.rate.requests_per_second == Approx(best.requests_per_second).epsilon(1e-9));
      feasible += best.requests_per_second > 0 ? 1 : 0;
    }
  }
  CHECK(feasible >= 50);
}

struct Published {
  ModelShape model = Llama2_70B();
  ClusterGraph graph;
  LayoutProblem problem;

  explicit Published(const std::string& inside) {
    const std::string text =
        "machines:\n- {name: a, devices: [{kind: A6000, count: 4}]}\n"
        "- {name: b, devices: [{kind: A5000, count: 2}]}\n"
        "- {name: c, devices: [{kind: A4000, count: 2}]}\n"
        "tiers: {machine: {bandwidth: " +
        inside +
        " GB/s, latency: 10 us}, "
        "site: {bandwidth: 25 Gbit/s, latency: 50 us}}\n";
    v1::Cluster cluster;
    REQUIRE(ReadDocument(text, "published", &cluster).ok());
    graph = *MakeClusterGraph(cluster, *BuiltInDevices(), "published");
    problem.model = &model;
    problem.graph = &graph;
    for (const DevicePool& pool : graph.pools())
      problem.pools.push_back({pool.spec, pool.machine, pool.count});
    const RequestLengths lengths = {1024, 128, 1};
    problem.lengths = MomentsOf({&lengths, 1});
    problem.lengths.max_sequence_tokens = 4096;
    problem.options.memory.max_step_tokens = 512;
  }
};

TEST_CASE(
    "the published case: at least the published layout, at fast and slow links, with and without a "
    "limit") {
  for (const char* inside : {"25", "4"}) {
    for (const double limit : {1e9, 0.15}) {
      INFO(inside << " GB/s, TPOT <= " << limit);
      Published at(inside);
      at.problem.options.max_tpot_seconds = limit;
      const std::vector<LayoutStage> published = {{0, 4, 48}, {1, 2, 20}, {2, 2, 12}};
      const ReplicaRate theirs = CapacityOf(at.model, MakeReplica(at.problem, published),
                                            at.problem.lengths, at.problem.options);
      at.problem.layer_step = 8;
      const Layout ours = BestLayout(at.problem);
      CHECK(theirs.requests_per_second > 0);
      CHECK(ours.rate.requests_per_second >= theirs.requests_per_second);
      CHECK(ours.rate.tpot_seconds <= limit);
      int layers = 0;
      for (const LayoutStage& stage : ours.stages) layers += stage.layers;
      CHECK(layers == 80);
    }
  }
}

TEST_CASE("a limit on the time per output token is none for who only prefills") {
  Published at("25");
  at.problem.role = Role::kPrefill;
  at.problem.layer_step = 8;
  const double rate = BestLayout(at.problem).rate.requests_per_second;
  CHECK(rate > 0);
  at.problem.options.max_tpot_seconds = 0.02;  // shorter than a step full of prompt tokens
  CHECK(BestLayout(at.problem).rate.requests_per_second == rate);
}

TEST_CASE("what does not fit has no stages") {
  Published at("25");
  at.problem.pools.erase(at.problem.pools.begin());
  CHECK(BestLayout(at.problem).stages.empty());
}

}  // namespace
}  // namespace tessera::scheduler
