// The oracle of stage_layout: tries every ordered list of stages. Shares the cost model with it and
// nothing else.
#pragma once

#include <vector>

#include "scheduler/cost/replica_cost.h"
#include "scheduler/input/cluster_graph.h"
#include "scheduler/search/layout/stage_layout.h"

namespace tessera::tests {

struct Enumerated {
  std::vector<scheduler::LayoutStage> stages;
  double requests_per_second = 0;
  long layouts = 0;  // looked at
};

Enumerated EnumerateLayouts(const scheduler::LayoutProblem& problem);

// Seeded instances of 4-8 devices, 2-4 kinds, 2-3 machines and 8-16 layers.
struct LayoutInstance {
  scheduler::ModelShape model;
  scheduler::ClusterGraph graph;
  scheduler::LayoutProblem problem;  // borrows model and graph: do not move
};
void MakeLayoutInstance(int seed, int max_devices, int max_layers, LayoutInstance* instance);

}  // namespace tessera::tests
