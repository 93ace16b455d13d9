// What plans that route by class serve at most, against an oracle of its own: every way to deal
// devices to replicas, every layout, every replica with any of a grid of mixes. It shares the cost
// model with the bound and nothing else.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <numeric>
#include <vector>

#include "proto/document.h"
#include "scheduler/input/catalogue.h"
#include "scheduler/search/best/class_routing_program.h"
#include "scheduler/search/best/configuration_program.h"
#include "scheduler/search/best/request_mixes.h"
#include "scheduler/search/math/seeded_random.h"
#include "scheduler/search/searches.h"
#include "tests/scheduler/search/every_layout.h"
#include "tests/scheduler/search/placement_instance.h"

namespace tessera::scheduler {
namespace {

using namespace tests;  // NOLINT: instances

using Rates = std::vector<double>;  // by class

RequestClass ClassOf(const char* name, double share, double prompt, double output) {
  RequestClass one;
  one.name = name;
  one.share = share;
  one.samples = {{prompt, output, 1}};
  return one;
}

// Classes of very unlike lengths, and the samples that they make together.
void GiveClasses(int seed, int classes, PlacementProblem* problem) {
  SeededRandom random(static_cast<uint64_t>(seed) + 77);
  const double first = 0.3 + 0.4 * random.Unit();
  problem->classes = {
      ClassOf("chat", first, 60 + 100 * random.Unit(), 150 + 250 * random.Unit()),
      ClassOf("code", 1 - first, 900 + 600 * random.Unit(), 8 + 20 * random.Unit())};
  if (classes == 3) {
    for (RequestClass& one : problem->classes) one.share *= 0.8;
    problem->classes.push_back(ClassOf("long", 0.2, 1500, 300));
  }
  problem->samples.clear();
  for (const RequestClass& one : problem->classes) {
    for (RequestLengths sample : one.samples) {
      sample.weight *= one.share;
      problem->samples.push_back(sample);
    }
  }
}

std::vector<Rates> GridOf(size_t classes, int steps) {
  std::vector<Rates> grid;
  for (int a = 0; a <= steps; ++a) {
    for (int b = 0; a + b <= steps; ++b) {
      if (classes == 2 && a + b < steps) continue;
      Rates shares = {static_cast<double>(a), static_cast<double>(b)};
      if (classes == 3) shares.push_back(steps - a - b);
      for (double& share : shares) share /= steps;
      grid.push_back(shares);
    }
  }
  return grid;
}

void AddUndominated(const Rates& rates, std::vector<Rates>* front) {
  const auto covers = [](const Rates& a, const Rates& b) {
    for (size_t w = 0; w < a.size(); ++w) {
      if (a[w] < b[w]) return false;
    }
    return true;
  };
  for (const Rates& known : *front) {
    if (covers(known, rates)) return;
  }
  std::erase_if(*front, [&](const Rates& known) { return covers(rates, known); });
  front->push_back(rates);
}

// The best of all placements whose replicas do both phases, each with a mix of its own.
double RoutedOptimum(const PlacementProblem& problem) {
  std::vector<LengthMoments> lengths;
  for (const RequestClass& one : problem.classes) lengths.push_back(MomentsOf(one.samples));
  const auto mixed = [&](const Rates& shares) {
    LengthMoments mix;
    double sum = 0;
    for (size_t w = 0; w < shares.size(); ++w) {
      mix = Mix(mix, sum, lengths[w], shares[w]);
      sum += shares[w];
    }
    return mix;
  };
  std::vector<std::pair<Rates, LengthMoments>> mixes;
  for (const Rates& shares : GridOf(lengths.size(), lengths.size() == 2 ? 10 : 5))
    mixes.emplace_back(shares, mixed(shares));
  const LayoutProblem layout = OnWholeGraph(problem, Role::kBoth);
  std::map<std::vector<int>, std::vector<Rates>> of_set;
  ForEveryLayout(layout, [&](const std::vector<LayoutStage>& stages) {
    std::vector<int> devices(layout.pools.size(), 0);
    for (const LayoutStage& stage : stages) devices[static_cast<size_t>(stage.pool)] += stage.width;
    const ReplicaSpec replica = ReplicaOf(layout, stages);
    const double kv = KvCapacityTokens(*problem.model, replica.stages, problem.options.memory);
    if (kv <= 0) return;
    for (const auto& [shares, mix] : mixes) {
      Rates rates = shares;
      const double rate =
          CapacityWithKv(*problem.model, replica, mix, problem.options, kv).requests_per_second;
      if (rate <= 0) continue;
      for (double& one : rates) one *= rate;
      AddUndominated(rates, &of_set[devices]);
    }
  });
  // What the first devices serve, set by set: sums of what is not worse in every class.
  std::map<std::vector<int>, std::vector<Rates>> on;
  double best = 0;
  std::vector<int> all;
  for (const LayoutPool& pool : layout.pools) all.push_back(pool.count);
  std::vector<int> used(all.size(), 0);
  while (true) {
    std::vector<Rates>& front = on[used];
    if (front.empty()) front.emplace_back(lengths.size(), 0.0);
    for (const auto& [set, serves] : of_set) {
      std::vector<int> rest = used;
      bool within = true;
      for (size_t p = 0; p < rest.size(); ++p) within = (rest[p] -= set[p]) >= 0 && within;
      if (!within) continue;
      for (const Rates& others : on.at(rest)) {
        for (const Rates& own : serves) {
          Rates sum = others;
          for (size_t w = 0; w < sum.size(); ++w) sum[w] += own[w];
          AddUndominated(sum, &front);
        }
      }
    }
    for (const Rates& rates : front) {
      double theta = 1e300;
      for (size_t w = 0; w < rates.size(); ++w)
        theta = std::min(theta, rates[w] / problem.classes[w].share);
      best = std::max(best, theta);
    }
    size_t p = 0;
    while (p < used.size() && used[p] == all[p]) used[p++] = 0;
    if (p == used.size()) return best;
    ++used[p];
  }
}

double BoundOfOneMix(const PlacementProblem& problem) {
  std::vector<int> free;
  for (const DevicePool& pool : problem.graph->pools()) free.push_back(pool.count);
  const DeviceClasses classes(*problem.graph, free);
  StageShapes shapes(*problem.model, MomentsOf(problem.samples), problem.options);
  ConfigurationProgram program(problem, classes, &shapes);
  program.Generate({RolesOf(problem)});
  return program.bound();
}

struct Tried {
  int feasible = 0;
  int gains = 0;          // instances where routing serves at least 2 % more
  int above_one_mix = 0;  // where it serves more than what bounds plans of one mix
  double tightest = 1e9;  // bound over optimum
  double loosest = 0;     // bound over what its columns reach
};

void Try(int seed, int classes, Tried* tried) {
  INFO("seed " << seed << ", " << classes << " classes");
  LayoutInstance instance;
  PlacementProblem problem = PlacementInstance(seed, &instance);
  GiveClasses(seed, classes, &problem);
  if (seed % 3 == 0) problem.options.max_tpot_seconds = 0.03 + 0.01 * (seed % 7);
  problem.allow_split = false;
  const double optimum = RoutedOptimum(problem);
  if (optimum <= 0) return;
  ++tried->feasible;
  const ClassRoutingBound found = BoundByRouting(problem);
  CHECK(found.kinds == static_cast<size_t>(classes));
  CHECK(found.upper_bound >= optimum * (1 - 1e-9));
  CHECK(found.upper_bound >= found.relaxed);
  tried->loosest = std::max(tried->loosest, found.upper_bound / found.relaxed);
  if (optimum > BoundOfOneMix(problem) * (1 + 1e-6)) ++tried->above_one_mix;
  tried->tightest = std::min(tried->tightest, found.upper_bound / optimum);
  const absl::StatusOr<Placement> one_mix = (*FindSearch("exact"))(problem);
  if (one_mix.ok() && optimum > 1.02 * one_mix->requests_per_second) ++tried->gains;
  problem.allow_split = true;
  const double split = BoundByRouting(problem).upper_bound;
  CHECK(split >= optimum * (1 - 1e-9));
  for (const char* search : {"best", "exact", "hexgen", "hexgen2", "thunderserve", "cost"}) {
    INFO(search);
    const absl::StatusOr<Placement> placement = (*FindSearch(search))(problem);
    if (placement.ok()) CHECK(split >= placement->requests_per_second * (1 - 1e-9));
  }
}

TEST_CASE("no dealing of two classes to replicas serves more than the bound") {
  Tried tried;
  for (int seed = 4001; seed < 4121; seed += 2) Try(seed, 2, &tried);
  CHECK(tried.feasible >= 40);
  CHECK(tried.gains >= 10);
  CHECK(tried.above_one_mix >= 3);
  CHECK(tried.tightest < 1.1);
  CHECK(tried.loosest < 1.2);
}

TEST_CASE("no dealing of three classes to replicas serves more than the bound") {
  Tried tried;
  for (int seed = 4001; seed < 4041; seed += 2) Try(seed, 3, &tried);
  CHECK(tried.feasible >= 12);
  CHECK(tried.gains >= 2);
  CHECK(tried.tightest < 1.2);
  CHECK(tried.loosest < 1.4);
}

TEST_CASE("classes of nearly the same lengths leave the bound where it was") {
  int compared = 0;
  for (int seed = 4001; seed < 4011; seed += 2) {
    INFO("seed " << seed);
    LayoutInstance instance;
    PlacementProblem problem = PlacementInstance(seed, &instance);
    problem.classes = {ClassOf("a", 0.5, 500, 100), ClassOf("b", 0.5, 500.001, 100)};
    problem.samples = {{500, 100, 0.5}, {500.001, 100, 0.5}};
    const double one_mix = BoundOfOneMix(problem);
    const ClassRoutingBound found = BoundByRouting(problem);
    if (found.upper_bound <= 0) continue;
    ++compared;
    CHECK(found.upper_bound <= one_mix * 1.09);  // as near as it aims at
    CHECK(found.upper_bound >= one_mix / 1.02);
    problem.classes[1].samples = problem.classes[0].samples;
    CHECK(BoundByRouting(problem).kinds == 1);
    CHECK(BoundByRouting(problem).upper_bound == 0);
  }
  CHECK(compared >= 3);
}

// Devices that hold the model alone, and links over which nobody would hold it together.
constexpr char kAlone[] = R"(
machines:
- {name: a, devices: [{kind: A100-80, count: 1}]}
- {name: b, devices: [{kind: A100-80, count: 1}]}
- {name: c, devices: [{kind: A100-80, count: 1}]}
tiers: {site: {bandwidth: 1 Mbit/s, latency: 1 s}}
)";

TEST_CASE("of replicas of one kind the bound is what their best mixes serve") {
  v1::Cluster cluster;
  REQUIRE(ReadDocument(kAlone, "c", &cluster).message() == "");
  const absl::StatusOr<ClusterGraph> graph = MakeClusterGraph(cluster, *BuiltInDevices(), "c");
  REQUIRE(graph.status().message() == "");
  const ModelShape model = *MakeModelShape(*BuiltInModel("Qwen2.5-14B"));
  PlacementProblem problem;
  problem.model = &model;
  problem.graph = &*graph;
  GiveClasses(1, 2, &problem);
  problem.allow_split = false;
  const LayoutProblem layout = OnWholeGraph(problem, Role::kBoth);
  const ReplicaSpec alone = ReplicaOf(layout, {{0, 1, model.layers}});
  const std::vector<RequestKind> kinds = RequestKindsOf(problem.classes);
  std::vector<Rates> served;
  for (int part = 0; part <= 2000; ++part) {
    const Rates shares = {part / 2000.0, 1 - part / 2000.0};
    const double rate =
        CapacityOf(model, alone, MixOf(kinds, shares), problem.options).requests_per_second;
    served.push_back({rate * shares[0], rate * shares[1]});
  }
  // A device serves theta, mixes of its time in proportion: the most that two mixes, one to either
  // side, come to between them at the shares of the classes.
  const double first = kinds[0].share, second = kinds[1].share;
  double theta = 0;
  for (const Rates& a : served) {
    for (const Rates& b : served) {
      // t of a and 1 - t of b have the shares.
      const double over = a[0] * second - a[1] * first, under = b[1] * first - b[0] * second;
      if (over < 0 || under < 0 || over + under <= 0) continue;
      const double t = under / (over + under);
      theta = std::max(theta, t * (a[0] + a[1]) + (1 - t) * (b[0] + b[1]));
    }
  }
  const ClassRoutingBound found = BoundByRouting(problem);
  CHECK(found.relaxed <= 3 * theta * (1 + 1e-6));
  CHECK(found.relaxed >= 3 * theta * 0.98);
  CHECK(found.upper_bound >= 3 * theta * (1 - 1e-6));
  CHECK(found.upper_bound <= 3 * theta * 1.09);
}

TEST_CASE("a load below a cell of mixes serves no less than any of them") {
  SeededRandom random(5);
  int compared = 0;
  for (int seed = 4001; seed < 4031; seed += 2) {
    INFO("seed " << seed);
    LayoutInstance instance;
    PlacementProblem problem = PlacementInstance(seed, &instance);
    GiveClasses(seed, 2 + seed % 4 / 3, &problem);
    const std::vector<RequestKind> kinds = RequestKindsOf(problem.classes);
    std::vector<double> values;
    for (const RequestKind& kind : kinds)
      values.push_back((kind.lengths.uncached_prompt_tokens + 5 * kind.lengths.decode_steps) *
                       (0.5 + random.Unit()));
    for (const Role role : {Role::kBoth, Role::kPrefill, Role::kDecode}) {
      const LayoutProblem layout = OnWholeGraph(problem, role);
      MixCell cell = MixesByLongest(kinds).back();
      for (int halved = 0; halved < seed % 5; ++halved) {
        auto [a, b] = cell.Halves();
        cell = random.Unit() < 0.5 ? a : b;
      }
      // Between the corners.
      ValueParts parts(kinds.size(), 0);
      std::vector<double> weights;
      for (size_t i = 0; i < cell.corners.size(); ++i) weights.push_back(random.Unit() + 1e-3);
      const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
      for (size_t i = 0; i < weights.size(); ++i) {
        for (size_t w = 0; w < parts.size(); ++w) parts[w] += weights[i] / sum * cell.corners[i][w];
      }
      const std::vector<double> shares = SharesOf(parts, values);
      double value = 0;
      for (size_t w = 0; w < shares.size(); ++w) value += shares[w] * values[w];
      const LengthMoments mix = MixOf(kinds, shares);
      const LoadBelow below = Below(role, kinds, values, cell);
      ForEveryLayout(layout, [&](const std::vector<LayoutStage>& stages) {
        if (random.Unit() > 0.3) return;
        const ReplicaSpec replica = ReplicaOf(layout, stages);
        const ReplicaRate of_mix = CapacityOf(*problem.model, replica, mix, problem.options);
        const double rate = of_mix.requests_per_second;
        // Where a row of the load is less than one the cost model rounds up: not for bounds.
        if (rate <= 0 || (role != Role::kPrefill && of_mix.decode_rows * below.rows < 1)) return;
        ++compared;
        const double most =
            CapacityOf(*problem.model, replica, below.lengths, problem.options).requests_per_second;
        CHECK(most * below.value >= rate * value * (1 - 1e-9));
      });
    }
  }
  CHECK(compared > 1000);
}

}  // namespace
}  // namespace tessera::scheduler
