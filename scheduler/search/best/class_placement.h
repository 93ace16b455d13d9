// From replicas on classes to replicas on devices.
//
// Problem: a column says "four stages of two A40 in machines of that shape"; somebody has to say
// which. Idea: stage by stage the machine that the replica is in already, else the one whose free
// devices are fewest and enough; then the layers are moved between neighbours as long as the cost
// model, on the links that are now known, says that it helps. Deterministic. Thread rule: one
// thread per object; borrows the problem.
#pragma once

#include <optional>
#include <vector>

#include "scheduler/search/layout/class_replica.h"

namespace tessera::scheduler {

class ClassPlacement {
 public:
  explicit ClassPlacement(const PlacementProblem& problem);

  const std::vector<int>& free() const { return free_; }  // devices of each pool of the graph
  const std::vector<PlacedReplica>& replicas() const { return replicas_; }
  double requests_per_second() const;  // of replicas of role both

  // Puts one such replica on free devices; false: they are no longer there in such numbers, or the
  // real links leave it less than `least_part` of the rate it promised.
  bool Place(const DeviceClasses& classes, const ClassReplica& replica, double least_part);
  void Put(PlacedReplica replica);  // as it is; its devices must be free

 private:
  std::optional<PlacedReplica> OnMachines(const DeviceClasses& classes,
                                          const ClassReplica& replica) const;
  void MoveLayers(PlacedReplica* replica) const;
  double Judge(PlacedReplica* replica) const;

  const PlacementProblem* problem_;
  LengthMoments lengths_;
  LayoutProblem layout_;  // of the whole graph, for MakeReplica
  std::vector<int> free_;
  std::vector<PlacedReplica> replicas_;
};

}  // namespace tessera::scheduler
