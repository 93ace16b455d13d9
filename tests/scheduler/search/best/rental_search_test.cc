// Goals of money where machines are rented whole, against a trial of every set of machines: each is
// a cluster of its own, for which the search for throughput says what it serves.
#include "scheduler/search/best/rental_search.h"

#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/str_format.h"
#include "proto/document.h"
#include "scheduler/input/catalogue.h"
#include "scheduler/search/best/configuration_search.h"
#include "scheduler/search/best/rental_offers.h"
#include "scheduler/search/layout/rented_replicas.h"
#include "scheduler/search/math/seeded_random.h"
#include "scheduler/search/searches.h"
#include "tests/scheduler/cost/shapes.h"

namespace tessera::scheduler {
namespace {

ClusterGraph Described(const std::string& text) {
  v1::Cluster cluster;
  REQUIRE(ReadDocument(text, "market.yaml", &cluster).message() == "");
  absl::StatusOr<ClusterGraph> graph = MakeClusterGraph(cluster, *BuiltInDevices(), "market.yaml");
  REQUIRE(graph.status().message() == "");
  return *std::move(graph);
}

struct Market {
  ModelShape model = tests::Llama3_8B();
  ClusterGraph graph;
  PlacementProblem problem;

  explicit Market(const std::string& text) : graph(Described(text)) {
    problem.model = &model;
    problem.graph = &graph;
    problem.samples = {{800, 150, 1}};
  }

