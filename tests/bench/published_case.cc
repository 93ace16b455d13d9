// Llama-2-70B in fp16 on 4 A6000, 2 A5000 and 2 A4000: our plan beside the published TP 4/2/2 with
// 48/20/12 layers and beside the search that tries every way to deal the devices (`exact`), for
// throughput and with a limit on TPOT, at fast and slow links inside the machines, with and without
// replicas that only prefill or only decode. Bars: the published one has room for the KV of about
// 124,000 tokens, which its A5000 stage limits; ours is proved to be the best placement of these
// devices, serves at least what the published one does, and what `exact` does with layouts that are
// proved, too. These take ten minutes of a core, ours a second. Where replicas may be split `exact`
// is quick and its layouts are not proved, which leaves it up to 6 % below ours: it is not to be
// above. With the argument `all` they are there too, which takes it longer than half an hour.
#include <cmath>
#include <cstdio>
#include <cstring>

#include "proto/cluster.pb.h"
#include "proto/document.h"
#include "scheduler/input/catalogue.h"
#include "scheduler/search/best/configuration_search.h"
#include "scheduler/search/layout/assemble.h"
#include "scheduler/search/layout/problem.h"
#include "scheduler/search/searches.h"
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

constexpr double kEqual = 1e-6;
constexpr double kProved = 1e-5;  // what a proof may leave open
constexpr double kPublishedKvTokens = 124'000, kAbout = 0.04;
constexpr int kA5000Stage = 1;

void PrintStages(const ClusterGraph& graph, const Placement& placement) {
  for (const PlacedReplica& replica : placement.replicas) {
    for (const LayoutStage& stage : replica.stages) {
      std::printf(" %dx%s:%d", stage.width,
                  graph.pools()[static_cast<size_t>(stage.pool)].spec->kind.c_str(), stage.layers);
    }
    std::printf(";");
  }
}

// prove_exact: the layouts of `exact` are to be the best of all.
bool Compare(const char* inside, double tpot_limit, bool allow_split, bool prove_exact) {
  const ModelShape model = tests::Llama2_70B();
  const absl::StatusOr<ClusterGraph> graph = Cluster(inside);
  if (!graph.ok()) return false;
  PlacementProblem problem;
  problem.model = &model;
  problem.graph = &*graph;
  problem.samples = {{1024, 128, 1}};
  problem.options.memory.max_step_tokens = 512;
  problem.options.max_tpot_seconds = tpot_limit;
  problem.allow_split = allow_split;
  problem.prove = true;
  PlacedReplica published;
  published.stages = {{0, 4, 48}, {1, 2, 20}, {2, 2, 12}};
  const absl::StatusOr<Placement> theirs = Assemble(problem, {published});
  const absl::StatusOr<Placement> ours = SearchConfigurations(problem);
  problem.prove = prove_exact;
  const absl::StatusOr<Placement> exact = (*FindSearch("exact"))(problem);
  if (!ours.ok() || !theirs.ok() || !exact.ok()) return false;
  const double value = ours->requests_per_second;
  const double gap = ours->upper_bound > 0 ? 1 - value / ours->upper_bound : 1;
  std::printf(
      "%3s GB/s, TPOT %-9s, %s: published %.3f requests/s (TPOT %.0f ms, KV %.0f tokens), exact "
      "%.6f, ours %.6f, gap %.4f %%:",
      inside, tpot_limit < 1 ? "<= 150 ms" : "any", allow_split ? "split or not" : "not split",
      theirs->requests_per_second, theirs->replicas[0].rate.tpot_seconds * 1e3,
      theirs->replicas[0].rate.kv_capacity_tokens, exact->requests_per_second, value, 100 * gap);
  PrintStages(*graph, *ours);
  std::printf("\n");
  std::fflush(stdout);
  const ReplicaRate& known = theirs->replicas[0].rate;
  const bool as_published = std::abs(known.kv_capacity_tokens / kPublishedKvTokens - 1) <= kAbout &&
                            known.kv_limiting_stage == kA5000Stage;
  const double above = value / exact->requests_per_second - 1;
  return as_published && ours->proved && gap < kProved && prove_exact == (exact->upper_bound > 0) &&
         above > -kEqual && (above < kEqual || !prove_exact) &&
         value >= theirs->requests_per_second * (1 - 1e-9);
}

}  // namespace
}  // namespace tessera::scheduler

int main(int argc, char** argv) {
  const bool all = argc > 1 && std::strcmp(argv[1], "all") == 0;
  bool passed = true;
  for (const char* inside : {"25", "4"}) {
    for (const double limit : {1e9, 0.15}) {
      for (const bool split : {false, true})
        passed = tessera::scheduler::Compare(inside, limit, split, all || !split) && passed;
    }
  }
  std::printf("%s\n", passed ? "all bars met" : "A BAR WAS MISSED");
  return passed ? 0 : 1;
}
