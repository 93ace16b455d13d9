// Moves that make a placement of a few replicas better: what rounding a program leaves to be done.
// class_search uses them; for goodput see goodput_moves.h.
//
// Problem: the configuration program is about classes and fractions; whole replicas on machines
// leave devices free, and the replicas that use them best need not be columns. Idea: one replica's
// devices laid out again, free devices given to a replica, exchanged for its own or made a replica
// with some of its own, a pool's devices moved or exchanged between two replicas, two replicas made
// one, one cut in two; each is judged by the cost model, and taken where the rate of all replicas
// rises (and money suffices); stages are put in another order where that could decide. Where no
// move helps, the move that loses least is made all the same and what it leaves is improved without
// going back: kept where all rises in the end, undone otherwise. In the end moves are looked at
// again with more care for layouts, and on few devices stages change places two at a time, from
// what is there and from what the layout program makes of it coarsely. What was looked at is not
// looked at again while its replicas stay. Replicas of the roles prefill and decode stay as they
// are. Deterministic: the budget counts judgements. Thread rule: one thread per object; borrows
// problem and shapes.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "scheduler/search/best/class_placement.h"
#include "scheduler/search/layout/replica_shaping.h"

namespace tessera::scheduler {

class PlacementMoves {
 public:
  PlacementMoves(const PlacementProblem& problem, StageShapes* shapes);

  // Until no move helps, or about `most_judged` sets of stages were judged. `escape`: moves that
  // lose are tried as well, for few devices. Goal kPrice: nothing.
  void Improve(ClassPlacement* at, int64_t most_judged, bool escape);

 private:
  using Counts = std::vector<int>;  // devices by pool
  struct Member {
    Counts counts;
    PlacedReplica replica;
    int id = 0;  // of those that joined: the same for the same stages
    double rate() const { return replica.rate.requests_per_second; }
  };
  struct State {
    std::vector<Member> members;
    Counts free;
    int free_id = 0;
    double usd_per_hour = 0;
    double rate() const;
  };
  // A move that lost.
  struct Kick {
    double change = 0;  // of the rate
    std::vector<Member> fresh;
    bool tried = false;
  };
  using Ids = std::pair<int, int>;  // of two members, or of one and -1

  ReplicaShaping::Devices DevicesOf(const Counts& counts) const;
  Member MemberOf(PlacedReplica replica) const;
  void Join(Member member);
  // On these devices, or some of them, `like` that replica where only `changed` pools differ.
  Member Shaped(const Counts& counts, const Member& like, const std::vector<int>& changed);
  Member ShapedAnew(const Counts& counts);
  PlacedReplica LaidOutCoarsely(PlacedReplica replica) const;
  bool Exhausted() const { return shaping_.judged() >= limit_ || problem_.watch.Stopped(); }
  Ids IdsOf(const std::vector<size_t>& old) const;
  // Puts `fresh` where `old` members are, if that helps; `old` in rising order.
  bool Take(const std::vector<size_t>& old, std::vector<Member> fresh);
  void Replace(const std::vector<size_t>& old, std::vector<Member> fresh);
  void Remember(const std::vector<size_t>& old, std::vector<Member> fresh, double change);
  // The members that the best kick not yet tried replaces; none: there is no such kick.
  Kick* BestKick(std::vector<size_t>* old);
  void Descend();
  void Escape();
  // Moves of one member, or of two.
  bool MoveOne(size_t i);
  bool MoveTwo(size_t i, size_t j);

  bool LayOutAnew(size_t i);
  bool GiveFree(size_t i);
  bool TakeAway(size_t i);
  bool ExchangeFree(size_t i);
  bool JoinFree(size_t i);
  bool CutInTwo(size_t i);
  bool MoveBetween(size_t from, size_t to);
  bool ExchangeBetween(size_t i, size_t j);
  bool Merge(size_t i, size_t j);

  const PlacementProblem& problem_;
  ReplicaShaping shaping_;
  std::vector<int> order_;  // pools, those near each other together
  State now_;
  int64_t limit_ = 0;
  bool escape_ = false;
  ReplicaShaping::Care care_ = ReplicaShaping::Care::kSome;
  std::map<std::vector<int>, int> ids_;   // of stages and of free devices
  std::set<std::vector<int>> looked_at_;  // ids of members and free devices where no move helps
  std::map<Ids, std::vector<Kick>> kicks_;
  std::vector<Counts> barred_;  // members that shall not come back
  bool was_barred_ = false;
};

}  // namespace tessera::scheduler
