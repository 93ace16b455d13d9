// Layouts of replicas by their goodput, quickly: for a search that tries many device sets.
//
// Problem: BestLayoutFor finds good stages of a device set in ten milliseconds or more. Idea:
// stages come from replica_shaping, within tighter and tighter limits of TPOT, of which each leaves
// less capacity, until that is no more than the goodput that an earlier one has. A layout is judged
// only as far as it takes to see that it is no better. Heuristic. Deterministic. Thread rule: one
// thread per object; borrows problem and judge.
#pragma once

#include <deque>
#include <memory>

#include "scheduler/search/layout/goodput.h"
#include "scheduler/search/layout/replica_shaping.h"

namespace tessera::scheduler {

class GoodputLayouts {
 public:
  GoodputLayouts(const PlacementProblem& problem, ReplicaJudge* judge);

  // A replica of role both on these devices, its rate its goodput; no stages: none that is above
  // `known` was found.
  PlacedReplica Shape(const ReplicaShaping::Devices& devices, double known);
  // One that prefills or decodes, valued as in goodput.h; the same.
  PlacedReplica ShapeSplit(Role role, const ReplicaShaping::Devices& devices, double known);

 private:
  struct Limited {
    PlacementProblem problem;  // for throughput, with its limit of TPOT
    std::unique_ptr<ReplicaShaping> shaping;
  };
  Limited& At(size_t level);

  const PlacementProblem& problem_;
  ReplicaJudge* judge_;
  StageShapes shapes_;
  ReplicaShaping prefilling_, decoding_;
  std::deque<Limited> levels_;
};

}  // namespace tessera::scheduler
