// What replicas are worth to the problem's goal: capacity, or for goodput the largest rate at which
// enough requests meet their objectives (cost/attainment).
//
// Replicas of role both are judged alone, each must attain what is asked for. Of split ones the
// decoding side keeps a pace, the same for all (a TPOT, at most the largest useful one); the
// prefilling side has what TTFT leaves, and what end to end leaves after the KV's way and decoding
// at that pace. Paces from the fastest step to the limit are tried; as attainment falls with load,
// every pair then attains what is asked for. Thread rule: one thread per object; borrows its
// problem. Units: requests per second, seconds.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/cost/attainment.h"
#include "scheduler/search/problem.h"
#include "scheduler/search/transport.h"

namespace tessera::scheduler {

class ReplicaJudge {
 public:
  explicit ReplicaJudge(const PlacementProblem& problem);

  const LengthMoments& lengths() const { return lengths_; }
  Goal goal() const { return problem_.goal; }
  // Role both: its worth to the goal. Others: the most they serve in a pair with the best partner.
  ReplicaRate RateOf(const ReplicaSpec& replica);
  // The most that each prefilling and decoding one of these can serve at `pace` (goal goodput);
  // the replicas' rates are set. `near`: only over ways about as good as a prefilling replica's
  // best. False: nothing can.
  bool RateSplit(double pace_seconds, bool near, std::vector<PlacedReplica>* replicas,
                 Transport* transport);
  // TPOTs worth trying for decoding, the slowest first; empty: no replica decodes.
  std::vector<double> Paces(const std::vector<PlacedReplica>& replicas);

 private:
  const PlacementProblem& problem_;
  LengthMoments lengths_;
  AttainmentModel attainment_;
  std::map<std::string, ReplicaRate> known_;  // by what replicas are made of
};

// The layout that is worth most to the goal. For goodput: of those that serve most within tighter
// and tighter limits of TPOT; its rate is its goodput. Else BestLayout.
Layout BestLayoutFor(ReplicaJudge* judge, const LayoutProblem& layout);

// The way of a pair of a transport of `problem`.
KvPath PathOf(const PlacementProblem& problem, const Transport::Pair& pair);

}  // namespace tessera::scheduler
