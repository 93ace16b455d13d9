// What replicas are worth to the problem's goal: capacity, or for goodput the largest rate at which
// enough requests meet their objectives (cost/attainment).
//
// Replicas of role both are judged alone, each must attain what is asked for; of split ones the
// prefilling side here, as if decoding took no time, and pairs in split_shares. Thread rule: one
// thread per object; borrows its problem. Units: requests per second, seconds.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "scheduler/cost/attainment.h"
#include "scheduler/search/layout/problem.h"

namespace tessera::scheduler {

// Replicas of equal keys are alike to the cost model: device specifications of one graph, links,
// layers, micro-batches and role.
std::string AlikeKey(const ReplicaSpec& replica);

class ReplicaJudge {
 public:
  explicit ReplicaJudge(const PlacementProblem& problem);

  const LengthMoments& lengths() const { return lengths_; }
  Goal goal() const { return problem_.goal; }
  // Role both: its worth to the goal. Others: the most they serve in a pair with the best partner.
  ReplicaRate RateOf(const ReplicaSpec& replica);
  // The rate of role both, for goodput: 0 requests/s, and sooner, where that is no more than
  // `known`.
  ReplicaRate GoodputAbove(double known, const ReplicaSpec& replica, const ReplicaRate& capacity);
  const AttainmentModel& attainment() const { return attainment_; }

 private:
  const PlacementProblem& problem_;
  LengthMoments lengths_;
  AttainmentModel attainment_;
  std::map<std::string, ReplicaRate> known_;  // by what replicas are made of
  std::map<std::string, double> at_most_;     // the same, requests per second
};

// The layout that is worth most to the goal. For goodput: of those that serve most within tighter
// and tighter limits of TPOT; its rate is its goodput. Else BestLayout.
Layout BestLayoutFor(ReplicaJudge* judge, const LayoutProblem& layout);

}  // namespace tessera::scheduler
