// Which replicas, of which role, serve most within their limits together: columns on pools of
// devices, found in each other's neighbourhood.
//
// Problem: the devices of a cluster are to be dealt to replicas of role both, valued by their
// goodput, and to ones that prefill or decode, of which all that prefill serve as much as all that
// decode. Idea: a device set with a role is a column; the linear program over the columns known
// prices devices and roles; sets near those it uses (a few devices more, fewer, other ones, two
// joined, one cut, in another role) are laid out where they may be worth more than their price.
// When none is, whole numbers of columns are chosen. Heuristic, no bound. Deterministic: budgets
// count sets that were laid out. Thread rule: one thread per object; borrows what it is given.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "scheduler/search/device_groups.h"
#include "scheduler/search/goodput_layouts.h"

namespace tessera::scheduler {

class GoodputColumns {
 public:
  // Devices per pool of the graph.
  using Counts = std::vector<int>;

  // `groups` judges.
  GoodputColumns(const PlacementProblem& problem, GroupLayouts* groups);

  void OfferRoles(const Counts& set);  // laid out for every role, whatever that is worth
  // For role both also by the program of stage_layout, which takes longer; so the set's part of
  // each pool, and half of it. Only the first so many sets are.
  void OfferFinely(const Counts& set);
  // Of role both, with its stages; where they are in one pool, also in every pool of such devices.
  void OfferAsItIs(PlacedReplica replica);
  void OfferAlone();  // parts of each pool, and pools of one kind in a site
  // Looks for better columns until none is near, or so many sets were laid out.
  void Generate(int64_t most_laid_out);
  // Replicas that serve most together; none where nothing serves.
  std::vector<PlacedReplica> Packed(bool split);
  double packed_value() const { return packed_value_; }  // that they should serve
  // Replicas that prefill or decode served less in this placement, which was made of `dealt`, than
  // their columns say: those come down towards that. False: none did.
  bool Learn(const std::vector<PlacedReplica>& dealt, const Placement& placement);

  int64_t laid_out() const { return laid_out_; }

 private:
  struct Column {
    PlacedReplica replica;
    Counts used;
    double rate = 0;
  };

  void Add(const PlacedReplica& replica);
  bool MayHold(const Counts& set) const;
  // Lays out a set unless that was done, or it cannot be worth more than `known` requests/s.
  void LayOut(Role role, const Counts& set, double known);
  Counts UsedBy(const PlacedReplica& replica) const;
  double WorthOf(Role role) const;
  double PriceOf(const Counts& set) const;
  // Of the columns `chosen`, in their order; sets the prices, or for whole numbers packed_value_.
  // False: there is no solution.
  bool Solve(bool whole, bool split, const std::vector<size_t>& chosen,
             std::vector<double>* values);
  bool Relax(bool split, std::vector<double>* shares);
  std::vector<size_t> Promising(bool split) const;  // at the prices, those that come closest
  // What is near column `c`, of those that the relaxation uses.
  void LookAround(size_t c, const std::vector<size_t>& used);
  void Consider(Role role, const Counts& set);
  bool Exhausted() const { return laid_out_ >= limit_ || problem_.watch.Stopped(); }

  const PlacementProblem& problem_;
  const std::vector<DevicePool>& pools_;
  GroupLayouts& groups_;
  GoodputLayouts layouts_;
  const std::vector<int> order_;  // pools, those near each other together
  std::vector<Column> columns_;
  std::map<std::pair<Role, Counts>, size_t> column_of_;
  std::map<std::pair<Role, Counts>, double> tried_;  // not worth more than so many requests/s
  std::vector<double> prices_;                       // by pool
  std::set<Counts> fine_;                            // laid out by stage_layout
  double prefill_price_ = 0;                         // of a request per second; decode: 1 less it
  double value_ = 0, packed_value_ = 0;
  int64_t laid_out_ = 0, limit_ = 0;
};

}  // namespace tessera::scheduler
