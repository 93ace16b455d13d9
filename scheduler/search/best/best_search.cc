#include "scheduler/search/best/best_search.h"

#include <utility>

#include "scheduler/search/best/configuration_search.h"
#include "scheduler/search/best/goodput_search.h"
#include "scheduler/search/best/plain_placements.h"
#include "scheduler/search/layout/assemble.h"

namespace tessera::scheduler {
namespace {

constexpr int kKindsUpTo = 64;  // devices whose kinds are planned one by one as well
constexpr double kAbove = 1 + 1e-9;

// The best placement on the devices of one kind, on the whole graph.
absl::StatusOr<Placement> OnKind(const PlacementProblem& problem, const std::string& kind,
                                 ReplicaJudge* judge) {
  std::vector<int> counts, kept;
  for (const DevicePool& pool : problem.graph->pools())
    counts.push_back(pool.spec->kind == kind ? pool.count : 0);
  const ClusterGraph part = problem.graph->Part(counts, &kept);
  PlacementProblem one = problem;
  one.graph = &part;
  one.bound = one.prove = false;
  absl::StatusOr<Placement> found = SearchConfigurations(one);
  if (!found.ok()) return found;
  for (PlacedReplica& replica : found->replicas) {
    for (LayoutStage& stage : replica.stages) stage.pool = kept[static_cast<size_t>(stage.pool)];
  }
  return Assemble(problem, std::move(found->replicas), judge);
}

std::vector<Placement> Plain(const PlacementProblem& problem) {
  ReplicaJudge judge(problem);
  std::vector<Placement> plain = JudgedPlain(problem, &judge);
  const std::vector<std::string> kinds = PlainPlacements(problem).kinds();
  if (kinds.size() < 2 || problem.graph->devices() > kKindsUpTo ||
      problem.goal != Goal::kThroughput)
    return plain;
  for (const std::string& kind : kinds) {
    if (problem.watch.Stopped()) break;
    absl::StatusOr<Placement> found = OnKind(problem, kind, &judge);
    if (found.ok()) plain.push_back(*std::move(found));
  }
  return plain;
}

// What is known of the placement that was found holds of a better one too.
Placement InPlaceOf(Placement found, Placement better) {
  better.upper_bound = BoundOver(found.upper_bound, better.requests_per_second);
  better.notes = std::move(found.notes);
  better.shadow_prices = std::move(found.shadow_prices);
  better.evaluations = found.evaluations;
  better.alternatives = std::exchange(found.alternatives, {});
  better.alternatives.push_back(std::move(found));
  return better;
}

}  // namespace

absl::StatusOr<Placement> SearchBest(const PlacementProblem& problem) {
  absl::StatusOr<Placement> best =
      problem.goal == Goal::kGoodput ? SearchGoodput(problem) : SearchConfigurations(problem);
  const bool money = problem.goal == Goal::kPrice || problem.goal == Goal::kBudget;
  if (money || problem.graph->devices() > kPlainUpTo || problem.watch.Stopped()) return best;
  if (best.ok() && (best->proved || best->interrupted)) return best;
  for (Placement& plain : Plain(problem)) {
    if (!best.ok()) {
      best = std::move(plain);
    } else if (plain.requests_per_second > best->requests_per_second * kAbove) {
      best = InPlaceOf(*std::move(best), std::move(plain));
    }
  }
  return best;
}

}  // namespace tessera::scheduler
