// Up to eight devices: how much work a proof is, what one search leaves to the next, and proofs
// over links that bind.
#include <catch2/catch.hpp>
#include <string>

#include "proto/document.h"
#include "scheduler/input/catalogue.h"
#include "scheduler/input/workload_samples.h"
#include "scheduler/search/best/few_devices_search.h"
#include "scheduler/search/best/split_link_bound.h"
#include "scheduler/search/best/split_over_links.h"

namespace tessera::scheduler {
namespace {

struct Case {
  ModelShape model;
  ClusterGraph graph;
  PlacementProblem problem;

  Case(const std::string& cluster_text, const char* model_name) {
    v1::Cluster cluster;
    REQUIRE(ReadDocument(cluster_text, "cluster.yaml", &cluster).message() == "");
    graph = *MakeClusterGraph(cluster, *BuiltInDevices(), "cluster.yaml");
    model = *MakeModelShape(*BuiltInModel(model_name));
    v1::Workload workload;
    REQUIRE(ReadDocumentFile("deploy/workloads/azure_conversation.yaml", &workload).message() ==
            "");
    const auto samples = SamplesOf(workload, {}, model.max_positions, "azure_conversation.yaml");
    REQUIRE(samples.ok());
    problem.model = &model;
    problem.graph = &graph;
    problem.samples = samples->samples;
  }
};

constexpr char kWorkstations[] = R"(
machines:
- {name: a, devices: [{kind: A6000, count: 4}], inside: {bandwidth: 25 GB/s, latency: 10 us}}
- {name: b, devices: [{kind: A5000, count: 2}], inside: {bandwidth: 25 GB/s, latency: 10 us}}
- {name: c, devices: [{kind: A4000, count: 2}], inside: {bandwidth: 25 GB/s, latency: 10 us}}
tiers:
  site: {bandwidth: 25 Gbit/s, latency: 50 us}
)";

// 9,375 and 9,350 tests of layouts when every device set was laid out as if it alone mattered.
TEST_CASE("what a proof costs: tests of layouts on workstations") {
  Case few(kWorkstations, "Llama-2-70B");
  const FewDevicesResult most = SearchFewDevices(few.problem);
  REQUIRE(most.settled);
  REQUIRE(most.placement);
  CHECK(most.placement->requests_per_second == Approx(2.537).epsilon(1e-3));
  CHECK(most.placement->evaluations < 4500);

  few.problem.goal = Goal::kPrice;
  few.problem.required_requests_per_second = most.placement->requests_per_second / 2;
  const FewDevicesResult cheapest = SearchFewDevices(few.problem);
  REQUIRE(cheapest.settled);
  REQUIRE(cheapest.placement);
  CHECK(cheapest.placement->usd_per_hour == Approx(1.31));
  CHECK(cheapest.placement->evaluations < 4500);
}

TEST_CASE("a limit of TPOT that binds does not make the proof long") {
  Case few(kWorkstations, "Llama-2-70B");
  for (const double tpot : {0.15, 0.105, 0.075}) {
    INFO(tpot);
    few.problem.options.max_tpot_seconds = tpot;
    const FewDevicesResult found = SearchFewDevices(few.problem);
    REQUIRE(found.settled);
    REQUIRE(found.placement);
    CHECK(found.placement->upper_bound ==
          Approx(found.placement->requests_per_second).epsilon(1e-5));
    CHECK(found.placement->evaluations < 6000);
  }
}

TEST_CASE("what one search knows of layouts makes the next shorter, not other") {
  Case few(kWorkstations, "Llama-2-70B");
  KnownLayouts known;
  int64_t tests = 0, tests_anew = 0;
  // Tighter, and wider again.
  for (const double tpot : {0.15, 0.105, 0.075, 0.12}) {
    for (const bool split : {true, false}) {
      INFO(tpot << " s, split " << split);
      few.problem.options.max_tpot_seconds = tpot;
      few.problem.allow_split = split;
      const FewDevicesResult anew = SearchFewDevices(few.problem);
      const FewDevicesResult after = SearchFewDevices(few.problem, &known);
      REQUIRE(anew.settled);
      REQUIRE(after.settled);
      REQUIRE(anew.placement);
      REQUIRE(after.placement);
      CHECK(after.placement->requests_per_second ==
            Approx(anew.placement->requests_per_second).epsilon(1e-5));
      tests_anew += anew.placement->evaluations;
      tests += after.placement->evaluations;
    }
  }
  CAPTURE(tests, tests_anew);
  CHECK(tests < tests_anew / 2);
}

TEST_CASE("that no layout is in time is settled too") {
  Case few(kWorkstations, "Llama-2-70B");
  few.problem.options.max_tpot_seconds = 0.001;
  const FewDevicesResult never = SearchFewDevices(few.problem);
  CHECK(never.settled);
  CHECK_FALSE(never.placement);
}

// Qwen2.5-32B at 100 ms a token: this rate, and nothing above it.
void CheckProved(const char* cluster, double requests_per_second) {
  Case few(cluster, "Qwen2.5-32B");
  few.problem.options.max_tpot_seconds = 0.1;
  const FewDevicesResult found = SearchFewDevices(few.problem);
  REQUIRE(found.placement);
  CHECK(found.settled);
  CHECK(found.placement->requests_per_second == Approx(requests_per_second).epsilon(1e-3));
  CHECK(found.placement->upper_bound == Approx(found.placement->requests_per_second).epsilon(1e-5));
}

// Prefill on devices of all four machines and decode on three A6000 would serve 3.317 requests/s
// over free links; first or last stage sends over 1 Gbit/s. The gap was 11.4 %.
constexpr char kTwoSites[] = R"(
machines:
- {name: m0, site: x, devices: [{kind: A6000, count: 4}]}
- {name: m1, site: y, devices: [{kind: A4000, count: 2}]}
- {name: m2, site: y, devices: [{kind: A4000, count: 1}], rack: r1}
- {name: m3, site: y, devices: [{kind: T4, count: 1}], rack: r1}
tiers:
  rack: {bandwidth: 40 Gbit/s, latency: 50 us}
  site: {bandwidth: 25 Gbit/s, latency: 0.2 ms}
  region: {bandwidth: 1 Gbit/s, latency: 10 ms}
links:
- {from: m0, to: m1, link: {bandwidth: 1 Gbit/s, latency: 3 us}}
)";

