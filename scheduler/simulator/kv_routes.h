// What the KV of a plan's split replicas passes: a stage sends each layer that it computed to the
// stage that decodes with it, over the link between their machines and the uplinks of machines and
// sites where the cluster describes them, each direction apart.
//
// Thread rule: pure function. Units: bytes. Bytes of a token and layer: 2 * kv heads * head_dim *
// B_kv; times the ratio of the codec that the plan's routing names for the pair (the codec's own
// time is left out: it overlaps with sending). Devices must be the graph's.
#pragma once

#include "proto/plan.pb.h"
#include "scheduler/cost/cost_model.h"
#include "scheduler/input/cluster_graph.h"
#include "scheduler/simulator/kv_network.h"

namespace tessera::scheduler {

TransferSetup RoutesOfPlan(const v1::DeploymentPlan& plan, const ClusterGraph& graph,
                           const ModelShape& model);

}  // namespace tessera::scheduler
