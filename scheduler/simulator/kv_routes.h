// What KV and activations of a plan pass. KV: a stage sends each layer that it computed to the
// stage that decodes with it. Activations: each stage sends to the next one. Both take the link
// between their machines and the uplinks of machines and sites where the cluster describes them,
// each direction apart; hops inside a machine take no link that others use.
//
// A codec is two more things that its KV passes: what encodes at the prefill stage and what decodes
// at the decode stage, each as fast as the cost model says and shared by all KV that it works on.
// Layers are on all of them at once, so the slowest sets the pace, as in the cost model.
// Thread rule: pure function. Units: bytes. Bytes of a token and layer: 2 * kv heads * head_dim *
// B_kv; times the ratio of the codec that the plan's routing names for the pair. Devices must be
// the graph's.
#pragma once

#include <vector>

#include "proto/plan.pb.h"
#include "scheduler/cost/cost_model.h"
#include "scheduler/input/cluster_graph.h"
#include "scheduler/simulator/kv_network.h"

namespace tessera::scheduler {

struct PlanLinks {
  TransferSetup transfers;
  // By replica and hop: links that activations pass (ReplicaSetup::hop_links).
  std::vector<std::vector<std::vector<int>>> hop_links;
  double hop_bytes_per_row = 0;
};

PlanLinks LinksOfPlan(const v1::DeploymentPlan& plan, const ClusterGraph& graph,
                      const ModelShape& model);

// Seconds that the KV of one token takes from one replica to another when nothing else is on the
// links; 0: no time, or no way is described.
double KvSecondsPerToken(const TransferSetup& transfers, size_t replicas, int prefill, int decode);

}  // namespace tessera::scheduler
