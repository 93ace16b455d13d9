// Device sets with a role as columns of a goodput program, found in each other's neighbourhood.
//
// Problem: the devices of a cluster are to be dealt to replicas of role both, valued by their
// goodput, and to ones that prefill or decode, of which all that prefill serve as much as all that
// decode. Idea: the linear program over the sets known prices devices and roles; sets near those it
// uses (a few devices more, fewer, other ones, two joined, one cut, in another role) are laid out
// where they may be worth more than their price. When none is, whole numbers of columns are chosen.
// Heuristic, no bound. Deterministic: budgets count sets that were laid out. Thread rule: one
// thread per object; borrows what it is given.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "scheduler/search/best/goodput_layouts.h"
#include "scheduler/search/best/goodput_program.h"
#include "scheduler/search/layout/device_groups.h"

namespace tessera::scheduler {

// How many of so many devices are moved together: one, half and all.
std::vector<int> PartsTried(int devices);

class GoodputColumns {
 public:
  using Counts = TwinPools::Counts;

  // `groups` judges.
  GoodputColumns(const PlacementProblem& problem, GroupLayouts* groups);

  void OfferRoles(const Counts& set);  // laid out for every role, whatever that is worth
  // For role both also by the program of stage_layout, which takes longer; so the set's part of
  // each pool, and half of it. Only the first so many sets are.
  void OfferFinely(const Counts& set);
  // Offers a replica of role both, with its stages; where they are in one pool, also in every pool
  // of such devices.
  void OfferAsItIs(PlacedReplica replica);
  void OfferAlone();  // parts of each pool, and pools of one kind in a group
  // Whole pools together: two, three and so on, at most so many sets.
  void OfferTogether(int most_sets);
  // Looks for better columns, without `split` for role both alone, until none is near, or so many
  // sets were laid out.
  void Generate(bool split, int64_t most_laid_out);

  // The best replica known of this role on this set, laid out where none is; none: none serves.
  std::optional<PlacedReplica> LaidOut(Role role, const Counts& set);
  GoodputProgram& program() { return program_; }
  const TwinPools& twins() const { return twins_; }
  // Better layouts of the sets that come near their price, with at most so many judgements.
  void Polish(int64_t most_judged);
  int64_t laid_out() const { return laid_out_; }

 private:
  struct Tried {
    double known = 0;  // it is not worth more than so many requests/s
    Counts used;       // what the best layout needs of the set; empty: there is none
  };

  // The same as OfferRoles where that is more than these parts of the set serve.
  void OfferJoined(const Counts& set, const std::vector<Counts>& parts);
  bool MayHold(const Counts& set) const;
  // Lays out a set unless that was done, or it cannot be worth more than `known` requests/s.
  void LayOut(Role role, const Counts& set, double known);
  // What is near a set, of those that the relaxation uses.
  void LookAround(const DeviceGroup& column, const Grouping& used);
  void Consider(Role role, const Counts& set);
  bool Exhausted() const { return laid_out_ >= limit_ || problem_.watch.Stopped(); }

  const PlacementProblem& problem_;
  const std::vector<DevicePool>& pools_;
  GroupLayouts& groups_;
  const TwinPools twins_;
  GoodputProgram program_;
  GoodputLayouts layouts_;
  const std::vector<int> order_;                    // pools, those near each other together
  std::map<std::pair<Role, Counts>, Tried> tried_;  // by first copy
  std::set<Counts> fine_;                           // laid out by stage_layout
  int64_t laid_out_ = 0, limit_ = 0;
  bool split_ = true;  // of Generate
};

}  // namespace tessera::scheduler
