#include "scheduler/search/baselines/layer_routes.h"

#include <catch2/catch.hpp>

#include "scheduler/search/baselines/overlapping_layers.h"
#include "scheduler/search/layout/assemble.h"
#include "scheduler/search/math/linear_program.h"
#include "scheduler/search/math/seeded_random.h"
#include "scheduler/search/searches.h"
#include "tests/scheduler/cost/shapes.h"
#include "tests/scheduler/search/placement_instance.h"

namespace tessera::scheduler {
namespace {

using namespace tests;  // NOLINT: the instances

constexpr double kGib = 1073741824.0;

// Machines of one device whose time is that of computing alone: a layer takes as long as it has
// rows, over its speed.
struct ComputeOnly {
  explicit ComputeOnly(int layers, const std::vector<double>& speeds,
                       double link_bytes_per_second = 1e15, double memory_gib = 4000) {
    model = DenseShape("m", layers, 1024, 8, 8, 4096, 1);
    v1::Cluster cluster;
    for (size_t i = 0; i < speeds.size(); ++i) {
      v1::DeviceKind* kind = cluster.add_kinds();
      kind->set_name("k" + std::to_string(i));
      kind->set_memory_bytes(static_cast<int64_t>(memory_gib * kGib));
      kind->set_memory_bandwidth_bytes_per_second(1e18);
      kind->set_dense_flops_per_second(1e12 * speeds[i]);
      kind->set_prefill_efficiency(1);
      kind->set_decode_efficiency(1);
      v1::Machine* machine = cluster.add_machines();
      machine->set_name("m" + std::to_string(i));
      v1::DeviceGroup* group = machine->add_devices();
      group->set_kind(kind->name());
      group->set_count(1);
      machine->mutable_inside()->set_bandwidth_bytes_per_second(1e15);
    }
    v1::Link* site = cluster.mutable_tiers()->mutable_site();
    site->set_bandwidth_bytes_per_second(link_bytes_per_second);
    site->set_latency_seconds(1e-12);
    const auto made = MakeClusterGraph(cluster, v1::DeviceCatalogue(), "cluster");
    INFO(made.status());
    graph = std::move(const_cast<absl::StatusOr<ClusterGraph>&>(made)).value();
    problem.model = &model;
    problem.graph = &graph;
    problem.samples = {{400, 101, 1}};
    problem.options.memory.max_step_tokens = 1 << 20;
  }
  ComputeOnly(const ComputeOnly&) = delete;

  // Requests per second of a device of speed 1 that has one layer.
  double OneLayer() {
    ModelShape one = model;
    one.layers = 1;
    PlacementProblem alone = problem;
    alone.model = &one;
    return BestRoutes(alone, {{0, 1, 0, 1}}).requests_per_second;
  }

