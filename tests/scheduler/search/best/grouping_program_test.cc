#include "scheduler/search/best/grouping_program.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/str_format.h"
#include "proto/document.h"
#include "scheduler/input/catalogue.h"
#include "scheduler/search/math/seeded_random.h"
#include "tests/scheduler/search/placement_instance.h"

namespace tessera::scheduler {
namespace {

// Two or three machines of one or two devices, rented whole or device by device.
ClusterGraph Priced(SeededRandom* random) {
  std::string text = "machines:\n";
  const int machines = 2 + random->Below(2);
  for (int m = 0; m < machines; ++m) {
    const int count = 1 + random->Below(2);
    const bool whole = random->Below(2) == 0;
    const double usd = 1 + random->Unit();
    text += absl::StrFormat("- {name: m%d, %s devices: [{kind: L4, count: %d%s}]}\n", m,
                            whole ? absl::StrFormat("price: %.6f USD/h,", count * usd) : "", count,
                            whole ? "" : absl::StrFormat(", price: %.6f USD/h", usd));
  }
  v1::Cluster cluster;
  REQUIRE(ReadDocument(text + "tiers: {site: {bandwidth: 10 Gbit/s}}", "c", &cluster).message() ==
          "");
  absl::StatusOr<ClusterGraph> graph = MakeClusterGraph(cluster, *BuiltInDevices(), "c");
  REQUIRE(graph.status().message() == "");
  return *std::move(graph);
}

// Every choice of columns, in falling order of their index.
struct Brute {
  const PlacementProblem& problem;
  const DeviceSets& sets;
  const std::vector<Column>& columns;
  double most = 0, cheapest = 1e18;
  int above = 0;
  double bar = 0;

  void Grow(size_t first, int free, double prefilled, double decoded) {
    const double served = std::min(prefilled, decoded);
    const double cost = sets.usd_per_hour(sets.size() - 1 - free);
    const bool affordable =
        problem.goal != Goal::kBudget || cost <= problem.budget_usd_per_hour * (1 + 1e-9);
    if (affordable) most = std::max(most, served);
    if (affordable && served > bar) ++above;
    if (served >= problem.required_requests_per_second) cheapest = std::min(cheapest, cost);
    for (size_t c = first; c < columns.size(); ++c) {
      const Column& column = columns[c];
      const int set = sets.IndexOf(column.devices);
      if (column.rate <= 0 || !sets.Within(set, free)) continue;
      if (column.role != Role::kBoth && !problem.allow_split) continue;
      Grow(c, free - set, prefilled + (column.role != Role::kDecode ? column.rate : 0),
           decoded + (column.role != Role::kPrefill ? column.rate : 0));
    }
  }
};

TEST_CASE("the best grouping is the best of all groupings") {
  for (int seed = 0; seed < 30; ++seed) {
    INFO("seed " << seed);
    SeededRandom random(static_cast<uint64_t>(seed));
    const ClusterGraph graph = Priced(&random);
    tests::LayoutInstance instance;
    PlacementProblem problem = tests::PlacementInstance(3000, &instance);
    problem.allow_split = seed % 3 != 0;
    const DeviceSets sets(graph);
    std::vector<Column> columns;
    for (int set = 1; set < sets.size(); ++set) {
      for (const Role role : {Role::kBoth, Role::kPrefill, Role::kDecode}) {
        if (random.Below(3) > 0)
          columns.push_back({role, sets.devices(set) * (0.2 + random.Unit()), sets.Counts(set)});
      }
    }
    Brute brute{problem, sets, columns};
    brute.Grow(0, sets.size() - 1, 0, 0);
    const auto best = BestGrouping(problem, sets, columns);
    REQUIRE(best.has_value() == (brute.most > 0));
    if (!best) continue;
    CHECK(best->served() == Approx(brute.most));

    Brute near{problem, sets, columns};
    near.bar = brute.most * 0.9;
    near.Grow(0, sets.size() - 1, 0, 0);
    const auto above = GroupingsAbove(problem, sets, columns, near.bar, 100000);
    REQUIRE(above.has_value());
    CHECK(static_cast<int>(above->size()) == near.above);
    CHECK(above->front().served() == Approx(brute.most));
    if (near.above > 1) CHECK(!GroupingsAbove(problem, sets, columns, near.bar, 1).has_value());

    problem.goal = Goal::kBudget;
    problem.budget_usd_per_hour = 3;
    Brute budget{problem, sets, columns};
    budget.Grow(0, sets.size() - 1, 0, 0);
    const auto within = BestGrouping(problem, sets, columns);
    CHECK((within ? within->served() : 0) == Approx(budget.most));

    problem.goal = Goal::kPrice;
    problem.required_requests_per_second = brute.most * 0.6;
    Brute price{problem, sets, columns};
    price.Grow(0, sets.size() - 1, 0, 0);
    const auto cheapest = BestGrouping(problem, sets, columns);
    REQUIRE(cheapest.has_value());
    CHECK(cheapest->usd_per_hour == Approx(price.cheapest));
  }
}

}  // namespace
}  // namespace tessera::scheduler
