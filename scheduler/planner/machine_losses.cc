#include "scheduler/planner/machine_losses.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/status/statusor.h"
#include "scheduler/planner/part_search.h"
#include "scheduler/search/layout/assemble.h"
#include "scheduler/search/layout/goodput.h"
#include "scheduler/search/layout/split_shares.h"

namespace tessera::scheduler {
namespace {

// Replicas by the machines that take them down; only sets that no other contains.
std::vector<std::pair<int, std::set<size_t>>> LostSets(const PlacementProblem& problem,
                                                       const Placement& placement) {
  std::map<int, std::set<size_t>> by_machine;
  for (size_t i = 0; i < placement.replicas.size(); ++i) {
    for (const int machine : MachinesOf(problem, placement.replicas[i]))
      by_machine[machine].insert(i);
  }
  std::vector<std::pair<int, std::set<size_t>>> sets(by_machine.begin(), by_machine.end());
  std::stable_sort(sets.begin(), sets.end(),
                   [](const auto& a, const auto& b) { return a.second.size() > b.second.size(); });
  std::vector<std::pair<int, std::set<size_t>>> largest;
  for (const auto& one : sets) {
    // Sets that contain it share each of its replicas: only those are looked at.
    const bool contained = std::any_of(largest.begin(), largest.end(), [&](const auto& other) {
      return other.second.contains(*one.second.begin()) &&
             std::includes(other.second.begin(), other.second.end(), one.second.begin(),
                           one.second.end());
    });
    if (!contained) largest.push_back(one);
  }
  return largest;
}

// What split replicas serve when some of them are lost, as shares of the placement's indices.
std::vector<Share> SplitShares(const PlacementProblem& problem, const Placement& placement,
                               const std::set<size_t>& lost) {
  std::vector<PlacedReplica> left;
  std::vector<int> index;
  for (size_t i = 0; i < placement.replicas.size(); ++i) {
    if (lost.contains(i) || placement.replicas[i].role == Role::kBoth) continue;
    left.push_back(placement.replicas[i]);
    index.push_back(static_cast<int>(i));
  }
  if (left.size() < 2) return {};
  const ReplicaJudge judge(problem);
  absl::StatusOr<std::vector<Share>> shares = ShareSplit(problem, judge, &left);
  if (!shares.ok()) return {};
  if (problem.goal == Goal::kGoodput) KeepWithinLimits(problem, judge.attainment(), left, &*shares);
  for (Share& share : *shares) {
    share.prefill = index[static_cast<size_t>(share.prefill)];
    share.decode = index[static_cast<size_t>(share.decode)];
  }
  return *std::move(shares);
}

}  // namespace

std::vector<MachineLoss> LossesOf(const PlacementProblem& problem, const Placement& placement) {
  std::vector<MachineLoss> losses;
  for (const auto& [machine, lost] : LostSets(problem, placement)) {
    MachineLoss loss;
    loss.machine = machine;
    for (size_t i = 0; i < placement.replicas.size(); ++i) {
      const PlacedReplica& replica = placement.replicas[i];
      if (lost.contains(i) || replica.role != Role::kBoth || replica.rate.requests_per_second <= 0)
        continue;
      const int index = static_cast<int>(i);
      loss.shares.push_back({index, index, replica.rate.requests_per_second});
    }
    for (const Share& share : SplitShares(problem, placement, lost)) loss.shares.push_back(share);
    for (const Share& share : loss.shares) loss.requests_per_second += share.requests_per_second;
    losses.push_back(std::move(loss));
  }
  std::stable_sort(losses.begin(), losses.end(), [](const MachineLoss& a, const MachineLoss& b) {
    return a.requests_per_second < b.requests_per_second;
  });
  return losses;
}

}  // namespace tessera::scheduler
