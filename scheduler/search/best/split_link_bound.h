// What links carry at most between replicas that prefill and replicas that decode, whatever their
// layouts on given devices: for few_devices_search.
//
// Idea: a pair of replicas is no faster than the way between their first stages and the way between
// their last ones, as rate_program.h has it; which machines these stand in is free, but a replica
// of several machines has two devices for them. The KV of a layer goes from the machine that holds
// the layer to the machine that holds it on the other side: which part of the layers that is is
// free too, so flows between machines are variables of a linear program, within links and uplinks.
// Every device set is taken to use all its machines: layouts that leave one out are those of a
// smaller set. Thread rule: one thread per object; borrows the problem. Units: requests per second.
#pragma once

#include <vector>

#include "scheduler/search/layout/problem.h"

namespace tessera::scheduler {

class SplitLinkBound {
 public:
  struct Set {
    Role role = Role::kPrefill;
    std::vector<int> counts;  // devices by pool of the graph
    double rate = 0;          // of the replica, at most
  };

  explicit SplitLinkBound(const PlacementProblem& problem);

  // The rate of one set by itself: KV of a set that has all devices of its machines has to leave or
  // to reach these.
  double RateOf(Role role, const std::vector<int>& counts) const;

  // The rate of all sets together; those that are not split count whole.
  double RateOf(const std::vector<Set>& sets) const;

 private:
  struct Machine {
    int machine = 0;
    int devices = 0;
  };
  std::vector<Machine> MachinesOf(const std::vector<int>& counts) const;
  struct Ways {
    double rate = 0;   // of a pair
    double bytes = 0;  // of a request on the wire, at least
  };
  Ways WaysBetween(const std::vector<Machine>& from, const std::vector<Machine>& to) const;

  const PlacementProblem& problem_;
  const std::vector<DevicePool>& pools_;
  RawKv kv_;  // of a prompt
};

}  // namespace tessera::scheduler
