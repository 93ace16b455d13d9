// What is left of a placement when a machine is lost: every replica that uses it is gone, and among
// the others requests are routed again, split ones as far as links carry the KV (search/transport),
// for goodput so that enough requests are still within their limits (search/split_shares).
//
// Thread rule: pure function. Units: requests per second.
#pragma once

#include <vector>

#include "scheduler/search/layout/problem.h"

namespace tessera::scheduler {

struct MachineLoss {
  int machine = -1;  // of the graph
  double requests_per_second = 0;
  std::vector<Share> shares;  // of the replicas that are left
};

// One for every machine whose loss is not a part of another's, the worst first; empty where the
// placement uses no machine. Replicas need rates.
std::vector<MachineLoss> LossesOf(const PlacementProblem& problem, const Placement& placement);

}  // namespace tessera::scheduler
