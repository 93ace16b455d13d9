// Placements that people write down without a search: chains, even splits, each machine by itself.
//
// Idea: replicas of equal stages of one width, packed machine by machine; and for each machine the
// width and the few stages that serve most on its devices. They are few, so all are judged. Thread
// rule: one thread per judge; borrows its problem. Deterministic.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "scheduler/search/layout/goodput.h"
#include "scheduler/search/layout/problem.h"

namespace tessera::scheduler {

class PlainPlacements {
 public:
  using Replicas = std::vector<PlacedReplica>;

  explicit PlainPlacements(const PlacementProblem& problem);

  const std::vector<std::string>& kinds() const { return kinds_; }  // most memory first

  // Whole machines after each other, weaker kinds last: replicas of S stages of w devices, in turn
  // for every w and S, the chain of all devices among them. `fits` judges one and says whether
  // replicas hold the model: after the three fewest S that do, only those that leave no device out.
  void EqualStages(const std::vector<std::string>& kinds,
                   const std::function<bool(Replicas)>& fits) const;

  // Each machine by itself: on its devices of a kind as many replicas as fit, of the width and the
  // stages, `most_stages` or fewer, that serve most together. Devices that hold none are left out.
  Replicas EachMachine(int most_stages, ReplicaJudge* judge) const;

 private:
  Replicas Packed(const std::vector<int>& slots, int stages, int width) const;

  const PlacementProblem& problem_;
  const std::vector<DevicePool>& pools_;
  std::vector<size_t> by_memory_;
  std::vector<std::string> kinds_;
};

// All of these that serve anything, judged as the problem says. `judge` is of the same problem.
std::vector<Placement> JudgedPlain(const PlacementProblem& problem, ReplicaJudge* judge);

// Devices, above which JudgedPlain takes seconds.
inline constexpr int kPlainUpTo = 128;

}  // namespace tessera::scheduler
