#include "scheduler/search/best/twin_pools.h"

#include <algorithm>

namespace tessera::scheduler {
namespace {

bool AreTwins(const ClusterGraph& graph, const DevicePool& a, const DevicePool& b) {
  if (a.machine == b.machine || a.spec != b.spec || a.count != b.count ||
      a.price_usd_per_hour != b.price_usd_per_hour)
    return false;
  const MachineNode& in_a = graph.machines()[static_cast<size_t>(a.machine)];
  const MachineNode& in_b = graph.machines()[static_cast<size_t>(b.machine)];
  if (in_a.place != in_b.place || in_a.inside != in_b.inside) return false;
  for (const DevicePool& other : graph.pools()) {
    const bool beside = other.machine == a.machine || other.machine == b.machine;
    if (beside && &other != &a && &other != &b) return false;
  }
  return true;
}

}  // namespace

TwinPools::TwinPools(const ClusterGraph& graph) {
  const std::vector<DevicePool>& pools = graph.pools();
  for (size_t p = 0; p < pools.size(); ++p) {
    size_t group = pools.size() <= kMaxPools ? 0 : groups_.size();
    while (group < groups_.size() && !AreTwins(graph, pools[groups_[group].front()], pools[p]))
      ++group;
    if (group == groups_.size()) groups_.emplace_back();
    groups_[group].push_back(p);
    group_of_.push_back(group);
  }
}

std::vector<size_t> TwinPools::Fullest(size_t group, const Counts& set) const {
  std::vector<size_t> pools = groups_[group];
  std::stable_sort(pools.begin(), pools.end(), [&](size_t a, size_t b) { return set[a] > set[b]; });
  return pools;
}

TwinPools::Counts TwinPools::FirstCopy(const Counts& set) const {
  Counts first = set;
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (groups_[g].size() == 1) continue;
    const std::vector<size_t> fullest = Fullest(g, set);
    for (size_t i = 0; i < fullest.size(); ++i) first[groups_[g][i]] = set[fullest[i]];
  }
  return first;
}

PlacedReplica TwinPools::ToFirstCopy(const Counts& set, PlacedReplica replica) const {
  for (LayoutStage& stage : replica.stages) {
    const size_t g = group_of_[static_cast<size_t>(stage.pool)];
    const std::vector<size_t> fullest = Fullest(g, set);
    const auto at = std::find(fullest.begin(), fullest.end(), static_cast<size_t>(stage.pool));
    stage.pool = static_cast<int>(groups_[g][static_cast<size_t>(at - fullest.begin())]);
  }
  return replica;
}

PlacedReplica TwinPools::FromFirstCopy(const Counts& set, PlacedReplica replica) const {
  for (LayoutStage& stage : replica.stages) {
    const size_t g = group_of_[static_cast<size_t>(stage.pool)];
    const auto at =
        std::find(groups_[g].begin(), groups_[g].end(), static_cast<size_t>(stage.pool));
    stage.pool = static_cast<int>(Fullest(g, set)[static_cast<size_t>(at - groups_[g].begin())]);
  }
  return replica;
}

std::optional<TwinPools::Counts> TwinPools::CopyWithin(const Counts& set,
                                                       const Counts& free) const {
  Counts copy(set.size(), 0);
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (const size_t wanted : Fullest(g, set)) {
      if (set[wanted] == 0) break;
      // Where least is left over.
      std::optional<size_t> best;
      for (const size_t pool : groups_[g]) {
        if (copy[pool] > 0 || free[pool] < set[wanted]) continue;
        if (!best || free[pool] < free[*best]) best = pool;
      }
      if (!best) return std::nullopt;
      copy[*best] = set[wanted];
    }
  }
  return copy;
}

}  // namespace tessera::scheduler
