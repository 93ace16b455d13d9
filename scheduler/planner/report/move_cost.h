// How long a plan's weights take to load, and what it takes to get to it from the plan that runs.
//
// Weights are read once per worker, all workers of a machine share what the machine reads; the
// whole plan is loaded when the slowest machine is. A replica of the running plan stays where the
// same devices hold the same shares in the same role; else it flips its role, or is rebuilt. What
// stays serves on, the others serve as soon as all their machines are done; what the running plan
// would have served meanwhile and they do not is lost (or waits). Not counted: requests in flight
// on replicas that go, which are drained first. Thread rule: pure functions. Units end the names.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/cluster.pb.h"
#include "proto/plan.pb.h"

namespace tessera::scheduler {

struct MoveOptions {
  // Sequential reads of an NVMe drive on PCIe 3.0 x4 as data sheets give them, 2-3.5 GB/s.
  double disk_bytes_per_second = 2e9;   // per machine that gives no weight_read
  double network_bytes_per_second = 0;  // per machine, where weights come over it; 0: they do not
  // A change of role alone reads nothing. Workers whose share changes free what they hold before
  // they load, and read everything. true: they read only what they lack.
  bool keeps_weights = false;
};

// InvalidArgument naming the flag.
absl::Status CheckMoveOptions(const MoveOptions& options);

// Fills plan->move() and the replicas' load_seconds. `running`: nothing runs where it is null.
void AddMove(const v1::Cluster& cluster, const MoveOptions& options,
             const v1::DeploymentPlan* running, v1::DeploymentPlan* plan);

// How a replica of a plan comes about where another plan runs.
struct ReplicaMove {
  int stays_as = -1;         // replica of the running plan that it is; -1: it is new
  double ready_seconds = 0;  // after the move has begun, where it is new
};
// One per replica of `plan`, by the same figures.
std::vector<ReplicaMove> MovesOf(const v1::Cluster& cluster, const MoveOptions& options,
                                 const v1::DeploymentPlan& running, const v1::DeploymentPlan& plan);

// As assumptions say it.
v1::MoveTerms MoveTermsOf(const MoveOptions& options);

}  // namespace tessera::scheduler