TEST_CASE("splitting over slow links between sites is proved not to win") {
  CheckProved(kTwoSites, 2.940);
}

// Prefill on devices of all four machines has a million layouts; the gap was 9.8 %.
constexpr char kFourMachines[] = R"(
machines:
- {name: m0, site: x, devices: [{kind: A40, count: 4}]}
- {name: m1, site: y, devices: [{kind: RTX4090, count: 2}]}
- {name: m2, site: y, devices: [{kind: L40S, count: 1}], uplink: {bandwidth: 1 Gbit/s, latency: 5 us}, rack: r1}
- {name: m3, site: y, devices: [{kind: L4, count: 1}]}
tiers:
  rack: {bandwidth: 40 Gbit/s, latency: 50 us}
  site: {bandwidth: 1 Gbit/s, latency: 0.2 ms}
  region: {bandwidth: 1 Gbit/s, latency: 10 ms}
)";

TEST_CASE("of a million layouts of a split replica only those that serve enough are tried") {
  CheckProved(kFourMachines, 4.020);
}

TEST_CASE("layouts that serve more than a floor are those of all layouts that do") {
  Case few(kWorkstations, "Llama-2-70B");
  few.model.layers = 12;
  LayoutProblem layout = OnWholeGraph(few.problem, Role::kBoth);
  layout.lengths = MomentsOf(few.problem.samples);
  layout.pools = {{layout.pools[0].spec, 0, 2}, {layout.pools[1].spec, 1, 1}, layout.pools[2]};
  for (const Role role : {Role::kBoth, Role::kPrefill, Role::kDecode}) {
    layout.role = role;
    const auto all = LayoutsByMachines(layout, 2'000'000, 0);
    REQUIRE(all);
    REQUIRE(all->size() > 100);
    for (const double part : {0.3, 0.7, 0.95}) {
      const double floor = part * all->front().rate.requests_per_second;
      const auto above = LayoutsByMachines(layout, 2'000'000, floor);
      REQUIRE(above);
      size_t expected = 0;
      for (const Layout& one : *all) expected += one.rate.requests_per_second > floor ? 1 : 0;
      CHECK(above->size() == expected);
      CHECK(above->front().rate.requests_per_second ==
            Approx(all->front().rate.requests_per_second));
    }
    CHECK_FALSE(LayoutsByMachines(layout, 100, 0));
  }
}

TEST_CASE("a link bound knows where first and last stage can stand") {
  Case sites(kTwoSites, "Qwen2.5-32B");
  const SplitLinkBound bound(sites.problem);
  const auto rate = [&](std::vector<int> prefill, std::vector<int> decode) {
    return bound.RateOf({{Role::kPrefill, prefill, 9}, {Role::kDecode, decode, 5}});
  };
  const double between_sites = rate({0, 2, 1, 1}, {4, 0, 0, 0});
  const double one_here = rate({1, 2, 1, 1}, {3, 0, 0, 0});
  CHECK(one_here < 2);
  CHECK(one_here == Approx(between_sites));
  CHECK(rate({2, 2, 1, 1}, {2, 0, 0, 0}) == 5);  // both may stand in m0
  CHECK(rate({2, 0, 0, 0}, {2, 0, 0, 0}) == 5);
  // What does both serves whatever links carry.
  CHECK(bound.RateOf({{Role::kBoth, {2, 0, 0, 0}, 7}}) == 7);
}

}  // namespace
}  // namespace tessera::scheduler