  ModelShape model;
  ClusterGraph graph;
  PlacementProblem problem;
};

TEST_CASE("holders that are a pipeline serve what the cost model says of it") {
  int compared = 0;
  for (int seed = 3000; seed < 3040; ++seed) {
    INFO("seed " << seed);
    LayoutInstance instance;
    PlacementProblem problem = PlacementInstance(seed, &instance);
    problem.options.max_tpot_seconds = std::numeric_limits<double>::infinity();
    LayoutProblem layout = instance.problem;
    layout.role = Role::kBoth;
    layout.lengths = MomentsOf(problem.samples);
    layout.options = problem.options;
    const Layout best = BestLayout(layout);
    if (best.stages.empty() || best.rate.decode_rows < 1) continue;
    ++compared;
    std::vector<LayerHolder> holders;
    int layer = 0;
    for (const LayoutStage& stage : best.stages) {
      holders.push_back({stage.pool, stage.width, layer, stage.layers});
      layer += stage.layers;
    }
    const RoutedLayers routed = BestRoutes(problem, holders);
    CHECK(routed.requests_per_second == Approx(best.rate.requests_per_second).epsilon(2e-3));
    CHECK(routed.routes.size() == 1);
  }
  CHECK(compared >= 15);
}

TEST_CASE("three devices share four layers evenly where ranges overlap, by hand") {
  ComputeOnly three(4, {1, 1, 1});
  const double one = three.OneLayer();
  // As a pipeline one of them has two layers.
  CHECK(BestRoutes(three.problem, {{0, 1, 0, 2}, {1, 1, 2, 1}, {2, 1, 3, 1}}).requests_per_second ==
        Approx(one / 2).epsilon(1e-3));
  // Layers 1 and 2 have two holders each: two thirds of the rows take both of them in the middle,
  // the others in the first and the last device. Each device has 4/3 layers of every row.
  const RoutedLayers routed = BestRoutes(three.problem, {{0, 1, 0, 2}, {1, 1, 1, 2}, {2, 1, 2, 2}});
  CHECK(routed.requests_per_second == Approx(one * 3 / 4).epsilon(1e-3));
  // Two devices that hold two thirds of six layers, and one that holds the rest: no better than
  // two layers each.
  CHECK(BestRoutes(three.problem, {{0, 1, 0, 3}, {1, 1, 1, 3}, {2, 1, 0, 1}}).requests_per_second <=
        one * 3 / 4 * 1.001);
  ComputeOnly six(6, {1, 1, 1});
  const double even =
      BestRoutes(six.problem, {{0, 1, 0, 2}, {1, 1, 2, 2}, {2, 1, 4, 2}}).requests_per_second;
  CHECK(even == Approx(one / 2).epsilon(1e-3));
  CHECK(BestRoutes(six.problem, {{0, 1, 0, 4}, {1, 1, 2, 4}, {2, 1, 0, 2}}).requests_per_second ==
        Approx(even).epsilon(1e-3));
}

TEST_CASE("no routes, no room and a time per token out of reach serve nothing") {
  ComputeOnly three(4, {1, 1, 1});
  CHECK(BestRoutes(three.problem, {{0, 1, 0, 2}, {1, 1, 3, 1}}).requests_per_second == 0);
  three.problem.options.max_tpot_seconds = 1e-9;
  CHECK(BestRoutes(three.problem, {{0, 1, 0, 2}, {1, 1, 2, 2}}).requests_per_second == 0);
  ComputeOnly small(4, {1, 1, 1}, 1e15, 1);
  CHECK(!HolderFits(small.problem, {0, 1, 0, 2}));
  CHECK(BestRoutes(small.problem, {{0, 1, 0, 2}, {1, 1, 2, 2}}).requests_per_second == 0);
}

TEST_CASE("links carry the activations of every row that changes machines") {
  // 5 tokens' activations of 2 KiB per decode row, 100 decode rows per request.
  const double bytes_of_request = 100 * 5 * 2048;
  ComputeOnly slow(4, {1, 1}, 7 * bytes_of_request);
  const double rate = BestRoutes(slow.problem, {{0, 1, 0, 3}, {1, 1, 1, 3}}).requests_per_second;
  CHECK(rate == Approx(7).epsilon(1e-3));
}

// Most requests per second of any chains of holders: the program over all of them, listed here.
class AllChains {
 public:
  AllChains(const std::vector<LayerHolder>& holders, const std::vector<double>& layer_rates,
            int layers)
      : holders_(holders), layers_(layers), used_(holders.size(), false) {
    for (const double rate : layer_rates) rows_.push_back(program_.AddRow(-kUnbounded, rate));
    done_.assign(holders.size(), 0);
    Grow(0);
  }
  double Most() const { return chains_ == 0 ? 0 : program_.Solve(true)->objective; }
  int chains() const { return chains_; }

 private:
  void Grow(int layer) {
    if (layer == layers_) {
      const int rate = program_.AddVariable(1, 0, kUnbounded, false);
      for (size_t h = 0; h < holders_.size(); ++h) {
        if (done_[h] > 0) program_.AddTerm(rows_[h], rate, done_[h]);
      }
      ++chains_;
      return;
    }
    for (size_t h = 0; h < holders_.size(); ++h) {
      if (used_[h] || holders_[h].first_layer > layer) continue;
      used_[h] = true;
      for (int end = layer + 1; end <= holders_[h].end(); ++end) {
        done_[h] = end - layer;
        Grow(end);
      }
      done_[h] = 0;
      used_[h] = false;
    }
  }

