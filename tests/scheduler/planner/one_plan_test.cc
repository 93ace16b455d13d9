// One cluster, one plan: the same links written with sites, racks and tiers, or machine by machine,
// have the same form, and so the same plan.
#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "proto/document.h"
#include "scheduler/input/cluster_graph.h"
#include "scheduler/planner/planner.h"
#include "tests/scheduler/planner/written_input.h"
#include "tests/scheduler/search/seeded_cluster.h"

namespace tessera::scheduler {
namespace {

constexpr char kWork[] = "classes: [{lengths: [{prompt_tokens: 1155, output_tokens: 211}]}]";
constexpr int kClusters = 12;

PlannerInput Written(int seed) {
  tests::SeededClusterOptions options;
  options.seed = seed;
  options.devices = 10 + seed;
  options.sites = 1 + seed % 4;
  options.unlike_links = seed % 2 == 0;
  return tests::WrittenInput(tests::SeededCluster(options), "Llama-3-8B", kWork);
}

ClusterGraph GraphOf(const PlannerInput& input) {
  auto graph = MakeClusterGraph(input.cluster, input.catalogue, input.cluster_file);
  REQUIRE(graph.status().message() == "");
  return *std::move(graph);
}

// No sites, no racks, no tiers: a link for each two machines and direction.
PlannerInput ByPairs(const PlannerInput& written) {
  const ClusterGraph graph = GraphOf(written);
  PlannerInput input = written;
  v1::Cluster& cluster = input.cluster;
  for (v1::Machine& machine : *cluster.mutable_machines()) {
    machine.clear_site();
    machine.clear_rack();
  }
  cluster.clear_links();
  v1::Link inside = cluster.tiers().machine();
  const bool has_inside = cluster.tiers().has_machine();  // what machines say of themselves stays
  cluster.clear_tiers();
  if (has_inside) *cluster.mutable_tiers()->mutable_machine() = inside;
  for (size_t a = 0; a < graph.machines().size(); ++a) {
    for (size_t b = 0; b < graph.machines().size(); ++b) {
      if (a == b) continue;
      const LinkSpec& link = graph.Between(static_cast<int>(a), static_cast<int>(b));
      v1::PairLink& pair = *cluster.add_links();
      pair.set_from(graph.machines()[a].name);
      pair.set_to(graph.machines()[b].name);
      pair.set_one_way(true);
      pair.mutable_link()->set_bandwidth_bytes_per_second(link.bytes_per_second);
      pair.mutable_link()->set_latency_seconds(link.latency_seconds);
    }
  }
  return input;
}

TEST_CASE("12 seeded clusters, each written both ways, have one form and one plan") {
  PlannerOptions options;
  options.simulate = false;
  int grouped = 0;
  for (int seed = 0; seed < kClusters; ++seed) {
    const PlannerInput by_tiers = Written(seed), by_pairs = ByPairs(by_tiers);
    INFO("seed " << seed);
    const ClusterGraph a = GraphOf(by_tiers), b = GraphOf(by_pairs);
    REQUIRE(a.machines().size() == b.machines().size());
    CHECK(a.groups() == b.groups());
    grouped += a.groups() > 1 ? 1 : 0;
    for (int m = 0; m < static_cast<int>(a.machines().size()); ++m) {
      const MachineNode &in_a = a.machines()[static_cast<size_t>(m)],
                        &in_b = b.machines()[static_cast<size_t>(m)];
      CHECK(in_a.group == in_b.group);
      CHECK(in_a.place == in_b.place);
      for (int n = 0; n < static_cast<int>(a.machines().size()); ++n)
        CHECK(a.Between(m, n) == b.Between(m, n));
    }
    const auto plan_a = MakePlan(by_tiers, options), plan_b = MakePlan(by_pairs, options);
    CHECK(plan_a.status().message() == plan_b.status().message());
    if (!plan_a.ok() || !plan_b.ok()) continue;
    CHECK(plan_a->prediction().SerializeAsString() == plan_b->prediction().SerializeAsString());
    CHECK(plan_a->replicas_size() == plan_b->replicas_size());
    for (int r = 0; r < std::min(plan_a->replicas_size(), plan_b->replicas_size()); ++r)
      CHECK(plan_a->replicas(r).SerializeAsString() == plan_b->replicas(r).SerializeAsString());
  }
  CHECK(grouped >= 6);
}

// As published: 4 A100, 8 L4 and 12 T4, one to a machine, in three regions 50 ms apart.
std::string ThreeGroups() {
  std::string text = "machines:\n";
  const auto add = [&](const std::string& site, const std::string& kind, int machines) {
    for (int i = 0; i < machines; ++i) {
      text += "- {name: " + site + std::to_string(i) + kind + ", site: " + site +
              ", devices: [{kind: " + kind + "}]}\n";
    }
  };
  add("x", "A100-40", 4);
  add("y", "L4", 2);
  add("y", "T4", 6);
  add("z", "L4", 6);
  add("z", "T4", 6);
  text +=
      "tiers: {site: {bandwidth: 10 Gbit/s, latency: 1 ms}, region: {bandwidth: 100 Mbit/s, "
      "latency: 50 ms}}\n";
  return text;
}

TEST_CASE("24 machines in three groups over slow links have one plan, as pairs and as sites") {
  const PlannerInput by_sites = tests::WrittenInput(ThreeGroups(), "Llama-2-70B", kWork);
  const PlannerInput by_pairs = ByPairs(by_sites);
  const ClusterGraph graph = GraphOf(by_pairs);
  REQUIRE(graph.machines().size() == 24);
  CHECK(graph.groups() == 3);
  for (size_t m = 0; m < 24; ++m) {
    CHECK(graph.machines()[m].group == GraphOf(by_sites).machines()[m].group);
    CHECK((graph.machines()[m].group == graph.machines()[0].group) == (m < 4));
  }
  PlannerOptions options;
  options.simulate = false;
  const auto a = MakePlan(by_sites, options), b = MakePlan(by_pairs, options);
  REQUIRE(a.status().message() == "");
  REQUIRE(b.status().message() == "");
  CHECK(a->prediction().SerializeAsString() == b->prediction().SerializeAsString());
  REQUIRE(a->replicas_size() == b->replicas_size());
  for (int r = 0; r < a->replicas_size(); ++r)
    CHECK(a->replicas(r).SerializeAsString() == b->replicas(r).SerializeAsString());
}

TEST_CASE("measured pairs, no two of them equal, have as good a plan as the sites they stand for") {
  const PlannerInput by_sites = tests::WrittenInput(ThreeGroups(), "Llama-2-70B", kWork);
  PlannerInput measured = ByPairs(by_sites);
  uint64_t state = 1;
  const auto part = [&state](double least, double most) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return least + (most - least) * static_cast<double>(state >> 33) / 0x1p31;
  };
  for (v1::PairLink& pair : *measured.cluster.mutable_links()) {
    v1::Link& link = *pair.mutable_link();
    link.set_bandwidth_bytes_per_second(link.bandwidth_bytes_per_second() * part(0.85, 1.2));
    link.set_latency_seconds(link.latency_seconds() * part(0.8, 1.18));
  }
  const ClusterGraph graph = GraphOf(measured);
  std::set<int> places, wide;
  for (const MachineNode& machine : graph.machines()) {
    places.insert(machine.place);
    wide.insert(machine.wide_place);
  }
  CHECK(graph.groups() == 3);
  CHECK(places.size() == 24);
  CHECK(wide.size() == 3);
  PlannerOptions options;
  options.simulate = options.allow_split = false;
  const auto a = MakePlan(by_sites, options), b = MakePlan(measured, options);
  REQUIRE(a.status().message() == "");
  REQUIRE(b.status().message() == "");
  CHECK(b->prediction().requests_per_second() ==
        Approx(a->prediction().requests_per_second()).epsilon(0.05));
}

// Equal devices, one a line: what people write down from nvidia-smi.
PlannerInput ByLines(PlannerInput input) {
  for (v1::Machine& machine : *input.cluster.mutable_machines()) {
    v1::Machine listed = machine;
    listed.clear_devices();
    for (v1::DeviceGroup group : machine.devices()) {
      const int count = std::max(1, group.count());
      group.clear_count();
      for (int i = 0; i < count; ++i) *listed.add_devices() = group;
    }
    machine = listed;
  }
  return input;
}

TEST_CASE("devices that are listed have the plan of devices that are counted") {
  PlannerOptions options;
  options.simulate = false;
  const auto same = [&](const PlannerInput& counted) {
    const auto a = MakePlan(counted, options), b = MakePlan(ByLines(counted), options);
    CHECK(a.status().message() == b.status().message());
    if (!a.ok() || !b.ok()) return;
    CHECK(a->prediction().SerializeAsString() == b->prediction().SerializeAsString());
    REQUIRE(a->replicas_size() == b->replicas_size());
    for (int r = 0; r < a->replicas_size(); ++r)
      CHECK(a->replicas(r).SerializeAsString() == b->replicas(r).SerializeAsString());
  };
  same(tests::WrittenInput("machines: [{name: a, devices: [{kind: A100-80, count: 4}]}]",
                           "Llama-3-70B", kWork));
  for (int seed = 0; seed < kClusters; seed += 5) {
    INFO("seed " << seed);
    same(Written(seed));
  }
}

TEST_CASE("pairs over slow links without a latency are as far as another region") {
  std::string text = "machines:\n";
  for (const char* name : {"a", "b", "c", "d"})
    text += std::string("- {name: ") + name + ", devices: [{kind: T4}]}\n";
  text += "links:\n";
  for (const char* pair : {"a b 10", "c d 10", "a c 0.1", "a d 0.1", "b c 0.1", "b d 0.1"}) {
    text += std::string("- {from: ") + pair[0] + ", to: " + pair[2] +
            ", link: {bandwidth: " + (pair + 4) + " Gbit/s}}\n";
  }
  const ClusterGraph graph = GraphOf(tests::WrittenInput(text, "Llama-3-8B", kWork));
  CHECK(graph.groups() == 2);
  CHECK(graph.Between(0, 1).latency_seconds == 50e-6);
  CHECK(graph.Between(0, 2).latency_seconds == 30e-3);
}

}  // namespace
}  // namespace tessera::scheduler
