// Moves that make a placement of a few replicas better: what rounding a program leaves to be done.
//
// Problem: the configuration program is about classes and fractions; whole replicas on machines
// leave devices free, and the replicas that use them best need not be columns. Idea: one replica's
// devices laid out anew, free devices given to a replica or exchanged for its own, a pool's devices
// moved or exchanged between two replicas, two replicas made one; each is judged by the cost model,
// and taken where the rate of all replicas rises (and money suffices). Replicas of the roles
// prefill and decode stay as they are. Deterministic: the budget counts judgements. Thread rule:
// one thread per object; borrows problem and shapes.
#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/search/class_placement.h"
#include "scheduler/search/replica_shaping.h"

namespace tessera::scheduler {

class PlacementMoves {
 public:
  PlacementMoves(const PlacementProblem& problem, StageShapes* shapes);

  // Until no move helps, or about `most_judged` sets of stages were judged. Goal kPrice: nothing.
  void Improve(ClassPlacement* at, int64_t most_judged);

 private:
  using Counts = std::vector<int>;  // devices by pool
  struct Member {
    Counts counts;
    PlacedReplica replica;
    double rate() const { return replica.rate.requests_per_second; }
  };

  ReplicaShaping::Devices DevicesOf(const Counts& counts) const;
  Member MemberOf(PlacedReplica replica) const;
  // On these devices, or some of them, `like` that replica where only `changed` pools differ.
  Member Shaped(const Counts& counts, const Member& like, const std::vector<int>& changed);
  bool Exhausted() const { return shaping_.judged() >= limit_ || problem_.watch.Stopped(); }
  bool Affordable(double more_usd) const;
  // Puts `fresh` where `old` members are, if that helps; `old` in rising order.
  bool Take(const std::vector<size_t>& old, std::vector<Member> fresh);

  bool LayOutAnew(size_t i);
  bool GiveFree(size_t i);
  bool ExchangeFree(size_t i);
  bool MoveBetween(size_t from, size_t to);
  bool ExchangeBetween(size_t i, size_t j);
  bool Merge(size_t i, size_t j);

  const PlacementProblem& problem_;
  ReplicaShaping shaping_;
  std::vector<int> order_;  // pools, those near each other together
  std::vector<Member> members_;
  Counts free_;
  double usd_per_hour_ = 0;
  int64_t limit_ = 0;
};

}  // namespace tessera::scheduler
