// Improves a placement for goodput by moves that are judged as a whole.
//
// A goodput program knows what replicas serve alone; what split ones serve depends on partners and
// on the links between them. Idea: devices change replicas, replicas change roles, join or are cut
// in two. What these neighbours would serve is estimated: links and rates of replicas are all that
// limits pairs, and who is not moved has the rate that its partners leave it now. The most
// promising are judged with everything that pairs share, some at a time, until one of them serves
// more; the search goes on from there, and ends where none does. Heuristic. Deterministic: budgets
// count placements. Thread rule: one thread per object; borrows what it is given.
#pragma once

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "scheduler/search/best/goodput_columns.h"

namespace tessera::scheduler {

class GoodputMoves {
 public:
  GoodputMoves(const PlacementProblem& problem, GroupLayouts* groups, GoodputColumns* columns);

  // At least as good as `start`; judges at most so many placements.
  Placement Improve(Placement start, int64_t most_judged);

 private:
  using Counts = TwinPools::Counts;
  struct Neighbour {
    double estimate = 0;  // requests per second
    std::vector<PlacedReplica> replicas;
  };

  // The placement with `come` in place of the parts `gone`; of those what serves nothing is idle.
  void Offer(const std::vector<size_t>& gone, const Grouping& come);
  void OfferTransfers();
  void OfferRoles();
  void OfferCuts();
  void OfferJoined();
  double Estimate(const std::vector<PlacedReplica>& replicas) const;
  void KeepMostPromising();
  void OfferAll();
  bool Step(int64_t most_judged);  // false: nothing is better, or enough were judged

  const PlacementProblem& problem_;
  const std::vector<DevicePool>& pools_;
  GroupLayouts& groups_;
  GoodputColumns& columns_;
  Placement best_;
  Grouping parts_;  // of best_
  Counts idle_;
  std::vector<Neighbour> neighbours_;
  std::set<std::vector<std::pair<Role, Counts>>> seen_;  // neighbours, on first copies of twins
  int64_t judged_ = 0;
};

}  // namespace tessera::scheduler