  const std::vector<LayerHolder>& holders_;
  const int layers_;
  LinearProgram program_;
  std::vector<int> rows_, done_;
  std::vector<bool> used_;
  int chains_ = 0;
};

TEST_CASE("small networks serve what the best mix of all their chains does") {
  SeededRandom random(11);
  int served = 0, overlapping = 0;
  for (int i = 0; i < 25; ++i) {
    INFO("network " << i);
    const int layers = 3 + random.Below(4), devices = 3 + random.Below(2);
    std::vector<double> speeds;
    for (int d = 0; d < devices; ++d) speeds.push_back(0.5 + random.Unit());
    ComputeOnly world(layers, speeds);
    const double one = world.OneLayer() / speeds[0];
    std::vector<LayerHolder> holders;
    std::vector<double> layer_rates;
    for (int d = 0; d < devices; ++d) {
      const int first = d == 0 ? 0 : random.Below(layers);
      const int end = d == 1 ? layers : first + 1 + random.Below(layers - first);
      holders.push_back({d, 1, first, end - first});
      layer_rates.push_back(one * speeds[static_cast<size_t>(d)]);
    }
    const AllChains chains(holders, layer_rates, layers);
    LayerRouteOptions every;
    every.most_routes = 100000;
    every.longer_routes = devices;
    const double most = chains.Most();
    const double rate = BestRoutes(world.problem, holders, every).requests_per_second;
    CHECK(rate == Approx(most).epsilon(2e-3));
    // Fewer and shorter routes are no better, and here not much worse.
    const double few = BestRoutes(world.problem, holders).requests_per_second;
    CHECK(few <= most * 1.001);
    CHECK(few >= most * 0.85);
    served += most > 0 ? 1 : 0;
    overlapping += chains.chains() > 1 ? 1 : 0;
  }
  CHECK(served >= 12);
  CHECK(overlapping >= 12);
}

Placement Pipeline(const PlacementProblem& problem, std::vector<LayoutStage> stages) {
  PlacedReplica replica;
  replica.stages = std::move(stages);
  return *Assemble(problem, {replica});
}

TEST_CASE("overlapping ranges are found where they win, and lose where they do not") {
  ComputeOnly three(4, {1, 1, 1});
  const Placement uneven = Pipeline(three.problem, {{0, 1, 2}, {1, 1, 1}, {2, 1, 1}});
  const OverlappingSearch won = SearchOverlapping(three.problem, uneven);
  REQUIRE(won.best);
  CHECK(won.best->requests_per_second >= uneven.requests_per_second * 1.49);
  CHECK(won.placements <= OverlappingOptions().most_placements);
  ComputeOnly six(6, {1, 1, 1});
  const Placement even = Pipeline(six.problem, {{0, 1, 2}, {1, 1, 2}, {2, 1, 2}});
  const OverlappingSearch lost = SearchOverlapping(six.problem, even);
  REQUIRE(lost.best);
  CHECK(lost.best->requests_per_second <= even.requests_per_second * 1.001);
  // A device that the plan leaves idle takes a part of the layers of both.
  ComputeOnly idle(2, {1, 1, 1});
  const Placement two = Pipeline(idle.problem, {{0, 1, 1}, {1, 1, 1}});
  const OverlappingSearch with = SearchOverlapping(idle.problem, two);
  REQUIRE(with.best);
  CHECK(with.best->requests_per_second >= two.requests_per_second * 1.49);
}

TEST_CASE("where a link binds the best pipeline, a second way round it serves more") {
  LayoutInstance instance;
  const PlacementProblem problem = PlacementInstance(3036, &instance);
  const auto plan = (*FindSearch("best"))(problem);
  REQUIRE(plan.ok());
  CHECK(plan->upper_bound <= plan->requests_per_second * 1.0001);  // proved, of replicas
  const OverlappingSearch found = SearchOverlapping(problem, *plan);
  REQUIRE(found.best);
  CHECK(found.best->requests_per_second >= plan->requests_per_second * 1.4);
  CHECK(found.best->routed.routes.size() >= 2);
}

}  // namespace
}  // namespace tessera::scheduler
