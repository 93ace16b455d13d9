// What a plan sends over links between machines when it serves all that it can: activations from
// stage to stage and KV from prefill to decode replicas, and what of it shares an uplink.
//
// Thread rule: pure functions. Units: bytes per second and direction. Source: a token's activations
// are hidden * B_act bytes per hop; a prompt's KV 2 * layers * kv heads * head_dim * B_kv bytes,
// times the codec's ratio, sent by the stage that computes a layer to the stage that decodes with
// it. Token ids on their way back to the first stage (8 bytes each) are left out.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "proto/plan.pb.h"
#include "scheduler/cost/model_shape.h"
#include "scheduler/input/cluster_graph.h"

namespace tessera::scheduler {

// Links that carry anything, in the order of the graph's machines, then uplinks of machines, then
// of sites. Needs replicas with shares, routing, prediction and basis. Devices that the graph has
// not are left out.
std::vector<v1::LinkLoad> LinkLoads(const v1::DeploymentPlan& plan, const ClusterGraph& graph,
                                    const ModelShape& model);

// For each entry of plan.routing() what part of it the links carry, 1 where nothing binds: whatever
// an overloaded link or uplink carries is cut alike, the most overloaded first.
std::vector<double> CarriedParts(const v1::DeploymentPlan& plan, const ClusterGraph& graph,
                                 const ModelShape& model);

// Links and uplinks that are full (from 99.5 %), by the replicas whose requests they carry. Needs
// what LinkLoads needs.
std::map<std::string, std::vector<v1::LinkLoad>> FullLinks(const v1::DeploymentPlan& plan,
                                                           const ClusterGraph& graph,
                                                           const ModelShape& model);

}  // namespace tessera::scheduler
