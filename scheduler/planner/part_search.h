// A search on a part of the cluster, its replicas named by the pools of the whole: what plans that
// must survive losses and models that share a cluster put together.
//
// A part is devices per pool of the whole graph. Machines with like devices have like replicas:
// their parts are searched once. Thread rule: one thread per object; borrows problem and search,
// which outlive it. Deterministic. Cost: one run of the search per unlike part.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "scheduler/search/layout/problem.h"

namespace tessera::scheduler {

using DeviceCounts = std::vector<int>;  // per pool of a graph

// Devices that these replicas use.
DeviceCounts DevicesOf(const PlacementProblem& problem, const std::vector<PlacedReplica>& replicas);
DeviceCounts AllDevices(const PlacementProblem& problem);
// Devices of one machine, where `wanted` has them.
DeviceCounts OfMachine(const PlacementProblem& problem, const DeviceCounts& wanted, int machine);

// Machines that a replica uses, in order, each once.
std::vector<int> MachinesOf(const PlacementProblem& problem, const PlacedReplica& replica);

class PartSearch {
 public:
  // After so many searches, or searches of so many devices together, parts that were not searched
  // yet are answered with ResourceExhausted.
  PartSearch(const PlacementProblem& problem, const Search& search, int most_searches,
             int64_t most_devices)
      : problem_(problem), search_(search), left_(most_searches), left_devices_(most_devices) {}

  // The best placement for throughput of the part; pools and devices are those of the whole graph,
  // device_index is left empty. Errors: those of the search.
  absl::StatusOr<Placement> On(const DeviceCounts& part);

  void AllowMore(int searches, int64_t devices) {
    left_ = std::max(0, left_) + searches;
    left_devices_ = std::max<int64_t>(0, left_devices_) + devices;
  }

  int searches() const { return searches_; }
  bool spent() const { return left_ <= 0 || left_devices_ <= 0; }

 private:
  std::string KeyOf(const DeviceCounts& part) const;

  const PlacementProblem& problem_;
  const Search& search_;
  int left_;
  int64_t left_devices_;
  int searches_ = 0;
  struct Known {
    std::vector<int> pools;
    absl::StatusOr<Placement> placement;
  };
  std::map<std::string, Known> known_;
};

}  // namespace tessera::scheduler
