#include "scheduler/search/best/configuration_search.h"

#include <catch2/catch.hpp>
#include <map>

#include "scheduler/search/layout/assemble.h"
#include "tests/scheduler/search/layout_enumerator.h"

namespace tessera::scheduler {
namespace {

using namespace tests;  // NOLINT: the oracle

// Every way to deal devices to replicas of role both, each with every layout.
class Partitions {
 public:
  explicit Partitions(LayoutProblem problem) : problem_(std::move(problem)) {}

  double Best(const std::vector<int>& counts) {
    const auto known = best_.find(counts);
    if (known != best_.end()) return known->second;
    double best = 0;
    std::vector<int> part(counts.size(), 0);
    while (Next(counts, &part)) {
      const double rate = Rate(part);
      if (rate <= 0) continue;
      std::vector<int> rest = counts;
      for (size_t i = 0; i < rest.size(); ++i) rest[i] -= part[i];
      best = std::max(best, rate + Best(rest));
    }
    return best_[counts] = best;
  }

 private:
  // The next set of devices within `counts`, as a number with these digits; false after the last.
  static bool Next(const std::vector<int>& counts, std::vector<int>* part) {
    for (size_t i = 0; i < counts.size(); ++i) {
      if (++(*part)[i] <= counts[i]) return true;
      (*part)[i] = 0;
    }
    return false;
  }

  double Rate(const std::vector<int>& part) {
    const auto known = rate_.find(part);
    if (known != rate_.end()) return known->second;
    LayoutProblem problem = problem_;
    for (size_t i = 0; i < part.size(); ++i) problem.pools[i].count = part[i];
    return rate_[part] = EnumerateLayouts(problem).requests_per_second;
  }

  LayoutProblem problem_;
  std::map<std::vector<int>, double> best_, rate_;
};

PlacementProblem ProblemOf(const LayoutInstance& instance, const RequestLengths& lengths) {
  PlacementProblem problem;
  problem.model = &instance.model;
  problem.graph = &instance.graph;
  problem.samples = {lengths};
  problem.options = instance.problem.options;
  return problem;
}

TEST_CASE("up to eight devices the placement is the best there is, and the bound says so") {
  int feasible = 0, several = 0;
  for (int seed = 2000; seed < 2040; ++seed) {
    INFO("seed " << seed);
    LayoutInstance instance;
    MakeLayoutInstance(seed, 5, 8, &instance);
    if (seed % 2 == 1)
      instance.model.layers = 4;  // devices hold more than a share: several replicas
    const RequestLengths lengths = {500.0 + 10 * (seed % 7), 100, 1};
    instance.problem.role = Role::kBoth;
    instance.problem.lengths = MomentsOf({&lengths, 1});
    std::vector<int> counts;
    for (const LayoutPool& pool : instance.problem.pools) counts.push_back(pool.count);
    const double best = Partitions(instance.problem).Best(counts);

    PlacementProblem problem = ProblemOf(instance, lengths);
    problem.prove = true;
    problem.allow_split = false;
    const absl::StatusOr<Placement> whole = SearchConfigurations(problem);
    REQUIRE(whole.ok() == (best > 0));
    if (best <= 0) continue;
    ++feasible;
    several += whole->replicas.size() > 1 ? 1 : 0;
    CHECK(whole->requests_per_second == Approx(best).epsilon(1e-6));
    CHECK(whole->upper_bound >= best * (1 - 1e-9));
    CHECK(whole->upper_bound == Approx(best).epsilon(1e-5));

    problem.allow_split = true;
    const absl::StatusOr<Placement> split = SearchConfigurations(problem);
    REQUIRE(split.ok());
    CHECK(split->requests_per_second >= best * (1 - 1e-9));
    CHECK(split->upper_bound >= split->requests_per_second * (1 - 1e-9));
  }
  CHECK(feasible >= 30);
  CHECK(several >= 5);
}

TEST_CASE("an overdrawn pool is refused") {
  LayoutInstance instance;
  MakeLayoutInstance(1, 4, 8, &instance);
  const PlacementProblem problem = ProblemOf(instance, {500, 100, 1});
  PlacedReplica replica;
  replica.stages = {{0, instance.problem.pools[0].count + 1, instance.model.layers}};
  CHECK(Assemble(problem, {replica}).status().code() == absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace tessera::scheduler
