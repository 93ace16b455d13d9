// Pools that are alike to every search: equal devices at equal prices, alone in machines of equal
// links to all others.
//
// A device set and its copy on twins serve the same, so that one of them need be known: the one in
// which earlier twins have more devices. Clusters of more than kMaxPools pools are taken as if
// they had no twins, which takes more time and loses nothing. Thread rule: const after
// construction.
#pragma once

#include <optional>
#include <vector>

#include "scheduler/search/layout/problem.h"

namespace tessera::scheduler {

class TwinPools {
 public:
  using Counts = std::vector<int>;  // devices per pool of the graph
  static constexpr size_t kMaxPools = 200;

  explicit TwinPools(const ClusterGraph& graph);

  // Every pool is in one of them; ascending.
  const std::vector<std::vector<size_t>>& groups() const { return groups_; }
  size_t GroupOf(size_t pool) const { return group_of_[pool]; }

  // The one that stands for all copies of the set.
  Counts FirstCopy(const Counts& set) const;
  // A replica on the set, moved to the first copy, and back.
  PlacedReplica ToFirstCopy(const Counts& set, PlacedReplica replica) const;
  PlacedReplica FromFirstCopy(const Counts& set, PlacedReplica replica) const;
  // A copy of the set within `free` devices, fullest pools first; none: there is none.
  std::optional<Counts> CopyWithin(const Counts& set, const Counts& free) const;

 private:
  std::vector<size_t> Fullest(size_t group, const Counts& set) const;  // pools

  std::vector<std::vector<size_t>> groups_;
  std::vector<size_t> group_of_;  // by pool
};

}  // namespace tessera::scheduler
