// The best stages and layer split of one replica on a set of devices.
//
// Problem: given pools of equal devices (a pool stands in one machine), choose an ordered list of
// stages, each of some devices of one pool and some consecutive layers, devices may stay idle, so
// that the replica's capacity is largest. Idea: for given rows per micro-batch b and KV tokens K,
// stage times and hops are constants, and a dynamic program over (layers done, devices used per
// pool, last pool) keeps the Pareto front of (slowest stage or hop, sum of stages and hops,
// stages). The period is a function of these three that grows with each of the first two, so for
// that (b, K) the result is exact. An outer search tries b in powers of two with the K that each
// number of stages asks for, then refines around the best until nothing improves; every candidate
// is judged by CapacityOf. Complexity: O(L^2 * prod(n_i + 1) * P * sum(n_i)) front operations per
// (b, K); incumbents prune most of it. Deterministic. Thread rule: pure function; borrows its
// problem. Limits: stages of one kind in one machine (a stage over unlike devices or machines is
// never built here).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "scheduler/cost/replica_cost.h"
#include "scheduler/input/cluster_graph.h"
#include "scheduler/search/layout/layout_stage.h"

namespace tessera::scheduler {

// Devices that one replica may use.
struct LayoutPool {
  const DeviceSpec* spec = nullptr;
  int machine = 0;  // of the graph
  int count = 0;
};

struct LayoutProblem {
  const ModelShape* model = nullptr;
  const ClusterGraph* graph = nullptr;
  std::vector<LayoutPool> pools;
  LengthMoments lengths;
  ReplicaOptions options;
  Role role = Role::kBoth;
  int layer_step = 1;  // stages take multiples of it (and the rest): coarser is faster
  bool refine = true;  // search around the best b and K after the powers of two
  bool exact = false;  // then go through every K there can be: proves the optimum (see above)
  // Role prefill: the stages through which a step goes fastest, whatever the rate.
  bool least_latency = false;
  double known_rate = 0;  // requests per second that somebody has: worse is not looked for
  std::function<bool()> stop = {};  // asked all the while; true: the best so far, nothing is proved
};

struct Layout {
  std::vector<LayoutStage> stages;  // empty: nothing fits
  ReplicaRate rate;
};

Layout BestLayout(const LayoutProblem& problem);

// How many devices of each of `pools` pools the stages take.
std::vector<int> DevicesByPool(const std::vector<LayoutStage>& stages, size_t pools);

// A stage for the cost model that holds layers from `first_layer` on; borrows the problem's
// devices.
StageSpec MakeStage(const LayoutProblem& problem, const LayoutStage& stage, int first_layer);

// A replica for the cost model; borrows the problem's devices.
ReplicaSpec MakeReplica(const LayoutProblem& problem, const std::vector<LayoutStage>& stages);

// A key of role, devices and links: problems that differ in nothing else have equal layouts if
// their keys are equal.
std::string KeyOf(const LayoutProblem& layout);

}  // namespace tessera::scheduler
