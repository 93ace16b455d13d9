// Llama-2-70B in fp16 on 4 A6000, 2 A5000 and 2 A4000: our plan beside the published TP 4/2/2 with
// 48/20/12 layers, for throughput and with a limit on TPOT, at fast and slow links inside the
// machines. Bars: ours serves at least as much, and is proved to be the best placement of these
// devices.
#include <cstdio>

#include "proto/cluster.pb.h"
#include "proto/document.h"
#include "scheduler/input/catalogue.h"
#include "scheduler/search/configuration_search.h"
#include "tests/scheduler/cost/shapes.h"

namespace tessera::scheduler {
namespace {

absl::StatusOr<ClusterGraph> Cluster(const char* inside) {
  v1::Cluster cluster;
  const std::string text =
      std::string(
          "machines:\n- {name: a, devices: [{kind: A6000, count: 4}]}\n"
          "- {name: b, devices: [{kind: A5000, count: 2}]}\n"
          "- {name: c, devices: [{kind: A4000, count: 2}]}\n"
          "tiers: {machine: {bandwidth: ") +
      inside + " GB/s, latency: 10 us}, site: {bandwidth: 25 Gbit/s, latency: 50 us}}\n";
  if (absl::Status s = ReadDocument(text, "published case", &cluster); !s.ok()) return s;
  const absl::StatusOr<v1::DeviceCatalogue> catalogue = BuiltInDevices();
  if (!catalogue.ok()) return catalogue.status();
  return MakeClusterGraph(cluster, *catalogue, "published case");
}

bool Compare(const char* inside, double tpot_limit) {
  const ModelShape model = tests::Llama2_70B();
  const absl::StatusOr<ClusterGraph> graph = Cluster(inside);
  if (!graph.ok()) return false;
  PlacementProblem problem;
  problem.model = &model;
  problem.graph = &*graph;
  problem.samples = {{1024, 128, 1}};
  problem.options.memory.max_step_tokens = 512;
  problem.options.max_tpot_seconds = tpot_limit;
  problem.allow_split = false;
  problem.prove = true;
  PlacedReplica published;
  published.stages = {{0, 4, 48}, {1, 2, 20}, {2, 2, 12}};
  const absl::StatusOr<Placement> theirs = Assemble(problem, {published});
  const absl::StatusOr<Placement> ours = SearchConfigurations(problem);
  if (!ours.ok() || !theirs.ok()) return false;
  const double gap = 1 - ours->requests_per_second / ours->upper_bound;
  std::printf(
      "%3s GB/s, TPOT %-9s: published %.3f requests/s (TPOT %.0f ms, KV %.0f tokens), ours %.3f, "
      "gap %.4f %%:",
      inside, tpot_limit < 1 ? "<= 150 ms" : "any", theirs->requests_per_second,
      theirs->replicas[0].rate.tpot_seconds * 1e3, theirs->replicas[0].rate.kv_capacity_tokens,
      ours->requests_per_second, 100 * gap);
  for (const PlacedReplica& replica : ours->replicas) {
    for (const LayoutStage& stage : replica.stages) {
      std::printf(" %dx%s:%d", stage.width,
                  graph->pools()[static_cast<size_t>(stage.pool)].spec->kind.c_str(), stage.layers);
    }
    std::printf(";");
  }
  std::printf("\n");
  std::fflush(stdout);
  return gap < 1e-4 && ours->requests_per_second >= theirs->requests_per_second * (1 - 1e-9);
}

}  // namespace
}  // namespace tessera::scheduler

int main() {
  bool passed = true;
  for (const char* inside : {"25", "4"}) {
    for (const double limit : {1e9, 0.15})
      passed = tessera::scheduler::Compare(inside, limit) && passed;
  }
  std::printf("%s\n", passed ? "all bars met" : "A BAR WAS MISSED");
  return passed ? 0 : 1;
}
