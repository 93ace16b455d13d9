// A deployment plan -> replicas to simulate, with the planner's cost model.
//
// Thread rule: pure functions; the replicas borrow the graph's devices, so the graph must outlive
// them. Errors: InvalidArgument naming replica, stage or device, and the reason.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/kv_blocks.h"
#include "proto/plan.pb.h"
#include "scheduler/input/cluster_graph.h"
#include "scheduler/simulator/dispatcher.h"
#include "scheduler/simulator/kv_network.h"
#include "scheduler/simulator/replica.h"

namespace tessera::scheduler {

struct PlanReplicaOptions {
  int64_t max_batched_tokens = 0;  // of one step; 0: what the plan says of each replica
  int64_t max_sequences = 0;       // of a replica; 0: what the plan says, else 256
  int64_t block_tokens = kDefaultBlockTokens;
  double utilisation = 0.9;  // of memory, where the plan does not say
  double runtime_reserve_bytes = 1073741824.0;
  // What steps cost, for every replica, instead of the cost model; KV room stays the plan's.
  std::shared_ptr<const CostTable> cost;
};

struct PlanReplicas {
  std::vector<ReplicaSetup> replicas;  // in the plan's order
  std::vector<PairShare> shares;       // the plan's routing
  TransferSetup transfers;             // what their KV and activations pass
  double usd_per_hour = 0;             // of what is rented; 0: no prices
};

// Stages of one kind of device in one machine each, as the planner makes them.
absl::StatusOr<PlanReplicas> ReplicasOfPlan(const v1::DeploymentPlan& plan,
                                            const ClusterGraph& graph,
                                            const PlanReplicaOptions& options);

}  // namespace tessera::scheduler
