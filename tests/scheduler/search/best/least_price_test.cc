// The least price of more devices than are proved: not above what is known to do.
#include <catch2/catch.hpp>
#include <string>

#include "proto/document.h"
#include "scheduler/input/catalogue.h"
#include "scheduler/input/workload_samples.h"
#include "scheduler/search/best/configuration_search.h"
#include "scheduler/search/layout/assemble.h"
#include "scheduler/search/searches.h"
#include "tests/scheduler/cost/shapes.h"
#include "tests/scheduler/search/seeded_cluster.h"

namespace tessera::scheduler {
namespace {

struct Example {
  ModelShape model = tests::Llama2_70B();
  ClusterGraph graph;
  PlacementProblem problem;

  explicit Example(const std::string& name) {
    v1::Cluster cluster;
    REQUIRE(ReadDocumentFile("deploy/clusters/" + name, &cluster).message() == "");
    PlanOn(cluster);
  }
  explicit Example(const tests::SeededClusterOptions& seeded) {
    v1::Cluster cluster;
    REQUIRE(ReadDocument(tests::SeededCluster(seeded), "seeded", &cluster).message() == "");
    PlanOn(cluster);
  }

  void PlanOn(const v1::Cluster& cluster) {
    graph = *MakeClusterGraph(cluster, *BuiltInDevices(), "cluster");
    v1::Workload workload;
    REQUIRE(ReadDocumentFile("deploy/workloads/azure_conversation.yaml", &workload).message() ==
            "");
    const auto samples = SamplesOf(workload, {}, 4096, "azure_conversation.yaml");
    REQUIRE(samples.ok());
    problem.model = &model;
    problem.graph = &graph;
    problem.samples = samples->samples;
    problem.goal = Goal::kPrice;
  }

  Placement Cheapest(double requests_per_second) {
    problem.required_requests_per_second = requests_per_second;
    const absl::StatusOr<Placement> found = SearchConfigurations(problem);
    REQUIRE(found.status().message() == "");
    CHECK(found->requests_per_second >= requests_per_second * (1 - 1e-6));
    return *found;
  }
};

// Whole columns of the program served 7.458 for 7 USD/h.
TEST_CASE("what six cards serve is not rented as seven") {
  Example sites("three_sites_24.yaml");
  PlacedReplica known;
  known.stages = {{0, 2, 25}, {0, 1, 14}, {1, 1, 14}, {1, 1, 14}, {1, 1, 13}};
  const absl::StatusOr<Placement> six = Assemble(sites.problem, {known});
  REQUIRE(six.status().message() == "");
  REQUIRE(six->requests_per_second > 5.301);
  REQUIRE(six->usd_per_hour > 0);
  CHECK(sites.Cheapest(5.301).usd_per_hour <= six->usd_per_hour * (1 + 1e-9));
}

// Of 13 devices, which make 250 sets, whole columns made 5.16 USD/h of it, and little steps from
// there no less.
TEST_CASE("the cheapest of few device sets is proved, however many devices they are of") {
  Example few_sets(tests::SeededClusterOptions{5, 13, 3, true});
  const Placement cheapest = few_sets.Cheapest(3.559);
  CHECK(cheapest.proved);
  CHECK(cheapest.usd_per_hour == Approx(4.79).epsilon(1e-3));  // 4 A100-40 and a L40S
  // Tests of layouts, of sets that cost less: 15371 where every set was looked at.
  CHECK(cheapest.evaluations < 6000);
}

// Whole columns serve 41.97 here once they stand on links. From all 64 devices, which serve twice
// what is asked for, steps of a thousandth ended at 80.80 USD/h; cards of one kind do it for 38.25.
TEST_CASE("what the program serves a little too little of is not rented twice over") {
  Example many(tests::SeededClusterOptions{49, 64, 2, true});
  CHECK(many.Cheapest(42.311).usd_per_hour < 38.25);
}

// Devices for 3.95 USD/h would do, of machines for 5.80; another search found two machines for 4.
TEST_CASE("machines of a market are rented whole: no search is cheaper than best") {
  Example market("rental_market.yaml");
  for (const double rate : {3.0, 6.0}) {
    INFO(rate);
    const double best = market.Cheapest(rate).usd_per_hour;
    if (rate == 3.0) CHECK(best <= 4 * (1 + 1e-9));
    for (const std::string name : {"hexgen", "hexgen2", "thunderserve", "cost"}) {
      INFO(name);
      market.problem.search_options = {{"hexgen.most_evaluations", 100},
                                       {"hexgen2.most_evaluations", 100},
                                       {"hexgen2.start_growth", 1},
                                       {"thunderserve.steps", 10},
                                       {"cost.most_layouts", 300}};
      const absl::StatusOr<Placement> other = (*FindSearch(name))(market.problem);
      if (other.ok()) CHECK(best <= other->usd_per_hour * (1 + 1e-9));
    }
  }
}

TEST_CASE("less asked for is not dearer, and what cannot be served is refused") {
  Example sites("three_sites_24.yaml");
  double before = 0;
  for (const double rate : {1.0, 3.0, 5.0, 7.0, 9.0}) {
    INFO(rate);
    const double usd = sites.Cheapest(rate).usd_per_hour;
    CHECK(usd >= before * (1 - 1e-9));
    before = usd;
  }
  sites.problem.required_requests_per_second = 100;
  const absl::StatusOr<Placement> never = SearchConfigurations(sites.problem);
  CHECK((!never.ok() || never->requests_per_second < 100));
}

}  // namespace
}  // namespace tessera::scheduler
