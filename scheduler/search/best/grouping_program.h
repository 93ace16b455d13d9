// Which device sets, in which roles, serve most together: an exact dynamic program for few devices.
//
// Problem: columns are device sets, by pool, with a role and a rate; no device is in two of the
// chosen ones.
// What they serve, over free links, is B + min(P, D): rates of the replicas that do both, that
// prefill and that decode. Idea: that is min(B + P, B + D), so for every set of devices the
// groupings that use exactly these are kept as a Pareto front of (B + P, B + D); each is met once,
// by the column that holds a device of the first pool that is left. Cost follows from the devices
// used; where the cheapest is wanted, sets are taken by rising cost until one serves enough.
// Complexity: pairs of device sets (at most 3^8 for eight devices) * roles * front. Deterministic.
// Thread rule: plain values, pure functions.
#pragma once

#include <optional>
#include <vector>

#include "scheduler/search/best/column_program.h"
#include "scheduler/search/layout/problem.h"

namespace tessera::scheduler {

// Sets of devices of a few pools as numbers whose digits are devices per pool. For hundreds of
// sets: which are within which is a table.
class DeviceSets {
 public:
  explicit DeviceSets(const ClusterGraph& graph);

  int size() const { return size_; }  // 0 is the empty set, size() - 1 all devices
  std::vector<int> Counts(int set) const;
  int IndexOf(const std::vector<int>& counts) const;
  bool Within(int part, int whole) const {
    return within_[static_cast<size_t>(whole) * static_cast<size_t>(size_) +
                   static_cast<size_t>(part)] != 0;
  }
  // The price of what has to be rented for it.
  double usd_per_hour(int set) const { return usd_per_hour_[static_cast<size_t>(set)]; }
  int devices(int set) const;
  int first_pool(int set) const;  // that has devices in it
  int pools() const { return static_cast<int>(base_.size()); }

 private:
  int Digit(int set, size_t pool) const { return set / radix_[pool] % base_[pool]; }

  std::vector<int> radix_, base_;
  std::vector<double> usd_per_hour_;  // by set
  std::vector<char> within_;          // [whole * sets + part]
  int size_ = 1;
};

struct ColumnGrouping {
  std::vector<int> columns;           // indices
  double prefilled = 0, decoded = 0;  // B + P, B + D
  double usd_per_hour = 0;

  double served() const { return prefilled < decoded ? prefilled : decoded; }
};

// The best by the problem's goal (kPrice: the cheapest that serves the required rate); none where
// no grouping serves, or none is within the goal's limit. Columns of split roles count where the
// problem allows them.
std::optional<ColumnGrouping> BestGrouping(const PlacementProblem& problem, const DeviceSets& sets,
                                           const std::vector<Column>& columns);

// Every grouping that serves more than `served` over free links, by falling rate; empty where there
// are more than `most` of them. For goals other than kPrice.
std::optional<std::vector<ColumnGrouping>> GroupingsAbove(const PlacementProblem& problem,
                                                          const DeviceSets& sets,
                                                          const std::vector<Column>& columns,
                                                          double served, size_t most);

}  // namespace tessera::scheduler