  // At most so many devices; of four or fewer in a machine, which is rented whole or, one in four,
  // device by device.
  static std::string Seeded(uint64_t seed, int devices) {
    SeededRandom random(seed);
    constexpr const char* kKinds[] = {"A100-40", "A6000", "L4", "RTX4090", "T4"};
    std::string text = "machines:\n";
    for (int m = 0; devices > 0; ++m) {
      const int count = std::min(devices, 1 + random.Below(3));
      devices -= count;
      const double usd = 0.3 + random.Unit();
      const bool whole = random.Below(4) > 0;
      text += absl::StrFormat("- {name: m%d, %s devices: [{kind: %s, count: %d%s}]}\n", m,
                              whole ? absl::StrFormat("price: %.4f USD/h,", usd * count) : "",
                              kKinds[random.Below(5)], count,
                              whole ? "" : absl::StrFormat(", price: %.4f USD/h", usd));
    }
    return text + "tiers: {site: {bandwidth: 10 Gbit/s, latency: 60 us}}\n";
  }
};

struct Rented {
  double usd_per_hour = 0, requests_per_second = 0;
};

// Every set of machines, and of devices where these are rented one by one.
std::vector<Rented> EverySet(const PlacementProblem& problem) {
  const ClusterGraph& graph = *problem.graph;
  std::vector<Rented> sets;
  std::vector<int> counts(graph.pools().size(), 0);
  const auto step = [&](size_t p) {
    const bool whole =
        graph.machines()[static_cast<size_t>(graph.pools()[p].machine)].price_usd_per_hour > 0;
    counts[p] += whole ? graph.pools()[p].count : 1;
    if (counts[p] <= graph.pools()[p].count) return true;
    counts[p] = 0;
    return false;
  };
  while (true) {
    size_t p = 0;
    while (p < counts.size() && !step(p)) ++p;
    if (p == counts.size()) return sets;
    std::vector<int> kept;
    const ClusterGraph part = graph.Part(counts, &kept);
    PlacementProblem alone = problem;
    alone.graph = &part;
    alone.goal = Goal::kThroughput;
    const absl::StatusOr<Placement> found = SearchConfigurations(alone);
    if (found.ok()) sets.push_back({graph.RentOf(counts), found->requests_per_second});
  }
}

double MostWithin(const std::vector<Rented>& sets, double budget) {
  double most = 0;
  for (const Rented& set : sets) {
    if (set.usd_per_hour <= budget * (1 + 1e-9)) most = std::max(most, set.requests_per_second);
  }
  return most;
}

double LeastFor(const std::vector<Rented>& sets, double rate) {
  double least = 1e18;
  for (const Rented& set : sets) {
    if (set.requests_per_second >= rate * (1 - 1e-6)) least = std::min(least, set.usd_per_hour);
  }
  return least;
}

// At several budgets and rates; `slack`: what may be missing of the best of all sets.
void CheckAgainstEverySet(Market* market, const std::string& name, double slack) {
  INFO(name);
  const Search search = *FindSearch(name);
  const std::vector<Rented> sets = EverySet(market->problem);
  REQUIRE(!sets.empty());
  double all = 0;
  for (const Rented& set : sets) all = std::max(all, set.usd_per_hour);
  PlacementProblem problem = market->problem;
  for (const double part : {0.3, 0.55, 0.8}) {
    INFO("part " << part);
    problem.goal = Goal::kBudget;
    problem.budget_usd_per_hour = part * all;
    const double most = MostWithin(sets, part * all);
    const absl::StatusOr<Placement> within = search(problem);
    REQUIRE(within.ok() == (most > 0));
    if (!within.ok()) continue;
    CHECK(within->usd_per_hour <= part * all * (1 + 1e-9));
    CHECK(within->requests_per_second >= most * (1 - slack));
    CHECK(within->requests_per_second <= most * (1 + slack));
    if (within->upper_bound > 0) CHECK(within->upper_bound >= most * (1 - 1e-6));
    if (within->proved) CHECK(within->requests_per_second >= most * (1 - 1e-4));

    problem.goal = Goal::kPrice;
    problem.required_requests_per_second = most * 0.9;
    const absl::StatusOr<Placement> cheapest = search(problem);
    REQUIRE(cheapest.status().message() == "");
    CHECK(cheapest->requests_per_second >= most * 0.9 * (1 - 1e-6));
    CHECK(cheapest->usd_per_hour <= LeastFor(sets, most * 0.9) * (1 + slack));
    CHECK(cheapest->usd_per_hour >= LeastFor(sets, most * 0.9) * (1 - 1e-6));
  }
}

TEST_CASE("few devices: the best and the cheapest of every set of machines") {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    INFO("seed " << seed);
    Market market(Market::Seeded(seed, 5));
    CheckAgainstEverySet(&market, "best", 1e-4);
    CheckAgainstEverySet(&market, "exact", 1e-4);
  }
}

TEST_CASE("more devices: what every set of machines serves is found") {
  for (uint64_t seed = 20; seed < 26; ++seed) {
    INFO("seed " << seed);
    Market market(Market::Seeded(seed, 11));
    CheckAgainstEverySet(&market, "best", 1e-3);
  }
}

TEST_CASE("a machine is paid once, whoever uses it, and whole") {
  const ClusterGraph graph = Described(
      "machines:\n"
      "- {name: whole, price: 4 USD/h, devices: [{kind: L4, count: 2}, {kind: A6000, count: 2}]}\n"
      "- {name: single, devices: [{kind: L4, count: 2, price: 0.7 USD/h}]}\n"
      "tiers: {site: {bandwidth: 10 Gbit/s}}\n");
  CHECK(graph.RentOf(std::vector<int>{0, 0, 0}) == 0);
  CHECK(graph.RentOf(std::vector<int>{1, 0, 0}) == 4);
  CHECK(graph.RentOf(std::vector<int>{2, 2, 1}) == Approx(4.7));
  CHECK(graph.RentOf(std::vector<int>{0, 0, 2}) == Approx(1.4));
  CHECK(graph.rents_whole_machines());
  CHECK_FALSE(Described("machines: [{name: a, price: 1 USD/h, devices: [{kind: L4}]}]")
                  .rents_whole_machines());
}

TEST_CASE("offers count machines that are alike, and give their devices") {
  const ClusterGraph graph = Described(
      "machines:\n"
      "- {name: w, available: 3, price: 4 USD/h, devices: [{kind: L4, count: 2}, {kind: T4}]}\n"
      "- {name: far, price: 4 USD/h, devices: [{kind: L4, count: 2}, {kind: T4}], site: x}\n"
      "- {name: s, available: 2, devices: [{kind: L4, count: 3, price: 0.7 USD/h}]}\n"
      "tiers: {site: {bandwidth: 10 Gbit/s}, region: {bandwidth: 1 Gbit/s}}\n");
  const RentalOffers offers(graph);
  REQUIRE(offers.all().size() == 3);
  CHECK(offers.all()[0].available == 3);
  CHECK(offers.all()[0].usd_per_hour == 4);
  CHECK(offers.all()[1].available == 1);
  CHECK(offers.all()[2].available == 6);
  CHECK(offers.all()[2].usd_per_hour == Approx(0.7));
  CHECK(offers.Devices(std::vector<int>{2, 0, 4}) ==
        std::vector<int>{2, 1, 2, 1, 0, 0, 0, 0, 3, 1});
  const std::vector<double> worths = {1, 5, 1, 5, 1, 5, 2, 6, 3, 3};
  CHECK(offers.WorthOf(offers.all()[0], worths) == Approx(7));
  CHECK(offers.WorthOf(offers.all()[1], worths) == Approx(10));
  CHECK(offers.WorthOf(offers.all()[2], worths) == Approx(3));
}

// What RentedReplicas should find, by a trial of every choice.
TEST_CASE("of replicas that share machines the best choice is rented") {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    INFO("seed " << seed);
    SeededRandom random(seed);
    Market market(
        "machines:\n"
        "- {name: w, available: 2, price: 3 USD/h, devices: [{kind: L4, count: 4}]}\n"
        "- {name: s, devices: [{kind: L4, count: 4, price: 0.9 USD/h}]}\n"
        "tiers: {site: {bandwidth: 10 Gbit/s}}\n");
    std::vector<PlacedReplica> made;
    std::vector<int> free = {4, 4, 4};
    for (int i = 0; i < 6; ++i) {
      PlacedReplica replica;
      replica.role = static_cast<Role>(random.Below(3));
      replica.rate.requests_per_second = 1 + random.Below(3);
      for (int stage = 0; stage < 1 + random.Below(2); ++stage) {
        const int pool = random.Below(3);
        if (free[static_cast<size_t>(pool)]-- > 0) replica.stages.push_back({pool, 1, 16});
      }
      if (!replica.stages.empty()) made.push_back(replica);
    }
    std::vector<const PlacedReplica*> replicas;
    for (const PlacedReplica& replica : made) replicas.push_back(&replica);
    const auto served = [&](const std::vector<bool>& rented) {
      double rates[3] = {0, 0, 0};
      for (size_t i = 0; i < made.size(); ++i)
        rates[static_cast<size_t>(made[i].role)] +=
            rented[i] ? made[i].rate.requests_per_second : 0;
      return rates[static_cast<size_t>(Role::kBoth)] +
             std::min(rates[static_cast<size_t>(Role::kPrefill)],
                      rates[static_cast<size_t>(Role::kDecode)]);
    };
    PlacementProblem& problem = market.problem;
    problem.budget_usd_per_hour = 3.5 + random.Below(3);
    problem.required_requests_per_second = 2;
    double most = 0, least = 1e18;
    for (size_t mask = 0; mask < size_t{1} << made.size(); ++mask) {
      std::vector<bool> rented;
      for (size_t i = 0; i < made.size(); ++i) rented.push_back((mask >> i & 1) != 0);
      const double usd = RentOf(problem, replicas, rented);
      if (usd <= problem.budget_usd_per_hour) most = std::max(most, served(rented));
      if (served(rented) >= problem.required_requests_per_second) least = std::min(least, usd);
    }
    problem.goal = Goal::kBudget;
    const std::vector<bool> within = RentedReplicas(problem, replicas);
    CHECK(served(within) == Approx(most).margin(1e-6));
    CHECK(RentOf(problem, replicas, within) <= problem.budget_usd_per_hour * (1 + 1e-9));
    problem.goal = Goal::kPrice;
    const std::vector<bool> cheapest = RentedReplicas(problem, replicas);
    if (least < 1e18) {
      CHECK(RentOf(problem, replicas, cheapest) == Approx(least));
      CHECK(served(cheapest) >= problem.required_requests_per_second * (1 - 1e-6));
    } else {
      CHECK(RentOf(problem, replicas, cheapest) == 0);
    }
  }
}

}  // namespace
}  // namespace tessera::scheduler
